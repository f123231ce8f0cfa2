"""Rotations, rigid motions, cameras, pose trees and similarities. Knows nothing of images or files."""

from proba.geometry import camera, epipolar, se3, sim3, so3, tree
from proba.geometry.sim3 import Sim3
from proba.geometry.tree import Tree

__all__ = ["Sim3", "Tree", "camera", "epipolar", "se3", "sim3", "so3", "tree"]
