"""Ground truth of an image set: cameras, and geometry where there is any."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(kw_only=True)
class GroundTruth:
    """True cameras in OpenCV axes; intrinsics in original pixels with the first pixel centre at (0.5, 0.5)."""

    names: list[str]
    cam_from_world: np.ndarray  # [N, 4, 4] float64
    intrinsics: np.ndarray  # [N, 4] float64: fx, fy, cx, cy
    width: np.ndarray  # [N] int
    height: np.ndarray  # [N] int
    metres_per_unit: float | None = None
    """Length of one world unit; None where the world has no known scale."""
    points: np.ndarray | None = None  # [P, 3] float64, world units
    distortion: np.ndarray | None = None  # [N, 5] float64, OpenCV's k1 k2 p1 p2 k3
    depth_paths: list[Path | None] | None = None
    """One 16-bit depth image for each image, None where it has none."""
    depth_units_per_count: float = 1.0
    """World units of one count in the depth images."""

    def __post_init__(self) -> None:
        n = len(self.names)
        assert self.cam_from_world.shape == (n, 4, 4), self.cam_from_world.shape
        assert self.intrinsics.shape == (n, 4), self.intrinsics.shape

    @property
    def centres(self) -> np.ndarray:  # [N, 3]
        """Camera centres in the world."""
        rotation, translation = self.cam_from_world[:, :3, :3], self.cam_from_world[:, :3, 3]
        return -np.einsum("nji,nj->ni", rotation, translation)
