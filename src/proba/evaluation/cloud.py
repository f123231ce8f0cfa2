"""Accuracy and completeness of a point cloud (appendix, 3D reconstruction metrics)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import small_gicp
from scipy.spatial import cKDTree

from proba.evaluation.poses import match_names
from proba.geometry.sim3 import Sim3, umeyama, umeyama_robust
from proba.io.ground_truth import GroundTruth
from proba.reconstruction import Reconstruction

MAX_POINTS = 300_000  # a fixed random share of larger clouds gives the same percentages, as long as the truth is dense


def aligned_clouds(
    reconstructions: Sequence[Reconstruction],
    clouds: Sequence[np.ndarray],
    truth: GroundTruth,
    truth_points: np.ndarray,
    threshold: float,
) -> list[Sim3 | None]:
    """truth_from_estimate of every reconstruction by its cameras and then its cloud [P, 3]; None: it cannot be told."""
    target = _thin(truth_points, MAX_POINTS)
    found: list[Sim3 | None] = []
    for reconstruction, points in zip(reconstructions, clouds, strict=True):
        start = _from_cameras(reconstruction, truth)
        if start is None or not len(points):
            found.append(None)
        else:
            found.append(refine_alignment(start, _thin(points, MAX_POINTS), target, threshold))
    return found


def cloud_scores(
    clouds: Sequence[np.ndarray],
    alignments: Sequence[Sim3 | None],
    truth_points: np.ndarray,
    thresholds: Sequence[float],
    *,
    findable: np.ndarray | None = None,
) -> list[tuple[float, float]]:
    """ACC and COMP in percent for each threshold: the share of estimated points that are that close to the truth, and
    the reverse, for true points that can be found (`findable` [P]; all by default).

    A cloud without an alignment (no baseline) has its points nowhere near the truth. Thresholds and `truth_points`
    [P, 3] are in the ground truth's units.
    """
    wanted = truth_points if findable is None else truth_points[findable]
    surface, wanted = _thin(truth_points, MAX_POINTS), _thin(wanted, MAX_POINTS)
    lost = sum(len(points) for points, sim in zip(clouds, alignments, strict=True) if sim is None)
    placed = [sim.apply(points) for points, sim in zip(clouds, alignments, strict=True) if sim is not None]
    estimate = np.concatenate(placed) if placed else np.zeros((0, 3))
    if not len(estimate) or not len(wanted):
        return [(0.0, 0.0) for _ in thresholds]
    some, far = _thin(estimate, MAX_POINTS), max(thresholds)
    off = cKDTree(surface).query(some, distance_upper_bound=far)[0]
    missing = cKDTree(estimate).query(wanted, distance_upper_bound=far)[0]
    aligned_share = len(estimate) / (len(estimate) + lost)
    return [(100.0 * aligned_share * float((off < x).mean()), 100.0 * float((missing < x).mean())) for x in thresholds]


def refine_alignment(truth_from_estimate: Sim3, points: np.ndarray, truth_points: np.ndarray, threshold: float) -> Sim3:
    """Robust ICP from a first alignment: rigid steps by small_gicp, then scale from the closest points.

    Camera centres fix the scale badly when they lie close together, and rigid ICP cannot mend it. A step is kept
    only if more points come within the threshold.
    """
    source, target = _thin(points, 8_000), _thin(truth_points, 60_000)
    tree = cKDTree(target)

    def share(candidate: Sim3) -> float:
        distance, _ = tree.query(candidate.apply(source), distance_upper_bound=threshold)
        return float(np.mean(distance < threshold))

    best, best_share = truth_from_estimate, share(truth_from_estimate)
    for reach in (8 * threshold, 4 * threshold, 2 * threshold, 2 * threshold):
        for step in (_rigid_step, _similarity_step):
            if best_share > 0.999:
                return best
            candidate = step(best, source, target, tree, reach)
            candidate_share = share(candidate)
            if candidate_share > best_share:
                best, best_share = candidate, candidate_share
    return best


def _rigid_step(start: Sim3, source: np.ndarray, target: np.ndarray, tree: cKDTree, reach: float) -> Sim3:
    result = small_gicp.align(
        target,
        start.apply(source),
        registration_type="ICP",
        downsampling_resolution=reach / 8,
        max_correspondence_distance=reach,
    )
    motion = np.asarray(result.T_target_source)  # [4, 4]
    return Sim3(1.0, motion[:3, :3], motion[:3, 3]) @ start


def _similarity_step(start: Sim3, source: np.ndarray, target: np.ndarray, tree: cKDTree, reach: float) -> Sim3:
    distance, index = tree.query(start.apply(source), distance_upper_bound=reach)
    near = distance < reach
    return umeyama(source[near], target[index[near]]) if near.sum() >= 10 else start


def _from_cameras(reconstruction: Reconstruction, truth: GroundTruth) -> Sim3 | None:
    """Similarity from the cameras, None if they cannot carry one."""
    found = [(k, n) for k, n in enumerate(match_names(reconstruction.image_names, truth.names)) if n is not None]
    if len(found) < 2:
        return None
    k, n = np.array(found).T
    pose = reconstruction.cam_from_world[k]  # [M, 4, 4]
    centres = -np.einsum("mji,mj->mi", pose[:, :3, :3], pose[:, :3, 3])  # [M, 3]
    spread = np.linalg.svd(centres - centres.mean(axis=0), compute_uv=False)
    if spread[0] == 0:
        return None  # no baseline, no scale
    if len(found) >= 4 and spread[1] > 0.05 * spread[0]:
        return umeyama_robust(centres, truth.centres[n])[0]
    # Centres on a line leave the turn about it free: take the rotation from the orientations.
    correlation = np.einsum("mji,mjk->ik", truth.cam_from_world[n, :3, :3], pose[:, :3, :3])  # [3, 3]
    left, _, right = np.linalg.svd(correlation)
    rotation = left @ np.diag([1, 1, np.linalg.det(left @ right)]) @ right
    target = truth.centres[n]
    scale = float(np.linalg.norm(target - target.mean(axis=0)) / np.linalg.norm(centres - centres.mean(axis=0)))
    return Sim3(scale, rotation, target.mean(axis=0) - scale * rotation @ centres.mean(axis=0))


def _thin(points: np.ndarray, limit: int) -> np.ndarray:
    points = points[np.isfinite(points).all(axis=1)]
    if len(points) <= limit:
        return points
    return points[np.random.default_rng(0).choice(len(points), limit, replace=False)]
