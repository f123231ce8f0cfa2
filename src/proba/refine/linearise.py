"""Derivatives of the projection by pose, intrinsics and point."""

from __future__ import annotations

import numpy as np

from proba.refine.bundle import CX, CY, FX, FY, K1, K2, MODEL_PARAMETERS, Bundle, points_in_cameras, project

N_POSE = 6
"""A small rotation of the camera about its own axes, then a shift of its centre along the world's axes."""
N_INTRINSICS = 6


def linearise(bundle: Bundle, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals [U, 2] and Jacobians by camera [U, 2, 12] (pose, intrinsics) and point [U, 2, 3]."""
    projected, _ = project(bundle)
    residual = (projected - bundle.tracks.xy)[kept]  # [U, 2]
    image = bundle.tracks.image[kept]  # [U]
    x, y, z = points_in_cameras(bundle)[kept].T  # [U] each
    k = bundle.intrinsics[bundle.camera_of_image[image]]  # [U, 6]
    ray = np.stack([x / z, y / z], axis=1)  # [U, 2]
    square = (ray**2).sum(axis=1)  # [U]
    factor = 1 + square * (k[:, K1] + square * k[:, K2])  # [U]
    slope = 2 * (k[:, K1] + 2 * square * k[:, K2])  # [U], d factor = slope * ray . d ray
    focal = k[:, [FX, FY]]  # [U, 2]
    by_ray = focal[:, :, None] * (
        factor[:, None, None] * np.eye(2) + slope[:, None, None] * ray[:, :, None] * ray[:, None, :]
    )  # [U, 2, 2]
    zero = np.zeros_like(z)
    ray_by_point = np.stack(
        [np.stack([1 / z, zero, -x / z**2], axis=1), np.stack([zero, 1 / z, -y / z**2], axis=1)], axis=1
    )  # [U, 2, 3]
    by_cam_point = by_ray @ ray_by_point  # [U, 2, 3]
    rotation = bundle.cam_from_world[image, :3, :3]  # [U, 3, 3]
    by_point = by_cam_point @ rotation  # [U, 2, 3]
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)  # [U, 3, 3], p x .
    by_intrinsics = np.zeros((len(image), 2, N_INTRINSICS))
    by_intrinsics[:, 0, FX] = factor * ray[:, 0]
    by_intrinsics[:, 1, FY] = factor * ray[:, 1]
    by_intrinsics[:, 0, CX] = by_intrinsics[:, 1, CY] = 1
    by_intrinsics[:, :, K1] = focal * ray * square[:, None]
    by_intrinsics[:, :, K2] = focal * ray * square[:, None] ** 2
    # Square pixels have one focal length: its column is the sum of both.
    one_focal = np.array([FY not in MODEL_PARAMETERS[model] for model in bundle.camera_model])
    shared = one_focal[bundle.camera_of_image[image]]  # [U]
    by_intrinsics[shared, 1, FX] = by_intrinsics[shared, 1, FY]
    by_intrinsics[shared, 1, FY] = 0
    return residual, np.concatenate([-by_cam_point @ cross, -by_point, by_intrinsics], axis=2), by_point
