"""Dense depth against true depth: which of the truth can be found at all, and whether deviations are honest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proba.evaluation.poses import match_names
from proba.geometry.sim3 import Sim3
from proba.io.dense_folder import DensePiece
from proba.io.ground_truth import GroundTruth, depth_lens, true_depth
from proba.reconstruction import Reconstruction

BUFFER_SIDE = 160
"""Longest side of the depth buffers that scans are drawn into to see what hides what."""
HIDDEN = 0.03
"""Share of the depth by which a place must lie behind what a camera sees to be hidden."""
CAMERAS_NEEDED = 2
"""A place that fewer cameras see cannot be found from photos."""
GROSS = 10.0
"""Deviations beyond which an error is a wrong surface, and says nothing about the deviation of the right one."""


def seen_enough(truth: GroundTruth, points: np.ndarray) -> np.ndarray:  # [P] bool
    """Which points [P, 3] of the true surface at least two cameras see."""
    count = np.zeros(len(points), int)
    for n in range(len(truth.names)):
        depth = true_depth(truth, n)
        shape = _buffer_shape(truth, n) if depth is None else depth.shape
        lens = truth.intrinsics[n] * np.tile([shape[1] / truth.width[n], shape[0] / truth.height[n]], 2)
        lens = lens if depth is None else depth_lens(truth, n, shape)
        index, place, z = _drawn(truth.cam_from_world[n], lens, shape, points)
        if depth is None:
            nearest = np.full(shape[0] * shape[1], np.inf)
            np.minimum.at(nearest, place, z)
        else:
            nearest = np.where(depth > 0, depth, 0.0).ravel()  # nothing known: it shows nothing
        count[index] += z <= (1 + HIDDEN) * nearest[place]
    return count >= CAMERAS_NEEDED


def _buffer_shape(truth: GroundTruth, n: int) -> tuple[int, int]:
    share = BUFFER_SIDE / max(truth.width[n], truth.height[n])
    return max(1, round(truth.height[n] * share)), max(1, round(truth.width[n] * share))


def _drawn(
    cam_from_world: np.ndarray, lens: np.ndarray, shape: tuple[int, ...], points: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points that fall into an image of this shape: their numbers [K], flat pixels [K] and depths [K]."""
    in_camera = points @ cam_from_world[:3, :3].T + cam_from_world[:3, 3]  # [P, 3]
    z = in_camera[:, 2]
    fx, fy, cx, cy = lens
    with np.errstate(divide="ignore", invalid="ignore"):
        column, row = fx * in_camera[:, 0] / z + cx, fy * in_camera[:, 1] / z + cy
    inside = np.flatnonzero((z > 0) & (column >= 0) & (row >= 0) & (column < shape[1]) & (row < shape[0]))
    return inside, row[inside].astype(int) * shape[1] + column[inside].astype(int), z[inside]


def sigma_shares(
    pieces: Sequence[tuple[Reconstruction, DensePiece | None, Sim3 | None]], truth: GroundTruth
) -> dict[str, float]:
    """`sigma@1`, `sigma@2`: percent of depths whose error is within one and two of their deviations.

    Every depth is put into the world of the truth and compared there with the depth image of its photo.
    """
    ratios = []
    for reconstruction, dense, truth_from_estimate in pieces:
        if dense is None or truth_from_estimate is None:
            continue
        for k, n in enumerate(match_names(reconstruction.image_names, truth.names)):
            found = dense.read_depth(reconstruction.image_names[k]) if n is not None else None
            depth = true_depth(truth, n) if n is not None else None
            if n is None or found is None or depth is None or not (found.depth > 0).any():
                continue
            world = truth_from_estimate.apply(found.world_points(reconstruction.cam_from_world[k]))
            sigma = truth_from_estimate.scale * found.sigma[found.depth > 0]
            lens = depth_lens(truth, n, depth.shape)
            index, place, z = _drawn(truth.cam_from_world[n], lens, depth.shape, world)
            known = depth.ravel()[place] > 0
            ratios.append(np.abs(z - depth.ravel()[place])[known] / np.maximum(sigma[index][known], 1e-12))
    if not ratios:
        return {}
    ratio = np.concatenate(ratios)
    ratio = ratio[ratio < GROSS]
    return {f"sigma@{k}": 100.0 * float((ratio < k).mean()) for k in (1, 2)} if len(ratio) else {}
