"""The computations that experiments share: matches of a set, a solve held against the truth, and the regimes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proba.bench.experiment import RunOptions
from proba.bench.photo_sets import PhotoSet
from proba.errors import ProbaError
from proba.evaluation import evaluate
from proba.io.atomic import atomic_write_text
from proba.io.ground_truth import GroundTruth
from proba.io.images import count_photos
from proba.io.matches_h5 import load_matches
from proba.io.reading import read_json, reading
from proba.matches import Matches
from proba.matching import MatchOptions, match_folder
from proba.pipeline import SolveOptions, solve_matches
from proba.presets import preset
from proba.synthetic import make_scene, scene_matches
from proba.threads import set_threads

STRICT, DEFAULT, PAPER = "strict", "default", "paper"
"""Presets that most experiments compare."""
UNREFINED = " unrefined"
ALL_PAIRS = 100
"""Sets of more photos would take COLMAP hours, if it matched all pairs on two cores."""
SMALL = {"n_images": 12, "grid": 32}
"""Synthetic scenes of the experiments with many rows."""


def regime(name: str, seed: int) -> SolveOptions:
    """Settings by the name that tables use: that of a preset (`paper`, `strict`, `default`, a step between them).

    With "unrefined" behind it: what the solver leaves, before the refinement.
    """
    base = name.removesuffix(UNREFINED)
    options = replace(preset(base), seed=seed)
    return replace(options, refine=replace(options.refine, enabled=False)) if base != name else options


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where matches with known truth come from: a synthetic scene, or photos."""

    name: str
    photos: PhotoSet | None = None
    """None: the synthetic scene of that name."""

    def load(self, seed: int, options: RunOptions) -> tuple[Matches, GroundTruth]:
        """Matches and truth; of a synthetic scene the seed decides everything."""
        set_threads(options.threads)
        if self.photos is None:
            scene = make_scene(self.name, n_images=SMALL["n_images"], seed=seed)
            return scene_matches(scene, grid=SMALL["grid"], seed=seed), scene.ground_truth(cloud=False)
        images = self.photos.images(options.cache)
        return cached_matches(self.name, images, "auto", options.cache, options.threads)[0], self.photos.truth()


def sources(options: RunOptions, scenes: Sequence[str], sets: Sequence[str]) -> list[Source]:
    """Small synthetic scenes, and those of the photo sets that are there."""
    found = options.photo_sets(sets)
    return [Source(name=name) for name in scenes] + [Source(name=photos.name, photos=photos) for photos in found]


def solve_and_score(
    matches: Matches, truth: GroundTruth, options: SolveOptions, *, images: Path | None = None, cloud: bool = True
) -> dict:
    """One solve against its truth: all of `evaluate`, seconds by stage, and what the solver says of itself.

    What cannot be reconstructed is a result with an `error` and no image registered.
    """
    try:
        result = solve_matches(matches, options, images=images)
    except ProbaError as error:
        return {"error": str(error), "images": len(truth.names), "registered": 0}
    best = result.pieces[0]
    camera = best.reconstruction.cameras[0]
    return {
        **evaluate(result.reconstructions, truth, cloud=cloud),
        "seconds": result.seconds,
        "hypothesis": next(h.name for h in best.hypotheses if h.chosen),
        "surviving_share": best.surviving_share,
        "camera_model": camera.model,
        "focal_std_pct": float(100 * camera.focal_std_px / camera.focal_px[0]),
        "warnings": [str(note) for note in best.reconstruction.notes],
    }


def cached_matches(
    name: str, images: Path, matcher: str, cache: Path, threads: int
) -> tuple[Matches, dict[str, float]]:
    """Matches of a folder of photos, made once for each matcher and kept in the cache, and the seconds that took."""
    file, timing = (cache / f"{name}.{matcher}.{kind}" for kind in ("h5", "json"))
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        match_folder(images, file, MatchOptions(matcher=matcher), jobs=threads)
        atomic_write_text(timing, json.dumps({"match": time.perf_counter() - begin}))
    matches = load_matches(file)
    if not timing.exists():
        return matches, {}
    with reading(timing, "a file of times", f"Remove it and {file}."):
        return matches, read_json(timing)


def pairs_for_colmap(name: str, images: Path, cache: Path, threads: int) -> list[tuple[str, str]] | None:
    """Pairs that COLMAP shall match: those with matches in ProBA's result; None for all pairs of a small set."""
    if count_photos(images) <= ALL_PAIRS:
        return None
    matches, _ = cached_matches(name, images, "auto", cache, threads)
    return [(matches.images[i].name, matches.images[j].name) for i, j in matches.pairs]
