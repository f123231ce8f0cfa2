"""Two views of a point."""

from __future__ import annotations

import numpy as np


def two_view_depths(rays_i: np.ndarray, rays_j: np.ndarray, rotation: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Depths [M] in i with rays_j x (depth R rays_i + shift) = 0 in the least squares sense.

    Rays [M, 3] are homogeneous, `rotation` [3, 3] and `shift` [3] are j_from_i.
    """
    turned = np.cross(rays_j, rays_i @ rotation.T)  # [M, 3]
    moved = np.cross(rays_j, shift)  # [M, 3]
    return -(turned * moved).sum(axis=1) / ((turned * turned).sum(axis=1) + 1e-15)
