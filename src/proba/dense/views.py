"""Which photos a photo is compared with: those that see the same points, under a good angle and at a like size."""

from __future__ import annotations

import numpy as np

from proba.reconstruction import Reconstruction

BEST_ANGLE_DEG = 8.0
"""Rays of two photos that meet at this angle fix the depth well and still see alike patches."""
NARROW_DEG, WIDE_DEG = 4.0, 12.0
"""Deviations below and above the best angle at which a shared point counts e^-0.5."""
MIN_ANGLE_DEG = 0.5
"""Photos from nearly one place tell nothing of depth."""
MIN_SHARED = 5.0
"""Weighted shared points that two photos need."""


def neighbour_views(reconstruction: Reconstruction, most: int) -> list[list[int]]:
    """For each image up to `most` others to compare it with, best first."""
    points, centres = reconstruction.points, reconstruction.centres
    n_images = len(reconstruction)
    order = np.lexsort((points.obs_image, points.obs_point))
    image, point = points.obs_image[order], points.obs_point[order]
    rays = points.xyz[point] - centres[image]  # [K, 3]
    reach = np.linalg.norm(rays, axis=1)
    focal = np.array([camera.focal_px.mean() for camera in reconstruction.cameras])[reconstruction.camera_of_image]
    size = focal[image] / np.maximum(reach, 1e-12)  # [K] pixels of a unit length there
    rays = rays / np.maximum(reach, 1e-12)[:, None]
    score = np.zeros((n_images, n_images), np.float32)
    start = np.searchsorted(point, np.arange(len(points.xyz) + 1))
    longest = int(np.diff(start).max(initial=0))
    for gap in range(1, longest):  # pairs of observations of one point that stand `gap` apart in the list
        same = np.flatnonzero(point[gap:] == point[:-gap])
        one, other = same, same + gap
        cosine = np.einsum("ki,ki->k", rays[one], rays[other]).clip(-1, 1)
        weight = angle_weight(np.degrees(np.arccos(cosine))) * _likeness(size[one], size[other])
        np.add.at(score, (image[one], image[other]), weight)
        np.add.at(score, (image[other], image[one]), weight)
    np.fill_diagonal(score, 0)
    ranked = np.argsort(-score, axis=1, kind="stable")[:, :most]
    return [[int(j) for j in row if score[n, j] >= MIN_SHARED] for n, row in enumerate(ranked)]


def angle_weight(angle_deg: np.ndarray) -> np.ndarray:
    """What a shared point is worth by the angle between its rays."""
    width = np.where(angle_deg < BEST_ANGLE_DEG, NARROW_DEG, WIDE_DEG)
    return np.where(angle_deg < MIN_ANGLE_DEG, 0.0, np.exp(-0.5 * ((angle_deg - BEST_ANGLE_DEG) / width) ** 2))


def _likeness(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """1 for patches of like size, less where one photo shows them more than about twice as large."""
    return np.exp(-0.5 * (np.log(one / other) / np.log(2.0)) ** 2)
