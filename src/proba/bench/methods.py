"""The methods that stand side by side on photos: ProBA in its regimes, and COLMAP in its variants."""

from __future__ import annotations

from collections.abc import Sequence

from proba.bench.experiment import Row, RunOptions
from proba.bench.measure import cached_matches, regime, solve_and_score
from proba.bench.photo_sets import PhotoSet
from proba.bench.real import run_colmap
from proba.threads import set_threads

COLMAP = "colmap "
PROBA = "proba "
MAPPERS = ("incremental", "global")


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
