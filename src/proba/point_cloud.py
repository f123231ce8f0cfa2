"""The points of a reconstruction as a cloud with normals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from proba.reconstruction import Reconstruction

NEIGHBOURS = 12
"""Points that a normal is estimated from, itself among them."""
MAX_THICKNESS = 0.5
"""Largest ratio of the smallest to the middle extent of a neighbourhood that still counts as a surface."""


@dataclass(kw_only=True)
class Cloud:
    """Points with what is known of each."""

    xyz: np.ndarray  # [P, 3] float64
    rgb: np.ndarray  # [P, 3] uint8
    sigma: np.ndarray  # [P] float64, scene units
    normals: np.ndarray  # [P, 3] float64, towards the cameras; zero where not known

    def some(self, most: int) -> Cloud:
        """At most this many of the points, chosen at random, the same ones every time."""
        if len(self.xyz) <= most:
            return self
        kept = np.sort(np.random.default_rng(0).permutation(len(self.xyz))[:most])
        return Cloud(xyz=self.xyz[kept], rgb=self.rgb[kept], sigma=self.sigma[kept], normals=self.normals[kept])


def point_cloud(reconstruction: Reconstruction) -> Cloud:
    """The refined points, with normals of the planes through their neighbours."""
    points = reconstruction.points
    normals = estimate_normals(points.xyz, _viewpoints(reconstruction))
    return Cloud(xyz=points.xyz, rgb=points.rgb, sigma=points.sigma, normals=normals)


def estimate_normals(xyz: np.ndarray, viewpoints: np.ndarray) -> np.ndarray:
    """Unit normals [P, 3] of local planes, on the side of the viewpoints [P, 3]; zero where there is no plane."""
    if len(xyz) < 4:
        return np.zeros((len(xyz), 3))
    _, near = cKDTree(xyz).query(xyz, k=min(NEIGHBOURS, len(xyz)))  # [P, k]
    spread = xyz[near] - xyz[near].mean(axis=1, keepdims=True)  # [P, k, 3]
    extent, axes = np.linalg.eigh(np.einsum("pki,pkj->pij", spread, spread))  # [P, 3] ascending, [P, 3, 3]
    normals = axes[:, :, 0]
    flat = extent[:, 0] < MAX_THICKNESS**2 * extent[:, 1]
    away = np.einsum("pi,pi->p", normals, viewpoints - xyz) < 0
    return np.where(flat[:, None], np.where(away[:, None], -normals, normals), 0.0)


def _viewpoints(reconstruction: Reconstruction) -> np.ndarray:
    """Mean place [P, 3] of the cameras that see each point."""
    points, centres = reconstruction.points, reconstruction.centres
    total = np.zeros_like(points.xyz)
    np.add.at(total, points.obs_point, centres[points.obs_image])
    seen = np.bincount(points.obs_point, minlength=len(total))[:, None]
    return np.where(seen > 0, total / np.maximum(seen, 1), centres.mean(axis=0))
