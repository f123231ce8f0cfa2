"""The computations that experiments share: matches of a set, a solve held against the truth, and the regimes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from proba.errors import InputError, ProbaError
from proba.evaluation import evaluate
from proba.io.atomic import atomic_write_text
from proba.io.ground_truth import GroundTruth
from proba.io.matches_h5 import load_matches
from proba.matches import Matches
from proba.matching import MatchOptions, match_folder
from proba.pipeline import SolveOptions, solve_matches
from proba.solver import SolverOptions

STRICT, DEFAULT = "strict", "default"


def regime(name: str, seed: int) -> SolveOptions:
    """Settings by the name that tables use.

    strict: the paper's start, 45 degrees and its mirror world, with our schedules and refinement. default: what users
    get.
    """
    if name not in REGIMES:
        raise InputError(f"there is no regime {name}; there are {', '.join(REGIMES)}")
    return replace(REGIMES[name], seed=seed)


REGIMES: dict[str, SolveOptions] = {
    STRICT: SolveOptions(solver=SolverOptions(hypotheses="cold")),
    DEFAULT: SolveOptions(),
}


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
    return load_matches(file), json.loads(timing.read_text()) if timing.exists() else {}
