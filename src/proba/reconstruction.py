"""The result: cameras, poses, points, and how sure we are of each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(kw_only=True)
class Camera:
    """Intrinsics in COLMAP's conventions: model name and parameter order, original pixels."""

    model: str
    """SIMPLE_PINHOLE (f, cx, cy), PINHOLE (fx, fy, cx, cy), SIMPLE_RADIAL (f, cx, cy, k), RADIAL (..., k1, k2)."""
    width: int
    height: int
    params: np.ndarray  # [P] float64
    focal_std_px: float = float("nan")
    """Standard deviation of the focal length."""

    @property
    def focal_px(self) -> np.ndarray:  # [2] fx, fy
        return self.params[[0, 1]] if self.model == "PINHOLE" else self.params[[0, 0]]

    @property
    def principal_point_px(self) -> np.ndarray:  # [2] cx, cy
        return self.params[2:4] if self.model == "PINHOLE" else self.params[1:3]


@dataclass(kw_only=True)
class Points:
    """A point cloud with its observations, flat arrays; observation k sees point `obs_point[k]`."""

    xyz: np.ndarray  # [P, 3] float64
    rgb: np.ndarray  # [P, 3] uint8
    sigma: np.ndarray  # [P] float64, standard deviation of the position in scene units
    error_px: np.ndarray  # [P] float64, mean reprojection error
    obs_point: np.ndarray  # [K] int
    obs_image: np.ndarray  # [K] int, index into Reconstruction.image_names
    obs_xy: np.ndarray  # [K, 2] float32, original pixels, corner0.5


@dataclass(kw_only=True)
class Reconstruction:
    """One connected reconstruction."""

    image_names: list[str]
    cameras: list[Camera]
    camera_of_image: np.ndarray  # [N] int
    cam_from_world: np.ndarray  # [N, 4, 4] float64, OpenCV axes
    pose_std: (
        np.ndarray
    )  # [N, 6] float64: rotation (rad, about the camera's axes), then centre (scene units, world axes)
    points: Points
    log_depth: np.ndarray | None = None  # [N, m, m] float32, see proba.solution.Solution
    log_variance: np.ndarray | None = None  # [N, m, m] float32
    edges: list[dict] = field(default_factory=list)
    """One a pair: names `i`, `j`, `matches`, `weight`."""
    notes: list[str] = field(default_factory=list)
    """Warnings with advice, for the report."""
