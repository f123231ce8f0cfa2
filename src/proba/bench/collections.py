"""Mixed folders by the rules of the Image Matching Challenge 2025, beside COLMAP.

A collection is a folder with `images/`, `labels.csv` and `thresholds.csv` (`proba.io.scene_labels`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proba.bench.experiment import Row
from proba.bench.measure import cached_matches, pairs_for_colmap
from proba.bench.runner import run_list
from proba.errors import InputError, ProbaError
from proba.evaluation import score_collection
from proba.io.scene_labels import LABELS_FILE, load_scenes
from proba.pipeline import SolveOptions, solve_matches
from proba.reconstruction import Reconstruction
from proba.report import judge
from proba.threads import set_threads


def main(
    data: Path,
    json: Path | None,
    sets: Sequence[str],
    *,
    seeds: Sequence[int],
    colmap: bool,
    cache: Path,
    threads: int,
) -> list[dict]:
    """Run everything that the file does not hold yet, and print a table."""
    plan = []
    for folder in find_collections(data, sets):
        work: list[tuple[str, int, Callable[..., dict], tuple]] = [
            ("proba", seed, run_proba, (folder, seed, cache, threads)) for seed in seeds
        ]
        if colmap:
            work += [
                (f"colmap {mapper}", seeds[0], run_colmap, (folder, seeds[0], mapper, cache, threads))
                for mapper in ("incremental", "global")
            ]
        plan += [
            Row(settings={"dataset": folder.name, "method": method, "seed": seed}, work=function, arguments=arguments)
            for method, seed, function, arguments in work
        ]
    return run_list(plan, json, line=_line, markdown=markdown)


def find_collections(data: Path, names: Sequence[str]) -> list[Path]:
    """The collections below a folder, or the folder itself if it is one; only those whose name holds one of `names`."""
    folders = [data] if (data / LABELS_FILE).is_file() else sorted(p.parent for p in data.glob(f"*/{LABELS_FILE}"))
    chosen = [folder for folder in folders if not names or any(name in folder.name for name in names)]
    if not chosen:
        wanted = ", ".join(names) or "anything"
        raise InputError(f"no folder with images/ and {LABELS_FILE} in {data} is named like {wanted}; check --data")
    return chosen


def run_proba(folder: Path, seed: int, cache: Path, threads: int) -> dict:
    """One solve with default options, and what its report would say."""
    set_threads(threads)
    matches, seconds = cached_matches(folder.name, folder / "images", "auto", cache, threads)
    try:
        result = solve_matches(matches, SolveOptions(seed=seed), images=folder / "images")
    except ProbaError as error:
        return {**_scores(folder, [], seconds), "error": str(error)}
    verdict = judge(matches, result)
    return {**_scores(folder, result.reconstructions, {**seconds, **result.seconds}), "verdict": verdict.level}


def run_colmap(folder: Path, seed: int, mapper: Any, cache: Path, threads: int) -> dict:
    """One mapping with COLMAP's defaults: it groups the photos into cameras itself."""
    from proba.bench.colmap import cached_database, map_colmap

    images = folder / "images"
    pairs = pairs_for_colmap(folder.name, images, cache, threads)
    database, timing = cached_database(
        folder.name, images, cache, threads, camera_model="SIMPLE_RADIAL", shared=None, pairs=pairs
    )
    models, seconds = map_colmap(images, database, mapper, seed=seed)
    return _scores(folder, models, {**timing, **seconds})


def _scores(folder: Path, reconstructions: Sequence[Reconstruction], seconds: dict[str, float]) -> dict:
    found = score_collection(reconstructions, load_scenes(folder))
    return {**asdict(found), "seconds": sum(seconds.values()), "stages": seconds}


def _line(run: dict) -> str:
    head = f"{run['dataset']:<36} {run['method']:<20} seed {run['seed']}"
    if "score" not in run:
        return f"{head}  {run['error']}"
    numbers = " ".join(f"{name} {run[name]:5.1f}" for name in ("score", "maa", "clusterness"))
    scenes = ", ".join(f"{row['scene']} {row['found']}/{row['photos']} of {row['cluster']}" for row in run["scenes"])
    return f"{head}  {numbers}  {run['seconds']:.0f} s  pairs right {run['pairs_right']:.1f} ({scenes})"


def markdown(runs: list[dict]) -> str:
    """One row a collection and method: the seed with the worst score; of time the most."""
    lines = [
        "| collection | method | score | mAA | clusterness | pairs right % | verdict | seconds |",
        "|---|---|--:|--:|--:|--:|---|--:|",
    ]
    groups: dict[tuple[str, str], list[dict]] = {}
    for run in runs:
        groups.setdefault((run["dataset"], run["method"]), []).append(run)
    for (name, method), group in groups.items():
        seeds = f" (worst of {len(group)} seeds)" if len(group) > 1 else ""
        failed = [run for run in group if "score" not in run]
        if failed:
            lines.append(f"| {name} | {method}{seeds} | {failed[0]['error'].splitlines()[0]} | | | | | |")
            continue
        worst = min(group, key=lambda run: run["score"])
        numbers = " | ".join(f"{worst[key]:.1f}" for key in ("score", "maa", "clusterness", "pairs_right"))
        slow = max(run["seconds"] for run in group)
        lines.append(f"| {name} | {method}{seeds} | {numbers} | {worst.get('verdict', '-')} | {slow:.0f} |")
    return "\n".join(lines) + "\n"
