"""What the first-order solver hands to the refinement: one world of one connected piece of the view graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proba.graph import ViewGraph


@dataclass(kw_only=True)
class Solution:
    """Poses, focals and Gaussians of one hypothesis. Index n counts `graph.images`."""

    graph: ViewGraph
    name: str
    """Which hypothesis, e.g. `fov50`, `fov50-mirror`, `two-view`."""
    loss: float
    """Running mean of the world loss at the end."""
    epipolar_share: float
    """Share of matches within 3 px of the epipolar geometry and in front of both cameras."""
    cam_from_world: np.ndarray  # [N, 4, 4] float64
    camera_of_image: np.ndarray  # [N] int, index of the shared intrinsics
    focal_px: np.ndarray  # [N, 2] float64, fx and fy in original pixels
    log_depth: np.ndarray  # [N, m, m] float32, cell (row, col) centred at ((col + .5) W / m, (row + .5) H / m)
    log_variance: np.ndarray  # [N, m, m] float32
    edge_weight: np.ndarray  # [E] float32
