"""Matches against the truth: how many, how right, how much of the image."""

from __future__ import annotations

import numpy as np

from proba.geometry.epipolar import epipolar_lines, in_front
from proba.io.ground_truth import GroundTruth
from proba.matches import ImageInfo, Matches, PairMatches

GRID = 64  # cells a side, of which a pair's matches cover a share
BOUNDS_PX = (1, 2, 5)
TRUE_SHARE = 0.2  # a pair with a smaller share of matches within 5 px and before both cameras is false


def compare_with_truth(matches: Matches, truth: GroundTruth) -> dict:
    """Shares of matches near the true epipolar lines, share of the grid that a pair covers, and false pairs."""
    camera = {name: k for k, name in enumerate(truth.names)}
    errors, covered, false_pairs = [], [], []
    for (i, j), pair in matches.pairs.items():
        one, other = matches.images[i], matches.images[j]
        if not len(pair.scores) or one.name not in camera or other.name not in camera:
            continue
        error_px, in_front = epipolar_errors_px(pair, truth, camera[one.name], camera[other.name])  # [M], [M]
        errors.append(error_px)
        covered += [grid_share(pair.points_i, one), grid_share(pair.points_j, other)]
        if np.mean((error_px < BOUNDS_PX[-1]) & in_front) < TRUE_SHARE:
            false_pairs.append([one.name, other.name, len(error_px)])
    every = np.concatenate(errors) if errors else np.zeros(0)
    return {
        "pairs_kept": len(errors),
        "false_pairs": false_pairs,
        "matches": len(every),
        **{f"within_{bound}px": round(float((every < bound).mean()), 4) if len(every) else 0.0 for bound in BOUNDS_PX},
        "grid_share": round(float(np.mean(covered)), 4) if covered else 0.0,
    }


def epipolar_errors_px(pair: PairMatches, truth: GroundTruth, one: int, other: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean distance [M] to the true epipolar lines of both images, and which points [M] lie in front of both."""
    rays_i, rays_j = truth.rays(one, pair.points_i), truth.rays(other, pair.points_j)  # [M, 3]
    j_from_i = truth.cam_from_world[other] @ np.linalg.inv(truth.cam_from_world[one])
    rotation, shift = j_from_i[:3, :3], j_from_i[:3, 3]
    if np.linalg.norm(shift) < 1e-6 * np.abs(truth.centres - truth.centres.mean(axis=0)).max():
        turned = rays_i @ rotation.T  # one place: a point has no line to lie on but a place of its own
        distance = (turned[:, :2] / turned[:, 2:] - rays_j[:, :2]) * truth.intrinsics[other, :2]  # [M, 2]
        return np.hypot(*distance.T), turned[:, 2] > 0
    lines_i, lines_j = epipolar_lines(rays_i, rays_j, j_from_i)  # [M, 3]
    residual = np.abs((rays_j * lines_j).sum(axis=1))  # [M]
    distances = [
        residual / (np.hypot(*(lines[:, :2] / truth.intrinsics[k, :2]).T) + 1e-12)
        for lines, k in ((lines_i, one), (lines_j, other))
    ]
    return (distances[0] + distances[1]) / 2, in_front(rays_i, rays_j, j_from_i)


def grid_share(points: np.ndarray, image: ImageInfo) -> float:
    """Share of the cells of a 64 x 64 grid over the image that hold a match."""
    cell = np.clip(points / [image.width, image.height] * GRID, 0, GRID - 1).astype(np.int64)  # [M, 2]
    return len(np.unique(cell, axis=0)) / GRID**2
