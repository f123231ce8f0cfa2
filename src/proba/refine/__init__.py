"""Refinement: robust bundle adjustment of the solver's worlds, rescue, camera models, uncertainties."""

from proba.refine.options import RefineOptions
from proba.refine.pipeline import RefineResult, WorldReport, refine
from proba.refine.tracks import Tracks, build_tracks, select_tracks

__all__ = [
    "RefineOptions",
    "RefineResult",
    "Tracks",
    "WorldReport",
    "build_tracks",
    "refine",
    "select_tracks",
]
