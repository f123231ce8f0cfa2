"""Matches against the true epipolar geometry."""

from __future__ import annotations

import cv2
import numpy as np

from proba.evaluation.poses import match_names
from proba.io.ground_truth import GroundTruth
from proba.matches import PairMatches


def true_epipolar_px(truth: GroundTruth, name_i: str, name_j: str, pair: PairMatches) -> np.ndarray:  # [M]
    """Larger of the two distances of each match from its true epipolar lines, in original pixels; distortion undone.

    Infinite if the truth does not know one of the images.
    """
    known = match_names([name_i, name_j], truth.names)
    if known[0] is None or known[1] is None:
        return np.full(len(pair.points_i), np.inf)
    i, j = known[0], known[1]
    rays_i, rays_j = (true_rays(truth, n, xy) for n, xy in ((i, pair.points_i), (j, pair.points_j)))
    j_from_i = truth.cam_from_world[j] @ np.linalg.inv(truth.cam_from_world[i])
    t = j_from_i[:3, 3] / max(np.linalg.norm(j_from_i[:3, 3]), 1e-12)
    cross = np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]])
    essential = cross @ j_from_i[:3, :3]
    line_j, line_i = rays_i @ essential.T, rays_j @ essential  # [M, 3]
    algebraic = np.abs(np.einsum("mi,mi->m", rays_j, line_j))  # [M]
    focal_i, focal_j = (truth.intrinsics[n, :2].mean() for n in (i, j))
    distance_i = focal_i * algebraic / np.maximum(np.linalg.norm(line_i[:, :2], axis=1), 1e-12)
    distance_j = focal_j * algebraic / np.maximum(np.linalg.norm(line_j[:, :2], axis=1), 1e-12)
    return np.maximum(distance_i, distance_j)


def true_rays(truth: GroundTruth, n: int, xy: np.ndarray) -> np.ndarray:  # [M, 3]
    """Homogeneous rays of pixels [M, 2] of image n, with distortion undone."""
    fx, fy, cx, cy = truth.intrinsics[n]
    matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1]])
    bent = None if truth.distortion is None else truth.distortion[n]
    ideal = cv2.undistortPoints(np.asarray(xy, np.float64).reshape(-1, 1, 2), matrix, bent).reshape(-1, 2)
    return np.concatenate([ideal, np.ones((len(ideal), 1))], axis=1)
