"""A world that begins with the poses that are known beforehand."""

from __future__ import annotations

import numpy as np
import torch

from proba.geometry.epipolar import two_view_depths
from proba.known_poses import KnownPoses
from proba.solver.problem import Problem
from proba.solver.two_view import edge_rays
from proba.solver.worlds import World

GIVEN_SOLVED = "given-solved"
"""The solver's own continuation of the given poses."""


def given_start(problem: Problem, known: KnownPoses, fov_deg: float) -> World:
    """Known relative poses along the tree, the identity elsewhere, scaled so that the median depth is 1, as every map
    starts there. `fov_deg` is the field of view of cameras of which none is told."""
    log_tan = camera_log_tan(problem, known)  # [C]
    common = float(np.nanmedian(log_tan)) if np.isfinite(log_tan).any() else np.log(np.tan(np.radians(fov_deg) / 2))
    relative = np.nan_to_num(log_tan - common)  # [C]
    poses, parent = problem.start.clone(), problem.graph.parent
    scale = median_depth(problem, known, common + relative)
    for child in np.flatnonzero(parent >= 0).tolist():
        if known.posed[child] and known.posed[parent[child]]:
            pose = known.cam_from_world[parent[child]] @ np.linalg.inv(known.cam_from_world[child])
            pose[:3, 3] /= scale
            poses[child] = torch.from_numpy(pose)
    degrees = float(np.degrees(2 * np.arctan(np.exp(common))))
    return World(name=GIVEN_SOLVED, fov_deg=degrees, relative_log_tan=relative, parent_from_child=poses)


def camera_log_tan(problem: Problem, known: KnownPoses) -> np.ndarray:  # [C]
    """Log tangents of half the field of view that are told with the poses; NaN where none is."""
    told = np.log(problem.half_side_px / known.focal_px)  # [N]
    camera, found = problem.cameras.camera_of_image, np.full(problem.n_cameras, np.nan)
    for c in range(problem.n_cameras):
        mine = told[(camera == c) & np.isfinite(told)]
        if len(mine):
            found[c] = np.median(mine)
    return found


def median_depth(problem: Problem, known: KnownPoses, log_tan: np.ndarray) -> float:
    """Median depth of the matches between known cameras, in the unit of their world; `log_tan` [C]."""
    tan, depths = np.exp(log_tan[problem.cameras.camera_of_image]), []
    for i, j in problem.graph.edges.tolist():
        if not (known.posed[i] and known.posed[j]):
            continue
        x, y = edge_rays(problem, i, j)
        j_from_i = known.cam_from_world[j] @ np.linalg.inv(known.cam_from_world[i])
        rays_i, rays_j = (np.c_[xy * tan[k], np.ones(len(xy))] for xy, k in ((x, i), (y, j)))
        depth = two_view_depths(rays_i, rays_j, j_from_i[:3, :3], j_from_i[:3, 3])
        depths.append(depth[depth > 0])
    depth = np.concatenate([np.zeros(0), *depths])
    return float(np.median(depth)) if len(depth) else 1.0
