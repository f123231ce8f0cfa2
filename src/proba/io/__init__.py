"""Files: matches, reconstructions, ground truth. Import `proba.io.colmap` directly: pycolmap is slow to load."""

from proba.io.atomic import atomic_file, atomic_path, atomic_write_text
from proba.io.ground_truth import GroundTruth, load_ground_truth, save_ground_truth, true_points
from proba.io.matches_h5 import load_matches, save_matches
from proba.io.ply import read_ply, write_ply

__all__ = [
    "GroundTruth",
    "atomic_file",
    "atomic_path",
    "atomic_write_text",
    "load_ground_truth",
    "load_matches",
    "read_ply",
    "save_ground_truth",
    "save_matches",
    "true_points",
    "write_ply",
]
