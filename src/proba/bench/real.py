"""Accuracy, time and memory on real photos with ground truth, beside COLMAP in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proba.bench.experiment import Row
from proba.bench.measure import cached_matches, pairs_for_colmap, solve_and_score
from proba.bench.photo_sets import PhotoSet, find_sets
from proba.bench.runner import run_list
from proba.evaluation import evaluate
from proba.evaluation.poses import match_names
from proba.io.ground_truth import GroundTruth
from proba.matches import Matches, PairMatches
from proba.pipeline import SolveOptions
from proba.solver import SolverOptions
from proba.threads import set_threads

PERFECT_PX = 2.0
"""`perfect`: only matches this near to their true epipolar line are given to the solver."""
SAME_FOCAL = 1e-3
COLUMNS = ("rra@1", "rra@5", "rta@1", "rta@5", "auc@1", "auc@5")


@dataclass(frozen=True, kw_only=True)
class RealOptions:
    """What is run on every set; the words are those of `proba bench real --help`."""

    seeds: Sequence[int] = (0, 1, 2)
    hypotheses: Sequence[str] = ("portfolio",)
    matcher: str = "auto"
    colmap: bool = True
    perfect: bool = False
    cache: Path
    threads: int


def main(data: Path, json: Path | None, sets: Sequence[str], options: RealOptions) -> list[dict]:
    """Run everything that the file does not hold yet, and print a table."""
    plan = [row for photos in find_sets(data, sets) for row in plan_set(photos, options)]
    return run_list(plan, json, line=_line, markdown=markdown)


def plan_set(photos: PhotoSet, options: RealOptions) -> list[Row]:
    """All runs on one set."""
    suffix = (" perfect" if options.perfect else "") + ("" if options.matcher == "auto" else f" {options.matcher}")
    plan = [
        Row(
            settings={"set": photos.name, "method": f"proba {kind}{suffix}", "seed": seed},
            work=run_proba,
            arguments=(photos, seed, kind, options),
        )
        for kind in options.hypotheses
        for seed in options.seeds
    ]
    return plan + (plan_colmap(photos, options.seeds[0], options.cache, options.threads) if options.colmap else [])


def plan_colmap(photos: PhotoSet, seed: int, cache: Path, threads: int) -> list[Row]:
    """COLMAP's mappers on one set."""
    from proba.bench.colmap import MAPPERS

    return [
        Row(
            settings={"set": photos.name, "method": f"colmap {mapper}", "seed": seed},
            work=run_colmap,
            arguments=(photos, seed, mapper, cache, threads),
        )
        for mapper in MAPPERS
    ]


def run_proba(photos: PhotoSet, seed: int, hypotheses: Any, options: RealOptions) -> dict:
    """One solve."""
    set_threads(options.threads)
    truth = photos.truth()
    matches, seconds = matches_of(photos, truth, options)
    solving = SolveOptions(seed=seed, solver=SolverOptions(hypotheses=hypotheses))
    result = solve_and_score(matches, truth, solving, images=photos.images(options.cache))
    return {**result, "seconds": {**seconds, **result.get("seconds", {})}}


def matches_of(photos: PhotoSet, truth: GroundTruth, options: RealOptions) -> tuple[Matches, dict[str, float]]:
    """Matches of a set from the cache, or only the true ones among them, and the seconds they took."""
    matches, seconds = cached_matches(
        photos.name, photos.images(options.cache), options.matcher, options.cache, options.threads
    )
    return perfect_matches(matches, truth) if options.perfect else matches, seconds


def run_colmap(photos: PhotoSet, seed: int, mapper: Any, cache: Path, threads: int) -> dict:
    """One mapping of a set."""
    return run_colmap_on(photos.name, photos.images(cache), photos.truth(), seed, mapper, cache, threads)


def run_colmap_on(
    name: str, images: Path, truth: GroundTruth, seed: int, mapper: Any, cache: Path, threads: int
) -> dict:
    """One mapping; COLMAP is told whether the photos share a camera and whether they are undistorted."""
    from proba.bench.colmap import cached_database, map_colmap

    pairs = pairs_for_colmap(name, images, cache, threads)
    database, timing = cached_database(name, images, cache, threads, pairs=pairs, **told_of_cameras(truth))
    models, seconds = map_colmap(images, database, mapper, seed=seed)
    return {**evaluate(models, truth), "seconds": {**timing, **seconds}}


def told_of_cameras(truth: GroundTruth) -> dict[str, Any]:
    """What COLMAP is told: whether the photos are undistorted, and whether they share a camera."""
    focal = truth.intrinsics[:, 0] / np.maximum(truth.width, truth.height)  # [N]
    distorted = truth.distortion is not None and bool(np.any(truth.distortion))
    return {
        "camera_model": "SIMPLE_RADIAL" if distorted else "SIMPLE_PINHOLE",
        "shared": bool(np.ptp(focal) < SAME_FOCAL * focal.mean()),
    }


def perfect_matches(matches: Matches, truth: GroundTruth) -> Matches:
    """Only the matches that agree with the truth: what the solver does with them is its own doing."""
    from proba.bench.match_errors import epipolar_errors_px

    known = match_names([info.name for info in matches.images], truth.names)  # index in the truth of each image
    pairs = {}
    for (i, j), pair in matches.pairs.items():
        one, other = known[i], known[j]
        if one is None or other is None:
            continue
        error_px, in_front = epipolar_errors_px(pair, truth, one, other)  # [M]
        good = (error_px < PERFECT_PX) & in_front
        if good.any():
            pairs[i, j] = PairMatches(*(column[good] for column in pair))
    return replace(matches, pairs=pairs)


def _line(run: dict) -> str:
    head = f"{run['set']:<26} {run['method']:<22} seed {run['seed']}"
    if "auc@1" not in run:
        return f"{head}  {run['error']}"
    numbers = " ".join(f"{name} {run[name]:5.1f}" for name in COLUMNS)
    focal = "-" if run["focal_error_pct"] is None else f"{run['focal_error_pct']:.2f}"
    seconds = " ".join(f"{stage} {value:.0f}" for stage, value in run["seconds"].items())
    return f"{head}  {run['registered']:>3}/{run['images']}  {numbers}  focal {focal} %  {seconds}"


def markdown(runs: list[dict]) -> str:
    """One row a set and method; over seeds the worst of each number (the largest, of focal error, time, memory)."""
    lines = [
        "| set | method | registered | RRA@1/5 | RTA@1/5 | AUC@1 | AUC@5 | focal error % | seconds | peak MB |",
        "|---|---|--:|---|---|--:|--:|--:|---|--:|",
    ]
    groups: dict[tuple[str, str], list[dict]] = {}
    for run in runs:
        groups.setdefault((run["set"], run["method"]), []).append(run)
    for (name, method), group in groups.items():
        seeds = f" (worst of {len(group)} seeds)" if len(group) > 1 else ""
        failed = [run for run in group if "auc@1" not in run]
        if failed:
            lines.append(f"| {name} | {method}{seeds} | {failed[0]['error'].splitlines()[0]} | | | | | | | |")
            continue
        low = {key: min(run[key] for run in group) for key in (*COLUMNS, "registered")}
        focals = [run["focal_error_pct"] for run in group if run["focal_error_pct"] is not None]
        slow = max(group, key=lambda run: sum(run["seconds"].values()))["seconds"]
        lines.append(
            f"| {name} | {method}{seeds} | {low['registered']} of {group[0]['images']} "
            f"| {low['rra@1']:.0f}/{low['rra@5']:.0f} | {low['rta@1']:.0f}/{low['rta@5']:.0f} "
            f"| {low['auc@1']:.1f} | {low['auc@5']:.1f} | {max(focals):.2f} "
            if focals
            else f"| {name} | {method}{seeds} | 0 of {group[0]['images']} | 0/0 | 0/0 | 0 | 0 | - "
        )
        lines[-1] += (
            f"| {sum(slow.values()):.0f} ({', '.join(f'{k} {v:.0f}' for k, v in slow.items())}) "
            f"| {max(run['peak_rss_mb'] for run in group):.0f} |"
        )
    return "\n".join(lines) + "\n"
