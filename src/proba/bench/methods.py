"""The methods that stand side by side on photos: ProBA in its regimes, and COLMAP in its variants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proba.bench.experiment import Row, RunOptions
from proba.bench.measure import DEFAULT, cached_matches, regime, solve_and_score
from proba.bench.photo_sets import PhotoSet, dataset_of
from proba.bench.real import run_colmap
from proba.io.reading import read_json, reading
from proba.threads import set_threads

COLMAP = "colmap "
PROBA = "proba "
MAPPERS = ("incremental", "global", "global_novgcal")
REAL_PROBA = "proba portfolio"
"""What `proba bench real` calls ProBA with default options."""


def method_rows(
    photos: PhotoSet,
    regimes: Sequence[str],
    seeds: Sequence[int],
    options: RunOptions,
    mappers: Sequence[str] = MAPPERS,
) -> list[Row]:
    """ProBA in some regimes and seeds, and COLMAP's mappers from the first seed, on one set."""
    names = [(f"{PROBA}{name}", seed) for name in regimes for seed in seeds]
    names += [(f"{COLMAP}{mapper}", seeds[0]) for mapper in mappers]
    return [
        Row(
            settings={"set": photos.name, "dataset": photos.dataset, "method": method, "seed": seed},
            work=run_method,
            arguments=(photos, method, seed, options),
        )
        for method, seed in names
    ]


def run_method(photos: PhotoSet, method: str, seed: int, options: RunOptions) -> dict:
    """One method on one set, from the photos, held against the truth. `total_s` is all of it, matching too."""
    set_threads(options.threads)
    if method.startswith(COLMAP):
        result = run_colmap(photos, seed, method.removeprefix(COLMAP), options.cache, options.threads)
    else:
        images = photos.images(options.cache)
        matches, seconds = cached_matches(photos.name, images, "auto", options.cache, options.threads)
        solved = solve_and_score(matches, photos.truth(), regime(method.removeprefix(PROBA), seed), images=images)
        result = {**solved, "seconds": {**seconds, **solved.get("seconds", {})}}
    return {**result, "total_s": sum(result["seconds"].values())}


def rows_of_real(file: Path) -> list[dict]:
    """The rows of a JSON of `proba bench real` as rows of `method_rows`: ProBA's default options, and COLMAP."""
    with reading(file, "rows of `proba bench real`", "Give the file that its --json has written."):
        rows = []
        for row in read_json(file):
            if row["method"] == REAL_PROBA:
                row = {**row, "method": PROBA + DEFAULT}
            elif not row["method"].startswith(COLMAP):
                continue
            seconds = {"total_s": sum(row["seconds"].values())} if "seconds" in row else {}
            named = {"dataset": dataset_of(row["set"]), "seed": int(row["seed"]), "taken_from": file.name}
            rows.append({**row, **named, **seconds})
        return rows


def of_one_run(rows: Sequence[dict]) -> bool:
    """Whether the times of rows can be compared: none or all were taken over from another file."""
    return len({row.get("taken_from") for row in rows}) == 1


def with_rows(stored: list[dict], others: Sequence[dict]) -> list[dict]:
    """Stored rows and those of others that are not among them."""
    keys = ("set", "method", "seed")
    known = {tuple(row[key] for key in keys) for row in stored}
    return stored + [row for row in others if tuple(row[key] for key in keys) not in known]
