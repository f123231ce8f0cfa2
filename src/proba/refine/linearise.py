"""Derivatives of the projection by pose, intrinsics and point."""

from __future__ import annotations

import numpy as np

from proba.refine.bundle import CX, CY, FX, FY, K1, K2, Bundle, points_in_cameras, project

N_POSE = 6
"""A small rotation of the camera about its own axes, then a shift of its centre along the world's axes."""
N_INTRINSICS = 6


def linearise(bundle: Bundle, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals [U, 2] and derivatives by camera [U, 2, 12] (pose, intrinsics) and point [U, 2, 3].

    `kept` [K] bool are the observations to look at.
    """
    residual, by_cam_point, by_point = linearise_points(bundle, kept)
    x, y, z = points_in_cameras(bundle)[kept].T  # [U] each
    zero = np.zeros_like(z)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)  # [U, 3, 3], p x .
    by_intrinsics = _by_intrinsics(bundle, np.stack([x / z, y / z], axis=1), bundle.tracks.image[kept])
    return residual, np.concatenate([-by_cam_point @ cross, -by_point, by_intrinsics], axis=2), by_point


def linearise_points(bundle: Bundle, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals [U, 2] and derivatives [U, 2, 3] by the point in the camera's and in the world's frame."""
    projected, _ = project(bundle)
    image = bundle.tracks.image[kept]  # [U]
    x, y, z = points_in_cameras(bundle)[kept].T  # [U] each
    k = bundle.intrinsics[bundle.camera_of_image[image]]  # [U, 6]
    ray = np.stack([x / z, y / z], axis=1)  # [U, 2]
    square = (ray**2).sum(axis=1)  # [U]
    factor = 1 + square * (k[:, K1] + square * k[:, K2])  # [U]
    slope = 2 * (k[:, K1] + 2 * square * k[:, K2])  # [U], d factor = slope * ray . d ray
    by_ray = factor[:, None, None] * np.eye(2) + slope[:, None, None] * ray[:, :, None] * ray[:, None, :]
    by_ray *= k[:, [FX, FY], None]  # [U, 2, 2]
    zero, inverse = np.zeros_like(z), 1 / z
    rows = [inverse, zero, -ray[:, 0] * inverse, zero, inverse, -ray[:, 1] * inverse]
    by_cam_point = by_ray @ np.stack(rows, axis=1).reshape(-1, 2, 3)  # [U, 2, 3]
    residual = projected[kept] - bundle.tracks.xy[kept]  # [U, 2]
    return residual, by_cam_point, by_cam_point @ bundle.cam_from_world[image, :3, :3]


def _by_intrinsics(bundle: Bundle, ray: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Derivatives [U, 2, 6] of the pixels of rays [U, 2] by the intrinsics of their cameras."""
    k = bundle.intrinsics[bundle.camera_of_image[image]]  # [U, 6]
    square = (ray**2).sum(axis=1)[:, None]  # [U, 1]
    factor = 1 + square * (k[:, [K1]] + square * k[:, [K2]])  # [U, 1]
    derivative = np.zeros((len(ray), 2, N_INTRINSICS))
    derivative[:, 0, FX], derivative[:, 1, FY] = (factor * ray).T
    derivative[:, 0, CX] = derivative[:, 1, CY] = 1
    derivative[:, :, K1] = k[:, [FX, FY]] * ray * square
    derivative[:, :, K2] = k[:, [FX, FY]] * ray * square**2
    # Square pixels have one focal length: its column is the sum of both.
    shared = bundle.one_focal[bundle.camera_of_image[image]]  # [U]
    derivative[shared, 1, FX] = derivative[shared, 1, FY]
    derivative[shared, 1, FY] = 0
    return derivative
