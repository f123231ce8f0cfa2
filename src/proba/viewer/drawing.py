"""Cameras, edges and Gaussians as shapes, the same for every front end."""

from __future__ import annotations

import numpy as np

CORNERS = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
LARGEST_SHARE = 0.07
"""A Gaussian is drawn with one standard deviation as radius, but not larger than this share of the scene's radius."""

MAGNIFIED = 10
"""Reprojection errors are drawn this much larger than they are."""
TRUTH_SIZE = 1.15
"""True cameras are drawn a little larger, so that both are seen where they agree."""


def frustums(world_from_cam: np.ndarray, tan: np.ndarray, aspect: np.ndarray, depth: float) -> np.ndarray:
    """Tip and four corners of each camera, [N, 5, 3]; its longest side spans twice `tan` [N]."""
    half = tan[:, None] * np.column_stack([np.minimum(1, aspect), np.minimum(1, 1 / aspect)])  # [N, 2]
    corner = np.concatenate([CORNERS[None] * half[:, None], np.ones((len(tan), 4, 1))], axis=-1)  # [N, 4, 3]
    # Wide and narrow cameras take up the same room.
    corner *= depth / np.maximum(1, tan)[:, None, None]
    local = np.concatenate([np.zeros((len(tan), 1, 3)), corner], axis=1)  # [N, 5, 3]
    return np.einsum("nij,nkj->nki", world_from_cam[:, :3, :3], local) + world_from_cam[:, None, :3, 3]


def frustum_lines(shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of the eight lines of each frustum [N, 5, 3], as [N, 8, 3] each."""
    return shape[:, [0, 0, 0, 0, 1, 2, 3, 4]], shape[:, [1, 2, 3, 4, 2, 3, 4, 1]]


def shown_radius(sigma: np.ndarray, scene_radius: float, largest: float = LARGEST_SHARE) -> np.ndarray:
    """Radius to draw a Gaussian with, at most the share `largest` of the scene's."""
    return np.clip(sigma, 0.002 * scene_radius, largest * scene_radius)
