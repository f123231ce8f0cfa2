"""What two-view geometry says before the solve: focal lengths, and a world seeded from relative poses."""

from __future__ import annotations

import numpy as np
import poselib
import torch

from proba.geometry.camera import UNIT_SIDE_PX
from proba.geometry.epipolar import two_view_depths
from proba.solver.focal_ratios import bounded_ratios, log_focals
from proba.solver.problem import Problem
from proba.solver.worlds import World
from proba.threads import in_parallel

SEEDED = "two-view"
FOV_DEG_TRUSTED = (10.0, 120.0)
MAX_POINTS = 500
MAX_FOCAL_EDGES = 60
RANSAC = {"max_iterations": 500, "min_iterations": 50, "seed": 0}
BOUND = 2 / (UNIT_SIDE_PX / 2)
"""Largest epipolar distance: two pixels of a 1024 px image. Coordinates are in units of half the longest side."""
MIN_MATCHES, MIN_INLIERS = 20, 15
"""Of an edge that is asked for focal lengths."""
FULL_WEIGHT = 300
"""An edge with at least this number of inliers counts fully for the ratios of focal lengths."""


def two_view_start(problem: Problem, common: float, ratios: np.ndarray) -> World:
    """Relative poses of the tree's edges. Cameras have the tangents exp(common + ratios [C])."""
    graph = problem.graph
    poses = problem.start.clone()
    children = np.flatnonzero(graph.parent >= 0).tolist()
    log_tan = common + ratios[problem.camera_of_image.numpy()]  # [N]

    def relative(child: int) -> np.ndarray | None:
        return _parent_from_child(problem, int(graph.parent[child]), child, log_tan)

    for child, pose in zip(children, in_parallel(relative, children), strict=True):
        if pose is not None:
            poses[child] = torch.from_numpy(pose)
    fov_deg = float(np.degrees(2 * np.arctan(np.exp(common))))
    return World(name=SEEDED, fov_deg=fov_deg, relative_log_tan=ratios, parent_from_child=poses)


def edge_rays(problem: Problem, a: int, b: int) -> tuple[np.ndarray, np.ndarray]:
    """Matches of two local images in normalised coordinates, [M, 2] each."""
    edge = np.nonzero((problem.graph.edges == (min(a, b), max(a, b))).all(1))[0][0]
    packed = problem.matches
    window = slice(int(packed.offset[edge]), int(packed.offset[edge]) + min(int(packed.count[edge]), MAX_POINTS))
    first = np.stack([packed.x_i[window].numpy(), packed.y_i[window].numpy()], 1).astype(np.float64)
    second = np.stack([packed.x_j[window].numpy(), packed.y_j[window].numpy()], 1).astype(np.float64)
    return (first, second) if a < b else (second, first)


def estimate_log_tan(problem: Problem) -> tuple[float, np.ndarray] | None:
    """Of all cameras whose focal length is not known together, and of each camera against that, [C].

    None where no edge tells.
    """
    known, known_log_tan = problem.cameras.known, problem.known_log_tan.numpy()  # [C] each
    if known.all():
        common = float(known_log_tan.mean())
        return common, known_log_tan - common
    rough = float(np.median(known_log_tan[known])) if known.any() else _common_log_tan(problem)
    if rough is None:
        return None
    log_focal = _log_focals(problem, -np.where(known, known_log_tan, rough))  # [C]
    # Edges between unknown cameras say little about what these have in common; those to known cameras say it.
    common = -float(np.median(log_focal[~known])) if known.any() else rough
    relative = known_log_tan - common
    relative[~known] = -bounded_ratios(log_focal[~known])
    return common, relative


def _log_focals(problem: Problem, start: np.ndarray) -> np.ndarray:  # [C]
    """Log focal lengths in half longest sides, moved from `start` [C] to where the fundamental matrices agree."""
    edges = problem.graph.edges.tolist() if problem.n_cameras > 1 else []
    found = in_parallel(lambda edge: _fundamental_matrix(*edge_rays(problem, *edge)), edges)
    usable = [(edge, *one) for edge, one in zip(edges, found, strict=True) if one is not None]
    if not usable:
        return start
    pairs, matrices, weight = zip(*usable, strict=True)
    camera = problem.camera_of_image.numpy()[np.array(pairs)]  # [E, 2]
    return log_focals(np.stack(matrices), np.array(weight), camera, start, problem.cameras.known)


def _common_log_tan(problem: Problem) -> float | None:
    """Weighted median of six-point focals over the strongest edges: one for all cameras. None where no edge tells."""
    graph = problem.graph
    strongest = np.argsort(-graph.similarity, kind="stable")[:MAX_FOCAL_EDGES]
    rays = [edge_rays(problem, *map(int, graph.edges[e])) for e in strongest]
    found = [estimate for estimate in in_parallel(lambda both: _six_point_log_tan(*both), rays) if estimate is not None]
    if not found:
        return None
    values, weights = np.array(found).T  # [F] each
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(cumulative, cumulative[-1] / 2)])


def _fundamental_matrix(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float] | None:
    """Of the matches [M, 2] of one edge, and its weight; None where too few agree."""
    if len(x) < MIN_MATCHES:
        return None
    matrix, info = poselib.estimate_fundamental(x, y, {"max_epipolar_error": BOUND, **RANSAC}, {})
    if info["num_inliers"] < MIN_INLIERS:
        return None
    return np.asarray(matrix), min(1.0, info["num_inliers"] * info["inlier_ratio"] / FULL_WEIGHT)


def _six_point_log_tan(x: np.ndarray, y: np.ndarray) -> tuple[float, float] | None:
    """Estimate from the matches [M, 2] of one edge, and its weight."""
    if len(x) < MIN_MATCHES:
        return None
    pair, info = poselib.estimate_shared_focal_relative_pose(
        x, y, [0.0, 0.0], {"max_epipolar_error": BOUND, **RANSAC}, {}
    )
    focal = pair.camera1.focal()
    if info["num_inliers"] < MIN_INLIERS or not np.isfinite(focal) or focal <= 0:
        return None
    low, high = (np.log(np.tan(np.radians(fov) / 2)) for fov in FOV_DEG_TRUSTED)
    log_tan = -np.log(focal)
    return (log_tan, info["num_inliers"] * info["inlier_ratio"]) if low < log_tan < high else None


def _parent_from_child(problem: Problem, parent: int, child: int, log_tan: np.ndarray) -> np.ndarray | None:
    """Relative pose with the baseline scaled so that the median depth is 1, as every map starts there; log_tan [N]."""
    x, y = edge_rays(problem, child, parent)
    if len(x) < 8:
        return None
    tan_child, tan_parent = np.exp(log_tan[[child, parent]])
    rays_child, rays_parent = x * tan_child, y * tan_parent
    unit = {"model": "SIMPLE_PINHOLE", "width": 2, "height": 2, "params": [1.0, 0.0, 0.0]}
    bound = BOUND * np.sqrt(tan_child * tan_parent)
    pose, info = poselib.estimate_relative_pose(
        rays_child, rays_parent, unit, unit, {"max_epipolar_error": bound, **RANSAC}, {}
    )
    if info["num_inliers"] < 8:
        return None
    inliers = np.array(info["inliers"], bool)
    seen_by_child, seen_by_parent = (np.c_[rays[inliers], np.ones(inliers.sum())] for rays in (rays_child, rays_parent))
    depth = two_view_depths(seen_by_child, seen_by_parent, pose.R, pose.t)
    relative = np.eye(4)
    relative[:3, :3] = pose.R
    in_front = depth[depth > 0]
    if len(in_front):
        relative[:3, 3] = pose.t / np.median(in_front)
    return relative
