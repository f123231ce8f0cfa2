"""ProBA: probabilistic bundle adjustment. Pairwise matches in; poses, focals and Gaussians out.

    result = proba.reconstruct("photos", out="result")
    result.best.cam_from_world

Names are loaded when they are first used, because torch and the kernels take seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from proba._version import __version__

if TYPE_CHECKING:
    from proba.api import dense_folder, localize, match, reconstruct, refine_folder, solve
    from proba.cameras import CameraOptions
    from proba.combine import add_photos, merge_models
    from proba.dense.dense_depth import DenseOptions, DenseResult
    from proba.errors import GeometryError, InputError, ProbaError
    from proba.export import ExportOptions
    from proba.graph import ClusterOptions, GraphOptions, ViewGraph, build_view_graphs
    from proba.history.recorder import Recorder
    from proba.io.matches_h5 import load_matches, save_matches
    from proba.io.reconstruction_folder import load_reconstruction, save_reconstruction
    from proba.io.view_graph_json import save_view_graphs
    from proba.known_poses import KnownPoseOptions
    from proba.localize import Localized, LocalizeOptions
    from proba.matches import ImageInfo, Matches, PairMatches
    from proba.matching import MatchOptions, MatchSummary, PairOptions, VerifyOptions
    from proba.objective import ObjectiveOptions
    from proba.pipeline import SolveResult, Verdict, solve_matches
    from proba.presets import preset
    from proba.reconstruction import Camera, Points, Reconstruction
    from proba.refine import RefineOptions
    from proba.solve_options import SolveOptions
    from proba.solver import SolverOptions, StepSizes

_MODULES = {
    "proba.api": ("dense_folder", "localize", "match", "reconstruct", "refine_folder", "solve"),
    "proba.cameras": ("CameraOptions",),
    "proba.combine": ("add_photos", "merge_models"),
    "proba.dense.dense_depth": ("DenseOptions", "DenseResult"),
    "proba.errors": ("GeometryError", "InputError", "ProbaError"),
    "proba.export": ("ExportOptions",),
    "proba.graph": ("ClusterOptions", "GraphOptions", "ViewGraph", "build_view_graphs"),
    "proba.history.recorder": ("Recorder",),
    "proba.io.matches_h5": ("load_matches", "save_matches"),
    "proba.io.reconstruction_folder": ("load_reconstruction", "save_reconstruction"),
    "proba.io.view_graph_json": ("save_view_graphs",),
    "proba.known_poses": ("KnownPoseOptions",),
    "proba.localize": ("LocalizeOptions", "Localized"),
    "proba.matches": ("ImageInfo", "Matches", "PairMatches"),
    "proba.matching": ("MatchOptions", "MatchSummary", "PairOptions", "VerifyOptions"),
    "proba.objective": ("ObjectiveOptions",),
    "proba.pipeline": ("SolveResult", "Verdict", "solve_matches"),
    "proba.presets": ("preset",),
    "proba.reconstruction": ("Camera", "Points", "Reconstruction"),
    "proba.refine": ("RefineOptions",),
    "proba.solve_options": ("SolveOptions",),
    "proba.solver": ("SolverOptions", "StepSizes"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Camera",
    "CameraOptions",
    "ClusterOptions",
    "DenseOptions",
    "DenseResult",
    "ExportOptions",
    "GeometryError",
    "GraphOptions",
    "ImageInfo",
    "InputError",
    "KnownPoseOptions",
    "LocalizeOptions",
    "Localized",
    "MatchOptions",
    "MatchSummary",
    "Matches",
    "ObjectiveOptions",
    "PairMatches",
    "PairOptions",
    "Points",
    "ProbaError",
    "Reconstruction",
    "Recorder",
    "RefineOptions",
    "SolveOptions",
    "SolveResult",
    "SolverOptions",
    "StepSizes",
    "Verdict",
    "VerifyOptions",
    "ViewGraph",
    "__version__",
    "add_photos",
    "build_view_graphs",
    "dense_folder",
    "load_matches",
    "load_reconstruction",
    "localize",
    "match",
    "merge_models",
    "preset",
    "reconstruct",
    "refine_folder",
    "save_matches",
    "save_reconstruction",
    "save_view_graphs",
    "solve",
    "solve_matches",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'proba' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
