"""Gaussians as a PLY in the layout of 3D Gaussian splatting, which splat viewers open and trainers start from.

A Gaussian lies flat on the surface where its normal is known: across it is as wide as the distance to its
neighbours, so that the surface looks closed, and along the normal as thick as its standard deviation.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from proba.io.ply import write_vertices
from proba.point_cloud import Cloud

SH_CONSTANT = 0.28209479177387814  # spherical harmonic of degree 0
OPACITY = 0.9
N_HIGHER = 45  # coefficients of degrees 1 to 3, all zero: some viewers insist on them
_NEIGHBOURS = 3


def write_splat(path: str | Path, cloud: Cloud) -> None:
    """Write x y z, nx ny nz, f_dc, f_rest, opacity (logit), scale (log), rot (wxyz), all float32."""
    width = _spacing(cloud.xyz)  # [P]
    known = np.linalg.norm(cloud.normals, axis=1) > 0.5  # [P]
    sigma = np.where(np.isfinite(cloud.sigma), cloud.sigma, width)
    thickness = np.where(known, np.clip(sigma, 0.02 * width, width), width)  # [P]
    scale = np.log(np.stack([width, width, thickness], axis=1))  # [P, 3], the third axis is the normal
    colour = (cloud.rgb / 255 - 0.5) / SH_CONSTANT  # [P, 3]
    columns = {
        **_columns(("x", "y", "z"), cloud.xyz),
        **_columns(("nx", "ny", "nz"), cloud.normals),
        **_columns(("f_dc_0", "f_dc_1", "f_dc_2"), colour),
        **{f"f_rest_{k}": np.zeros(len(cloud.xyz)) for k in range(N_HIGHER)},
        "opacity": np.full(len(cloud.xyz), np.log(OPACITY / (1 - OPACITY))),
        **_columns(("scale_0", "scale_1", "scale_2"), scale),
        **_columns(("rot_0", "rot_1", "rot_2", "rot_3"), _rotation_to(np.where(known[:, None], cloud.normals, 0.0))),
    }
    write_vertices(path, [(name, "<f4", values) for name, values in columns.items()])


def _columns(names: tuple[str, ...], table: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(names, table.T, strict=True))


def _spacing(xyz: np.ndarray) -> np.ndarray:
    """Half the mean distance [P] to the next few points."""
    if len(xyz) < 2:
        return np.ones(len(xyz))
    distance, _ = cKDTree(xyz).query(xyz, k=min(_NEIGHBOURS + 1, len(xyz)))  # [P, k], the first is the point itself
    spacing = distance[:, 1:].mean(axis=1) / 2
    typical = max(float(np.median(spacing)), 1e-9)
    return np.clip(spacing, 0.05 * typical, 5 * typical)  # lone points would be balloons


def _rotation_to(normals: np.ndarray) -> np.ndarray:
    """Unit quaternions [P, 4] wxyz that turn the z axis onto normals [P, 3]; the identity for zero normals."""
    nx, ny, nz = normals.T
    # The half-way quaternion (1 + n.z, z x n) degenerates at n = -z, where a half turn about x does it.
    quaternion = np.stack([1 + nz, -ny, nx, np.zeros_like(nx)], axis=1)  # [P, 4]
    length = np.linalg.norm(quaternion, axis=1, keepdims=True)
    return np.where(length > 1e-6, quaternion / np.maximum(length, 1e-6), [0.0, 1.0, 0.0, 0.0])
