"""RRA and RTA by dataset, and every set by itself, beside COLMAP in the same run."""

from __future__ import annotations

from pathlib import Path

from proba.bench.charts import bars
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, cell, grouped, mean_score, score, table
from proba.bench.measure import DEFAULT, PAPER, STRICT, UNREFINED
from proba.bench.methods import COLMAP, MAPPERS, PROBA, method_rows, of_one_run

LARGE = ("mip360_bonsai",)
"""Sets that take minutes: one seed of the default regime, and COLMAP, after all others."""
LEFT_OUT = ("tum_fr1_desk", "7scenes")
"""A long video and a set whose truth is of another camera; `--sets` takes them in."""
THRESHOLDS = (1, 5, 10)
HEADER = ("method", "sets", *(f"{name}@{x}" for name in ("RRA", "RTA") for x in THRESHOLDS))


def plan(options: RunOptions) -> list[Row]:
    """Every set with the default regime from several seeds; the others and COLMAP from the first."""
    found = [photos for photos in options.photo_sets() if options.sets or not _is(photos.name, LEFT_OUT)]
    found = [photos for photos in found if options.large or not _is(photos.name, LARGE)]
    seeds = options.seeds_or((0, 1))
    others = (STRICT,) if options.quick else (PAPER, STRICT, STRICT + UNREFINED, DEFAULT + UNREFINED)
    rows: list[Row] = []
    last: list[Row] = []
    for photos in found:
        large = _is(photos.name, LARGE)
        own = method_rows(photos, (DEFAULT,), seeds[:1] if large else seeds, options, MAPPERS[:1] if large else MAPPERS)
        if not large:
            own += method_rows(photos, others, seeds[:1] if options.quick else seeds, options, ())
        (last if large else rows).extend(own)
    return rows + last


def _is(name: str, words: tuple[str, ...]) -> bool:
    return any(word in name for word in words)


def tables(rows: list[dict]) -> str:
    return f"By dataset, mean over sets and seeds.\n\n{by_dataset(rows)}\n{by_set(rows)}"


def by_dataset(rows: list[dict]) -> str:
    """The form of the paper's first table: a block for each dataset."""
    body = []
    for (dataset,), group in grouped(rows, "dataset").items():
        for (method,), some in grouped(group, "method").items():
            numbers = [mean_score(some, f"{name}@{x}") for name in ("rra", "rta") for x in THRESHOLDS]
            body.append([f"{dataset}: {method}", len({row["set"] for row in some}), *numbers])
    return table(HEADER, body)


def by_set(rows: list[dict]) -> str:
    """ProBA's default regime at its worst seed against the better of COLMAP's mappers, number by number."""
    body, seeds = [], 1
    for (name,), group in grouped(rows, "set").items():
        ours = [row for row in group if row["method"] == PROBA + DEFAULT]
        theirs = [row for row in group if row["method"].startswith(COLMAP)]
        if not ours:
            continue
        seeds = max(seeds, len(ours))
        images = next((row["images"] for row in group if "images" in row), None)
        pairs = [
            _pair(min(score(row, key) for row in ours), max((score(row, key) for row in theirs), default=None), digits)
            for key, digits in (("registered", 0), ("auc@1", 1), ("auc@5", 1))
        ]
        timed = [row for row in (*ours, *theirs) if "total_s" in row and of_one_run([*ours, *theirs])]
        times = [row["total_s"] for row in timed if row in theirs]
        slow = max((row["total_s"] for row in timed if row in ours), default=None)
        focals = [row["focal_error_pct"] for row in ours if row.get("focal_error_pct") is not None]
        focal = f"{max(focals):.2f} %" if focals else "-"
        body.append([name, images, *pairs, focal, _pair(slow, min(times, default=None), 0, less=True)])
    head = ("set", "photos", *(f"{what}: ProBA, COLMAP" for what in ("posed", "AUC@1", "AUC@5")), "focal error")
    told = f"worst of {seeds} seeds" if seeds > 1 else "one seed"
    return f"By set. ProBA: default options, {told}. COLMAP: the better of its mappers in each column.\n\n" + table(
        (*head, "seconds: ProBA, COLMAP"), body
    )


def _pair(ours: float | None, theirs: float | None, digits: int, *, less: bool = False) -> str:
    """Two numbers, the better one in bold."""
    texts = [cell(None if value is None else float(value), digits) for value in (ours, theirs)]
    if ours is not None and theirs is not None and texts[0] != texts[1]:
        best = 0 if (ours < theirs) == less else 1
        texts[best] = f"**{texts[best]}**"
    return ", ".join(texts)


def draw(rows: list[dict], path: Path) -> None:
    """AUC@1 by set."""
    sets = list(grouped(rows, "set"))
    methods = [name for (name,) in grouped(rows, "method")]
    found = grouped(rows, "set", "method")
    series = {name: [mean_score(found.get((one, name), []), "auc@1") for (one,) in sets] for name in methods}
    bars(path, [one for (one,) in sets], series, ylabel="AUC@1 (%)")


PAPER_COLUMNS = ("method", *HEADER[2:])


def printed(dataset: str, *rows: tuple[str | float, ...]) -> Quoted:
    """Figures of the paper's first table, of one dataset."""
    return Quoted(source=f"the paper, Table 1, {dataset}", header=PAPER_COLUMNS, rows=rows)


EXPERIMENT = Experiment(
    name="aggregate",
    title="Accuracy by dataset",
    about="""Percentage of image pairs whose relative rotation (RRA) and direction of translation (RTA) are right
within 1, 5 and 10 degrees. All pairs of the ground truth count; a pair with a missing image is a failure. Intrinsics
are never told; COLMAP is told whether photos share a camera, and of a set of more than 100 photos which pairs have
matches (all pairs would take it hours; finding these pairs costs it no time here). AUC@x: area under the recall curve
of the larger of both errors up to x degrees. strict: the paper's start (45 degrees and its mirror world) with our
schedules and refinement; unrefined: what the solver leaves. The paper runs 15 scans of DTU, 7 scenes of Mip-NeRF 360,
13 of ETH3D and 9 of IMC, with dense matches on a GPU; the table says how many sets ours is the mean of.""",
    quoted=(
        printed(
            "DTU",
            ("COLMAP", 61.0, 100.0, 100.0, 51.6, 88.7, 96.2),
            ("COLMAP + DKM", 61.4, 92.3, 92.3, 64.5, 91.6, 93.5),
            ("COLMAP + RoMa", 59.3, 92.3, 92.3, 61.5, 91.4, 93.3),
            ("ProBA", 94.5, 99.4, 100.0, 62.1, 90.0, 97.1),
            ("MASt3R-SfM", 61.2, 99.6, 100.0, 57.3, 98.1, 99.7),
            ("VGGT", 72.4, 100.0, 100.0, 75.8, 100.0, 100.0),
        ),
        printed(
            "Mip-NeRF 360; its COLMAP row repeats that of DTU",
            ("COLMAP", 61.0, 100.0, 100.0, 51.6, 88.7, 96.2),
            ("COLMAP + DKM", 85.4, 99.4, 99.4, 81.2, 98.7, 99.4),
            ("COLMAP + RoMa", 89.7, 99.7, 99.8, 83.3, 99.6, 99.6),
            ("ProBA", 100.0, 100.0, 100.0, 94.7, 99.2, 99.6),
            ("VGGT (4 of 7 scenes)", 88.5, 100.0, 100.0, 82.4, 98.7, 99.6),
        ),
        printed(
            "ETH3D",
            ("COLMAP", 90.6, 91.4, 92.2, 84.1, 91.2, 92.1),
            ("COLMAP + DKM", 39.4, 67.5, 68.8, 30.9, 65.5, 70.9),
            ("COLMAP + RoMa", 44.8, 67.3, 67.8, 36.9, 59.1, 63.3),
            ("ProBA", 94.8, 97.9, 99.1, 83.3, 91.4, 92.0),
            ("MASt3R-SfM", 50.6, 53.7, 60.7, 45.5, 58.9, 61.5),
            ("VGGT", 22.3, 96.2, 98.6, 22.6, 81.1, 92.2),
        ),
        Quoted(
            source="the paper, Table 1, IMC 2021; thresholds 3, 5 and 10 degrees",
            header=("method", "RRA@3", "RRA@5", "RRA@10", "RTA@3", "RTA@5", "RTA@10"),
            rows=(
                ("COLMAP", 55.8, 66.3, 74.4, 51.7, 62.7, 72.9),
                ("COLMAP + DKM", 65.0, 74.8, 81.6, 58.0, 70.0, 81.3),
                ("COLMAP + RoMa", 66.6, 77.1, 84.2, 60.6, 72.9, 83.3),
                ("ProBA", 67.0, 77.3, 88.0, 40.1, 50.0, 62.3),
                ("MASt3R-SfM", 57.5, 75.1, 83.4, 52.8, 69.2, 81.6),
                ("VGGT", 73.0, 82.5, 87.9, 64.1, 76.1, 86.9),
            ),
        ),
        Quoted(
            source="the papers of GLUEMAP and AMB3R, ETH3D, all scenes, intrinsics unknown",
            header=("method", "AUC@1", "AUC@3", "AUC@5", "RRA@5", "RTA@5"),
            rows=(("GLUEMAP", 53.0, 76.9, 83.6, None, None), ("AMB3R", None, None, None, 98.2, 81.9)),
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    caption="AUC@1 by set and method",
)
