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
    from proba.api import reconstruct, solve
    from proba.errors import GeometryError, InputError, ProbaError
    from proba.history.recorder import Recorder
    from proba.io.matches_h5 import load_matches, save_matches
    from proba.io.reconstruction_folder import load_reconstruction, save_reconstruction
    from proba.matches import ImageInfo, Matches, PairMatches
    from proba.pipeline import SolveOptions, SolveResult, solve_matches
    from proba.reconstruction import Camera, Points, Reconstruction

_MODULES = {
    "proba.api": ("reconstruct", "solve"),
    "proba.errors": ("GeometryError", "InputError", "ProbaError"),
    "proba.history.recorder": ("Recorder",),
    "proba.io.matches_h5": ("load_matches", "save_matches"),
    "proba.io.reconstruction_folder": ("load_reconstruction", "save_reconstruction"),
    "proba.matches": ("ImageInfo", "Matches", "PairMatches"),
    "proba.pipeline": ("SolveOptions", "SolveResult", "solve_matches"),
    "proba.reconstruction": ("Camera", "Points", "Reconstruction"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Camera",
    "GeometryError",
    "ImageInfo",
    "InputError",
    "Matches",
    "PairMatches",
    "Points",
    "ProbaError",
    "Reconstruction",
    "Recorder",
    "SolveOptions",
    "SolveResult",
    "__version__",
    "load_matches",
    "load_reconstruction",
    "reconstruct",
    "save_matches",
    "save_reconstruction",
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
