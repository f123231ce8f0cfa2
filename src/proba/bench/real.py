"""Accuracy, time and memory on real photos with ground truth, beside COLMAP in the same run.

A set is a folder with `images/` and `gt.json` (see docs/conventions.md). Every run has a process of its own, so that
peak memory is its own and a crash of one does not take the others along.
"""

from __future__ import annotations

import json as json_module
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proba.errors import InputError, ProbaError
from proba.evaluation import evaluate
from proba.evaluation.poses import match_names
from proba.io.atomic import atomic_write_text
from proba.io.ground_truth import GroundTruth, load_ground_truth
from proba.matches import Matches, PairMatches
from proba.memory import peak_rss_mb
from proba.pipeline import SolveOptions, solve_matches
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
    runs: list[dict] = json_module.loads(json.read_text()) if json and json.exists() else []
    done = {(run["set"], run["method"], run["seed"]) for run in runs}
    for folder in find_sets(data, sets):
        for method, seed, work in _plan(folder, options):
            if (folder.name, method, seed) in done:
                continue
            runs.append({"set": folder.name, "method": method, "seed": seed, **apart(work)})
            print(_line(runs[-1]), flush=True)
            if json:
                atomic_write_text(json, json_module.dumps(runs, indent=1))
    table = markdown(runs)
    print("\n" + table)
    if json:
        atomic_write_text(json.with_suffix(".md"), table)
    return runs


def find_sets(data: Path, names: Sequence[str]) -> list[Path]:
    """The sets below a folder, or the folder itself if it is one; only those whose name holds one of `names`."""
    if not data.is_dir():
        raise InputError(f"there is no folder {data}; give --data a folder of sets, each with images/ and gt.json")
    folders = [data] if (data / "gt.json").is_file() else sorted(p.parent for p in data.glob("*/gt.json"))
    chosen = [f for f in folders if not names or any(name in f.name for name in names)]
    if not chosen:
        raise InputError(f"no set with images/ and gt.json in {data} is named like {', '.join(names) or 'anything'}")
    return chosen


def _plan(folder: Path, options: RealOptions) -> list[tuple[str, int, tuple[Callable[..., dict], tuple]]]:
    """Method, seed and work of every run on one set."""
    suffix = (" perfect" if options.perfect else "") + ("" if options.matcher == "auto" else f" {options.matcher}")
    plan: list[tuple[str, int, tuple[Callable[..., dict], tuple]]] = [
        (f"proba {kind}{suffix}", seed, (run_proba, (folder, seed, kind, options)))
        for kind in options.hypotheses
        for seed in options.seeds
    ]
    if options.colmap:
        from proba.bench.colmap import MAPPERS

        seed = options.seeds[0]
        plan += [(f"colmap {mapper}", seed, (run_colmap, (folder, seed, mapper, options))) for mapper in MAPPERS]
    return plan


def apart(work: tuple[Callable[..., dict], tuple]) -> dict:
    """Run in a fresh process; what goes wrong becomes part of the result."""
    function, arguments = work
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}


def run_proba(folder: Path, seed: int, hypotheses: Any, options: RealOptions) -> dict:
    """One solve."""
    set_threads(options.threads)
    truth = load_ground_truth(folder / "gt.json")
    matches, seconds = matches_of(folder, truth, options)
    try:
        solving = SolveOptions(seed=seed, solver=SolverOptions(hypotheses=hypotheses))
        result = solve_matches(matches, solving, images=folder / "images")
    except ProbaError as error:
        return {"error": str(error), "images": len(truth.names), "registered": 0}
    best = result.pieces[0]
    camera = best.reconstruction.cameras[0]
    return {
        **evaluate(result.reconstructions, truth),
        "seconds": {**seconds, **result.seconds},
        "peak_rss_mb": peak_rss_mb(),
        "hypothesis": next(h.name for h in best.hypotheses if h.chosen),
        "surviving_share": best.surviving_share,
        "camera_model": camera.model,
        "focal_std_pct": float(100 * camera.focal_std_px / camera.focal_px[0]),
        "warnings": [str(note) for note in best.reconstruction.notes],
    }


def matches_of(folder: Path, truth: GroundTruth, options: RealOptions) -> tuple[Matches, dict[str, float]]:
    """Matches of a set, made once for each matcher and kept in the cache, and the seconds that took."""
    matches, seconds = cached_matches(folder, options.matcher, options.cache, options.threads)
    return perfect_matches(matches, truth) if options.perfect else matches, seconds


def cached_matches(folder: Path, matcher: str, cache: Path, threads: int) -> tuple[Matches, dict[str, float]]:
    """The same for any folder with `images/`."""
    from proba.io.matches_h5 import load_matches
    from proba.matching import MatchOptions, match_folder

    file, timing = (cache / f"{folder.name}.{matcher}.{kind}" for kind in ("h5", "json"))
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        match_folder(folder / "images", file, MatchOptions(matcher=matcher), jobs=threads)
        atomic_write_text(timing, json_module.dumps({"match": time.perf_counter() - begin}))
    return load_matches(file), json_module.loads(timing.read_text()) if timing.exists() else {}


def run_colmap(folder: Path, seed: int, mapper: Any, options: RealOptions) -> dict:
    """One mapping; COLMAP is told whether the photos share a camera and whether they are undistorted."""
    from proba.bench.colmap import cached_database, map_colmap

    truth = load_ground_truth(folder / "gt.json")
    focal = truth.intrinsics[:, 0] / np.maximum(truth.width, truth.height)
    distorted = truth.distortion is not None and bool(np.any(truth.distortion))
    database, timing = cached_database(
        folder,
        options.cache,
        options.threads,
        camera_model="SIMPLE_RADIAL" if distorted else "SIMPLE_PINHOLE",
        shared=bool(np.ptp(focal) < SAME_FOCAL * focal.mean()),
    )
    models, seconds = map_colmap(folder / "images", database, mapper, seed=seed)
    return {
        **evaluate(models, truth),
        "seconds": {**timing, **seconds},
        "peak_rss_mb": peak_rss_mb(),
    }


def perfect_matches(matches: Matches, truth: GroundTruth) -> Matches:
    """Only the matches that agree with the truth: what the solver does with them is its own doing."""
    from proba.bench.matchers import epipolar_errors_px

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
