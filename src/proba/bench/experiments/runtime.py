"""Seconds from photos to result, against the number of photos and of edges, beside COLMAP."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from proba.bench.charts import lines
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, table
from proba.bench.measure import DEFAULT, regime, solve_and_score
from proba.bench.methods import COLMAP, MAPPERS, PROBA
from proba.bench.photo_sets import PhotoSet, link_photo
from proba.graph import build_view_graphs
from proba.io.ground_truth import GroundTruth
from proba.io.matches_h5 import load_matches
from proba.matching import MatchOptions, match_folder
from proba.threads import set_threads

QUICK_SETS, SETS = ("dtu_scan24",), ("dtu_scan24", "mip360_bonsai")
QUICK_SIZES, SIZES = (5, 10, 20), (10, 20, 49, 100, 200, 291)


def plan(options: RunOptions) -> list[Row]:
    """Growing parts of a set, each with ProBA and COLMAP one after the other."""
    mappers = MAPPERS[:1] if options.quick else MAPPERS[:2]
    methods = (PROBA + DEFAULT, *(COLMAP + mapper for mapper in mappers))
    rows = []
    for photos in options.photo_sets(QUICK_SETS if options.quick else SETS):
        total = len(photos.truth().names)
        for size in sorted({min(size, total) for size in (QUICK_SIZES if options.quick else SIZES)}):
            rows += [
                Row(
                    settings={"set": photos.name, "photos": size, "method": method, "seed": seed},
                    work=measure,
                    arguments=(photos, size, method, seed, options),
                )
                for method in methods
                for seed in options.seeds_or((0,), (0,))
            ]
    return rows


def measure(photos: PhotoSet, size: int, method: str, seed: int, options: RunOptions) -> dict:
    """One method on the photos of a part of a set, nothing taken from the cache."""
    set_threads(options.threads)
    truth = photos.truth()
    chosen = sorted(truth.names)[:: max(1, len(truth.names) // size)][:size]
    folder = photos.images(options.cache)
    with tempfile.TemporaryDirectory() as name:
        part = Path(name) / "photos"
        for photo in chosen:
            link_photo(folder / photo, part / photo)
        known = part_of(truth, chosen)
        if method.startswith(COLMAP):
            result = _colmap(part, Path(name), known, method.removeprefix(COLMAP), seed, options.threads)
        else:
            result = _proba(part, Path(name), known, method.removeprefix(PROBA), seed, options.threads)
    return {**result, "total_s": sum(result["seconds"].values())}


def part_of(truth: GroundTruth, names: list[str]) -> GroundTruth:
    """The truth of some of the images, without their surface."""
    index = [truth.names.index(name) for name in names]
    return GroundTruth(
        names=names,
        cam_from_world=truth.cam_from_world[index],
        intrinsics=truth.intrinsics[index],
        width=truth.width[index],
        height=truth.height[index],
        distortion=None if truth.distortion is None else truth.distortion[index],
        fisheye=None if truth.fisheye is None else truth.fisheye[index],
    )


def _proba(part: Path, scratch: Path, truth: GroundTruth, name: str, seed: int, threads: int) -> dict:
    begin = time.perf_counter()
    match_folder(part, scratch / "matches.h5", MatchOptions(), jobs=threads)
    matched = time.perf_counter() - begin
    matches, settings = load_matches(scratch / "matches.h5"), regime(name, seed)
    graphs, _ = build_view_graphs(matches, settings.graph)
    result = solve_and_score(matches, truth, settings, images=part, cloud=False)
    edges = sum(len(graph.edges) for graph in graphs)
    return {**result, "edges": edges, "seconds": {"match": matched, **result.get("seconds", {})}}


def _colmap(part: Path, scratch: Path, truth: GroundTruth, mapper: str, seed: int, threads: int) -> dict:
    from proba.bench.real import run_colmap_on

    return run_colmap_on("part", part, truth, seed, mapper, scratch, threads)


def tables(rows: list[dict]) -> str:
    body = []
    for (name, photos), group in grouped(rows, "set", "photos").items():
        ours = next((row for row in group if row["method"] == PROBA + DEFAULT and "total_s" in row), None)
        for row in group:
            if "total_s" not in row:
                continue
            stages = ", ".join(f"{stage} {value:.0f}" for stage, value in row["seconds"].items())
            ratio = row["total_s"] / ours["total_s"] if ours else None
            shown = f"{row['registered']} of {row['images']}"
            body.append([f"{name}, {photos}: {row['method']}", row.get("edges"), shown, row["total_s"], ratio, stages])
    return table(("photos and method", "edges", "posed", "seconds", "times ProBA's", "by stage"), body)


def draw(rows: list[dict], path: Path) -> None:
    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for (name, method), group in grouped(rows, "set", "method").items():
        timed = [row for row in group if "total_s" in row]
        curve = ([row["photos"] for row in timed], [row["total_s"] for row in timed])
        panels.setdefault(f"{name}: seconds", {})[method] = curve
    lines(path, panels, xlabel="photos", ylabel="seconds", log_x=True, log_y=True)


EXPERIMENT = Experiment(
    name="runtime",
    title="Time",
    about="""Seconds from photos to result, everything included, for growing parts of a set; both methods ran one after
the other on the same machine. Edges: pairs of the view graph, which is what the solver's time follows.""",
    quoted=(
        Quoted(
            source="the paper, Figure 4 right",
            claim="ProBA takes 400 to 1,200 seconds on the scenes of ETH3D (14 to 76 photos) on an NVIDIA L40S, COLMAP "
            "with dense matches up to thousands of seconds (facade).",
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    caption="Seconds against photos",
)
