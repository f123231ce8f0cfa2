"""Gauss-Newton steps of all cameras on all points: the last bit of accuracy that a subset leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from proba.refine.bundle import FX, FY, MODEL_PARAMETERS, Bundle
from proba.refine.linearise import N_POSE
from proba.refine.normal_equations import NormalEquations
from proba.refine.triangulate import refine_points, robust_cost

SHORTER = (1.0, 0.5, 0.25, 0.1)
"""Parts of the step that are tried in turn."""


def step_cameras(bundle: Bundle, equations: NormalEquations, loss_px: float) -> tuple[Bundle, float]:
    """Move the cameras towards the minimum of the quadratic model, and the points after them, as far as the cost falls.

    An adjustment of some tracks is usually a fraction of a standard deviation away from that of all tracks, where
    the cost is quadratic: one step is as good as an adjustment. Also returns the part of the step that was taken.
    """
    # Cauchy weights overstate the curvature: it is weight^2 on average, not weight.
    length = equations.mean_weight / max(equations.mean_weight2, 1e-12)
    step = -length * equations.inverse(bundle) @ equations.gradient  # [D]
    before = robust_cost(bundle, loss_px).sum()
    for part in SHORTER:
        moved = refine_points(move_cameras(bundle, equations.columns, part * step), loss_px, iterations=2)
        if robust_cost(moved, loss_px).sum() < before:
            return moved, part
    return bundle, 0.0


def move_cameras(bundle: Bundle, columns: np.ndarray, step: np.ndarray) -> Bundle:
    """The bundle with its cameras moved by `step` [D]; `columns` [C, 6] are those of the intrinsics in it."""
    pose = step[: N_POSE * bundle.n_images].reshape(-1, N_POSE)  # [N, 6]
    rotation = Rotation.from_rotvec(pose[:, :3]).as_matrix() @ bundle.cam_from_world[:, :3, :3]  # [N, 3, 3]
    centres = bundle.centres + pose[:, 3:]  # [N, 3]
    cam_from_world = bundle.cam_from_world.copy()
    cam_from_world[:, :3, :3] = rotation
    cam_from_world[:, :3, 3] = -np.einsum("nij,nj->ni", rotation, centres)
    free = columns >= 0  # [C, 6]
    intrinsics = bundle.intrinsics.copy()
    intrinsics[free] += step[columns[free]]
    square_pixels = np.array([FY not in MODEL_PARAMETERS[model] for model in bundle.camera_model])
    intrinsics[square_pixels, FY] = intrinsics[square_pixels, FX]
    return replace(bundle, cam_from_world=cam_from_world, intrinsics=intrinsics)
