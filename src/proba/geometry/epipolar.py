"""Two views of a point: distance from the epipolar geometry, and depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", np.ndarray, "Tensor")


def sampson(rays_j: Array, lines_i: Array, lines_j: Array) -> Array:
    """Distance [...] of matches from their epipolar lines, to first order, in the unit of the rays.

    Rays [..., 3] are homogeneous; lines_j = E rays_i and lines_i = E^T rays_j, [..., 3] each. A fundamental matrix and
    pixels will do as well.
    """
    square = (lines_i[..., :2] ** 2).sum(-1) + (lines_j[..., :2] ** 2).sum(-1)
    return abs((rays_j * lines_j).sum(-1)) / (square + 1e-30) ** 0.5


def epipolar_lines(rays_i: np.ndarray, rays_j: np.ndarray, j_from_i: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(E^T rays_j, E rays_i) of homogeneous rays [..., 3] for the essential matrix E of poses [..., 4, 4]."""
    rotation, shift = j_from_i[..., :3, :3], j_from_i[..., :3, 3]
    turned = np.einsum("...ab,...b->...a", rotation, rays_i)
    return np.einsum("...ba,...b->...a", rotation, np.cross(rays_j, shift)), np.cross(shift, turned)


def angular_sampson(rays_i: np.ndarray, rays_j: np.ndarray, j_from_i: np.ndarray) -> np.ndarray:
    """The same as an angle [...] (radians) between directions [..., 3], which may lie beside or behind the cameras."""
    rays_i, rays_j = (ray / np.linalg.norm(ray, axis=-1, keepdims=True) for ray in (rays_i, rays_j))
    lines_i, lines_j = epipolar_lines(rays_i, rays_j, j_from_i)
    square = (lines_i**2).sum(-1) + (lines_j**2).sum(-1)
    return abs((rays_j * lines_j).sum(-1)) / (square + 1e-30) ** 0.5


def in_front(rays_i: np.ndarray, rays_j: np.ndarray, j_from_i: np.ndarray) -> np.ndarray:
    """Whether homogeneous rays [..., 3] come nearest to each other in front of both cameras, for poses [..., 4, 4]."""
    turned, shift = np.einsum("...ab,...b->...a", j_from_i[..., :3, :3], rays_i), j_from_i[..., :3, 3]
    normal = np.cross(rays_j, turned)
    depth_i, depth_j = -(normal * np.cross(rays_j, shift)).sum(-1), -(normal * np.cross(turned, shift)).sum(-1)
    return (depth_i > 0) & (depth_j > 0)


def two_view_depths(rays_i: np.ndarray, rays_j: np.ndarray, rotation: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Depths [M] in i with rays_j x (depth R rays_i + shift) = 0 in the least squares sense.

    Rays [M, 3] are homogeneous, `rotation` [3, 3] and `shift` [3] are j_from_i.
    """
    turned = np.cross(rays_j, rays_i @ rotation.T)  # [M, 3]
    moved = np.cross(rays_j, shift)  # [M, 3]
    return -(turned * moved).sum(axis=1) / ((turned * turned).sum(axis=1) + 1e-15)
