"""Refinement: robust bundle adjustment of the solver's worlds, rescue, camera models, uncertainties."""

from proba.refine.options import (
    AdjustOptions,
    AgreementOptions,
    CameraModelOptions,
    GrowOptions,
    NoteOptions,
    PixelOptions,
    PlacementOptions,
    RefineOptions,
    RescueOptions,
    Round,
    SeparateOptions,
    ShutterOptions,
    TrackOptions,
    UncertaintyOptions,
    WorldOptions,
)
from proba.refine.refinement import Refinement, RefineResult, refine
from proba.refine.rolling_shutter import RollingShutter, rolling_shutter
from proba.refine.state import WorldChoice, WorldReport
from proba.refine.tracks import Tracks, build_tracks, select_tracks

__all__ = [
    "AdjustOptions",
    "AgreementOptions",
    "CameraModelOptions",
    "GrowOptions",
    "NoteOptions",
    "PixelOptions",
    "PlacementOptions",
    "RefineOptions",
    "RefineResult",
    "Refinement",
    "RescueOptions",
    "RollingShutter",
    "Round",
    "SeparateOptions",
    "ShutterOptions",
    "TrackOptions",
    "Tracks",
    "UncertaintyOptions",
    "WorldChoice",
    "WorldOptions",
    "WorldReport",
    "build_tracks",
    "refine",
    "rolling_shutter",
    "select_tracks",
]
