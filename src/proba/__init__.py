"""ProBA: probabilistic bundle adjustment. Pairwise matches in; poses, focals and Gaussians out."""

from proba._version import __version__
from proba.errors import GeometryError, InputError, ProbaError
from proba.io.matches_h5 import load_matches, save_matches
from proba.io.reconstruction_folder import load_reconstruction, save_reconstruction
from proba.matches import ImageInfo, Matches, PairMatches
from proba.pipeline import SolveOptions, SolveResult, solve_matches
from proba.reconstruction import Camera, Points, Reconstruction

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
    "SolveOptions",
    "SolveResult",
    "__version__",
    "load_matches",
    "load_reconstruction",
    "save_matches",
    "save_reconstruction",
    "solve_matches",
]
