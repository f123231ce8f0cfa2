"""Planes to begin with: those of the triangles between the points that a photo sees."""

from __future__ import annotations

import numpy as np
from scipy.spatial import Delaunay, QhullError, cKDTree

RANGE_MARGIN = 1.8
"""Depths are looked for from the nearest point seen divided by this to the farthest times this."""
RANGE_PERCENT = 1.0
"""Points beyond this percentile on either side may be wrong and do not widen the range."""
SMALLEST_SHARE = 0.02
"""Inverse depths reach at least down to this share of the nearest: skies and horizons."""


def depth_bounds(inverse_depth: np.ndarray) -> np.ndarray:  # [2] float32
    """Lowest and highest inverse depth that is looked for, from those of points [K]."""
    low, high = np.percentile(inverse_depth, [RANGE_PERCENT, 100 - RANGE_PERCENT])
    return np.array([low / RANGE_MARGIN, high * RANGE_MARGIN], np.float32)


def triangle_planes(xy: np.ndarray, inverse_depth: np.ndarray, width: int, height: int) -> np.ndarray:
    """Planes [height, width, 3] (rho, a, b) through points at pixels `xy` [K, 2]; flat ones outside their hull."""
    row, column = np.mgrid[:height, :width]
    pixels = np.stack([column.ravel(), row.ravel()], axis=1).astype(np.float64)  # [H * W, 2]
    planes = np.zeros((len(pixels), 3))
    planes[:, 0] = inverse_depth[cKDTree(xy).query(pixels)[1]]
    try:
        mesh = Delaunay(xy)
    except (QhullError, ValueError):  # fewer than three points, or all on a line
        return planes.reshape(height, width, 3).astype(np.float32)
    simplex = mesh.find_simplex(pixels)
    inside = simplex >= 0
    corners = mesh.simplices[simplex[inside]]  # [M, 3]
    across, value = mesh.transform[simplex[inside]], inverse_depth[corners]  # [M, 3, 2], [M, 3]
    share = np.einsum("mij,mj->mi", across[:, :2], pixels[inside] - across[:, 2])  # [M, 2] barycentric
    edges = value[:, :2] - value[:, 2:]  # [M, 2]
    planes[inside, 0] = value[:, 2] + (share * edges).sum(axis=1)
    planes[inside, 1:] = np.einsum("mi,mij->mj", edges, across[:, :2])
    return np.nan_to_num(planes).reshape(height, width, 3).astype(np.float32)
