"""ProBA with each matcher: its matches against the truth, and what becomes of them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from proba.bench.cases import shortened
from proba.bench.charts import bars
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, cell, score, table
from proba.bench.match_errors import BOUNDS_PX, compare_with_truth
from proba.bench.measure import DEFAULT, PAPER, regime, solve_and_score
from proba.bench.photo_sets import PhotoSet
from proba.bench.real import told_of_cameras
from proba.io.ground_truth import GroundTruth
from proba.io.matches_h5 import load_matches
from proba.matches import ImageInfo, Matches
from proba.matching import MatchOptions, MatchSummary, match_folder, matchers
from proba.matching.pairs import Pair
from proba.presets import preset
from proba.threads import set_threads

QUICK_SETS = ("strecha_herzjesu_p8", "eth3d_pipes")
FULL_SETS = (
    "middlebury_temple_sparse", "dtu_scan24", "strecha_entry_p10", "middlebury_dino_sparse", "imc_reichstag",
)  # fmt: skip
OWN = ("sift", "xfeat", "auto", "flow", "guided")
"""Matchers without a download, those that are installed of which are compared."""
HEADER = (
    "set", "matcher", "tried", "kept", "false", "matches", "within 1 px", "2 px", "5 px", "grid", "s/image", "s/pair",
    "posed", "RRA@5", "RTA@5", "AUC@5", "paper: RRA@5", "RTA@5", "COLMAP: posed", "AUC@5",
)  # fmt: skip


class StageClock:
    """An observer of matching that takes the processor seconds of its steps, which other programs hardly change."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.images = 1
        self._what, self._begin = "", 0.0

    def begin(self, what: str, total: int, unit: str) -> None:
        self.stop()
        if what == "features":
            self.images = max(self.images, total)
        self._what, self._begin = what, time.process_time()

    def advance(self) -> None: ...

    def done(self, summary: MatchSummary) -> None:
        self.stop()

    def stop(self) -> None:
        if self._what:
            past = time.process_time() - self._begin
            self.seconds[self._what] = self.seconds.get(self._what, 0.0) + past
            self._what = ""


def plan(
    options: RunOptions,
    chosen: Sequence[str] = (),
    max_pairs: int | None = None,
    densify: bool = False,
    solve: bool = True,
) -> list[Row]:
    """A row for each set and matcher, and with `densify` one more with its matches densified."""
    seed = options.seeds_or((0,), (0,))[0]
    return [
        Row(
            settings={
                "set": photos.name,
                "matcher": name + " densified" * dense,
                "max_pairs": max_pairs,
                "solve": solve,
                "seed": seed,
            },
            work=measure_set,
            arguments=(photos, name, max_pairs, dense, seed if solve else None, options),
        )
        for photos in options.photo_sets(QUICK_SETS if options.quick else (*QUICK_SETS, *FULL_SETS))
        for name in chosen or installed()
        for dense in ((False, True) if densify else (False,))
    ]


def installed() -> list[str]:
    """Those of `OWN` that can run."""
    known = matchers()
    return [name for name in OWN if name == "auto" or (name in known and not known[name].missing())]


def measure_set(
    photos: PhotoSet, matcher: str, max_pairs: int | None, densify: bool, seed: int | None, options: RunOptions
) -> dict:
    """Match the photos of one set, compare the matches with its truth, and solve (unless `seed` is None)."""
    set_threads(options.threads)
    truth, images, clock = photos.truth(), photos.images(options.cache), StageClock()
    matching = MatchOptions(matcher=matcher, densify=densify, pair_filter=_sample(max_pairs))
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "matches.h5"
        summary = match_folder(images, file, matching, jobs=options.threads, observer=clock)
        matches = load_matches(file)
    features = clock.seconds.get("features", 0.0)
    others = {} if seed is None else colmap_scores(photos, matches, seed, options)
    solved = {} if seed is None else solve_and_score(matches, truth, regime(DEFAULT, seed), images=images)
    papers = {} if seed is None else paper_scores(matches, truth, seed)
    return {
        "images": summary.photos,
        "pairs_tried": summary.pairs_tried,
        **compare_with_truth(matches, truth),
        "seconds_by_step": {step: round(seconds, 2) for step, seconds in clock.seconds.items()},
        "seconds_per_image": round(features / clock.images, 3),
        "seconds_per_pair": round((sum(clock.seconds.values()) - features) / max(1, summary.pairs_tried), 3),
        **solved,
        **papers,
        **others,
    }


def paper_scores(matches: Matches, truth: GroundTruth, seed: int) -> dict:
    """The paper's preset on the same matches, its schedule in a tenth of the iterations; nothing is refined."""
    settings = shortened(replace(preset(PAPER), seed=seed), quick=True)
    result = solve_and_score(matches, truth, settings, cloud=False)
    return {f"paper_{key}": score(result, key) for key in ("rra@5", "rta@5")}


def colmap_scores(photos: PhotoSet, matches: Matches, seed: int, options: RunOptions) -> dict:
    """COLMAP's incremental mapper on the same matches, made into tracks; a failure is no image posed."""
    from proba.bench.colmap_dense import run_colmap_dense

    told = told_of_cameras(photos.truth())
    try:
        result = run_colmap_dense(photos, seed, "incremental", matches, options.cache, **told)
    except (RuntimeError, ValueError) as error:  # what pycolmap raises
        return {"colmap_error": str(error), "colmap_registered": 0, "colmap_auc@5": 0.0}
    return {
        "colmap_registered": result["registered"],
        "colmap_auc@5": result["auc@5"],
        "colmap_seconds": result["seconds"],
    }


def _sample(max_pairs: int | None):
    """A pair filter that keeps some pairs, always the same ones."""

    def keep(images: Sequence[ImageInfo], pairs: list[Pair]) -> list[Pair]:
        if max_pairs is None or len(pairs) <= max_pairs:
            return pairs
        chosen = np.random.default_rng(0).choice(len(pairs), max_pairs, replace=False)
        return [pairs[k] for k in sorted(chosen)]

    return keep


def tables(rows: list[dict]) -> str:
    """One table, a row for each set and matcher."""
    return table(HEADER, [_cells(row) for row in rows if "pairs_tried" in row])


def _cells(row: dict) -> list[str | int]:
    cells = [row["set"], row["matcher"], row["pairs_tried"], row["pairs_kept"], len(row["false_pairs"]), row["matches"]]
    cells += [f"{100 * row[f'within_{bound}px']:.1f} %" for bound in BOUNDS_PX]
    cells += [f"{100 * row['grid_share']:.1f} %", f"{row['seconds_per_image']:.2f}", f"{row['seconds_per_pair']:.3f}"]
    posed = f"{row['registered']} of {row['images']}" if "registered" in row else "-"
    keys = ("rra@5", "rta@5", "auc@5", "paper_rra@5", "paper_rta@5", "colmap_registered", "colmap_auc@5")
    return [*cells, posed, *(cell(row.get(key)) for key in keys)]


def draw(rows: list[dict], path: Path) -> None:
    """AUC@5 by set and matcher."""
    sets, names = (list(dict.fromkeys(row[key] for row in rows)) for key in ("set", "matcher"))
    found = {(row["set"], row["matcher"]): row.get("auc@5", np.nan) for row in rows}
    series = {name: [found.get((one, name), np.nan) for one in sets] for name in names}
    bars(path, sets, series, ylabel="AUC@5 (%)")


def with_choice(chosen: Sequence[str], max_pairs: int | None, densify: bool, solve: bool) -> Experiment:
    """The experiment with matchers and limits of the user's own."""
    chosen_plan = partial(plan, chosen=chosen, max_pairs=max_pairs, densify=densify, solve=solve)
    return replace(EXPERIMENT, plan=chosen_plan)


EXPERIMENT = Experiment(
    name="matchers",
    title="ProBA with each matcher",
    about="""Pairs tried and kept after verification; how many of the kept ones are false (less than a fifth of the
matches within 5 px of the true epipolar geometry); matches, and their share within 1, 2 and 5 px of their true epipolar
lines; the share of a 64 x 64 grid that they cover; processor seconds for an image and for a pair; and what ProBA makes
of them with default options. paper: `--preset paper` on the same matches, its schedule in 3,000 iterations with steps
five times as large, not refined. COLMAP: its incremental mapper on the same matches, all points of an image within a
cell of 4 px (of 1,024) made one keypoint, which gives it tracks.""",
    quoted=(
        Quoted(
            source="the paper, Table 4: ProBA on ETH3D, mean of 13 scenes",
            header=("matcher", "RRA@5", "RTA@5", "ACC@5cm", "COMP@5cm"),
            rows=(("DKM", 97.9, 91.4, 69.9, 44.0), ("RoMa", 89.9, 86.7, 67.6, 39.6)),
        ),
        Quoted(
            source="the paper, Table 4: ETH3D pipes",
            header=("matcher", "RRA@5", "RTA@5", "ACC@5cm", "COMP@5cm"),
            rows=(("DKM", 100.0, 98.9, 93.3, 39.4), ("RoMa", 100.0, 100.0, 94.0, 32.4)),
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    caption="AUC@5 by set and matcher",
)
