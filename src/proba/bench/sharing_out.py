"""Two workers against one: the same bits, and how much sooner they are done."""

from __future__ import annotations

import numpy as np

from proba.clusters import Dividing
from proba.graph import ClusterOptions
from proba.matches import Matches
from proba.pipeline import SolveResult, solve_matches
from proba.solve_options import SolveOptions
from proba.synthetic import CityOptions, city_matches, make_city
from proba.tasks import WorkerOptions, open_engine
from proba.threads import set_threads


def compare_workers(n_images: int, *, threads: int, seed: int, options: SolveOptions | None = None) -> dict:
    """A city in four clusters, solved by one local worker and by two; `threads` of each.

    Only the clusters are timed, not the start of the workers, nor what follows in this process.
    """
    set_threads(threads)
    matches = city_matches(make_city(CityOptions(images=n_images), seed=seed))
    options = options or SolveOptions(seed=seed, clusters=ClusterOptions(count=4))
    found = [_solved(matches, options, workers, threads) for workers in (1, 2)]
    (one, one_s), (two, two_s) = found
    same = all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(one.reconstructions, two.reconstructions, strict=True)
        for name in ("cam_from_world", "pose_std")
    )
    return {
        "ranks_agree": same,
        "speedup_2": round(one_s / two_s, 2),
        "workers": {"images": n_images, "one_s": round(one_s, 1), "two_s": round(two_s, 1)},
    }


def _solved(matches: Matches, options: SolveOptions, workers: int, threads: int) -> tuple[SolveResult, float]:
    """The result, and the seconds that its clusters took."""
    with open_engine(WorkerOptions(workers=workers, threads=threads)) as engine:
        list(engine.each(_nothing, [b""] * workers))  # each loads the libraries
        result = solve_matches(matches, options, divider=Dividing(engine=engine))
    return result, result.seconds["solve"]


def _nothing(payload: bytes) -> bytes:
    import proba.pipeline  # noqa: F401 - what takes seconds to load

    return payload
