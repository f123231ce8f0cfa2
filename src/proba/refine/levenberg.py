"""Bundle adjustment by the method of Levenberg and Marquardt. The damping alone keeps the world in place."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError
from scipy.spatial.transform import Rotation

from proba.refine.block_cholesky import factorised
from proba.refine.bundle import FX, FY, Bundle
from proba.refine.normal_equations import FIRST_DAMPING, N_POSE, Equations
from proba.refine.rig_equations import Tie

MAX_DAMPING = 1e10
MIN_GAIN = 1e-3
"""A step is taken when the cost falls by this part of what the quadratic model promises."""
SHORT_GAIN, MAX_STRETCH = 1.2, 5.0
"""Where it falls by more, the step was too short: weighted squares are steeper than the robust cost, whose curvature
falls with the residual. Then it is made longer, to where a parabola has its minimum: two thirds of the steps."""


def minimise(
    bundle: Bundle,
    used: np.ndarray,
    free: np.ndarray,
    *,
    loss_px: float,
    noise_px: float,
    iterations: int,
    tolerance: float,
) -> Bundle:
    """Cameras and points at a minimum of the Cauchy cost of the observations `used` [K] bool.

    Images without such observations stay. `free` [C, WIDTH] bool are the intrinsics that may change. `noise_px`
    weighs the priors. Ends when a step lowers the cost by less than the share `tolerance`.
    """
    equations = Equations(bundle, used, free, loss_px, noise_px)
    tie = None if bundle.rig is None else Tie(bundle.rig, equations)
    cost, damping, harder = equations.cost(bundle), FIRST_DAMPING, 2.0
    for _ in range(iterations):
        step = _step(equations, bundle, damping) if tie is None else _tied_step(equations, tie, bundle, damping)
        moved = step.taken(bundle, equations)
        now = equations.cost(moved) if step.promise > 0 else np.inf
        gain = (cost - now) / step.promise if step.promise > 0 else -1.0
        if gain > SHORT_GAIN:
            further = step.taken(bundle, equations, min(1 / max(2 - gain, 1e-9), MAX_STRETCH))
            if (then := equations.cost(further)) < now:
                moved, now = further, then
        if gain > MIN_GAIN:
            done = cost - now < tolerance * cost
            bundle, cost, harder = moved, now, 2.0
            damping *= max(1 / 3, 1 - (2 * gain - 1) ** 3)
            if done:
                break
        else:
            damping *= harder
            harder *= 2
            if damping > MAX_DAMPING:
                break
    return bundle


@dataclass(frozen=True, eq=False)
class _Step:
    cameras: np.ndarray  # [D]
    points: np.ndarray  # [P, 3]
    promise: float
    """How much the quadratic model says that the step lowers the cost."""
    tie: Tie | None = None
    tied: np.ndarray | None = None  # [D'], the same step of the frames and sensors of a rig

    def taken(self, bundle: Bundle, equations: Equations, stretch: float = 1.0) -> Bundle:
        """The bundle after this multiple of the step."""
        xyz = bundle.xyz.copy()
        xyz[equations.points] += stretch * self.points
        moved = replace(_move_cameras(bundle, equations.columns, stretch * self.cameras), xyz=xyz)
        if self.tie is None or self.tied is None:
            return moved
        cam_from_world, rig = self.tie.moved(bundle, stretch * self.tied)
        return replace(moved, cam_from_world=cam_from_world, rig=rig)


def _step(equations: Equations, bundle: Bundle, damping: float) -> _Step:
    """The damped step from a bundle; none where the equations have no solution."""
    reduced = equations.reduced(bundle, damping)
    fixed = reduced.diagonal == 0  # [D]
    try:
        factor = factorised(reduced.system.raised(np.where(fixed, 1.0, 0.0)), equations.plan)
    except LinAlgError:
        return _Step(np.zeros(len(fixed)), np.zeros((len(equations.points), 3)), 0.0)
    step = -factor.solve(reduced.gradient)  # [D]
    shifts, promise = equations.follow(bundle, step, damping)
    promise += 0.5 * float(step @ (damping * reduced.diagonal * step - reduced.slope))
    return _Step(step, shifts, promise)


def _tied_step(equations: Equations, tie: Tie, bundle: Bundle, damping: float) -> _Step:
    """The same where images are tied to a rig."""
    assert bundle.rig is not None
    whole, at = equations.reduced(bundle, damping), tie.at(bundle)
    reduced = at.reduced(whole, bundle.rig)
    fixed = reduced.diagonal == 0  # [D']
    try:
        factor = factorised(reduced.system.raised(np.where(fixed, 1.0, 0.0)), tie.plan)
    except LinAlgError:
        return _Step(np.zeros(len(whole.slope)), np.zeros((len(equations.points), 3)), 0.0)
    tied = -factor.solve(reduced.gradient)  # [D']
    step = at.images(tied)  # [D]
    shifts, promise = equations.follow(bundle, step, damping)
    promise += 0.5 * float(step @ (damping * whole.diagonal * step) - tied @ reduced.slope)
    return _Step(step, shifts, promise, tie, tied)


def _move_cameras(bundle: Bundle, columns: np.ndarray, step: np.ndarray) -> Bundle:
    """The bundle with its cameras moved by `step` [D]; `columns` [C, WIDTH] are those of the intrinsics in it."""
    pose = step[: N_POSE * bundle.n_images].reshape(-1, N_POSE)  # [N, 6]
    rotation = Rotation.from_rotvec(pose[:, :3]).as_matrix() @ bundle.cam_from_world[:, :3, :3]  # [N, 3, 3]
    centres = bundle.centres + pose[:, 3:]  # [N, 3]
    cam_from_world = bundle.cam_from_world.copy()
    cam_from_world[:, :3, :3] = rotation
    cam_from_world[:, :3, 3] = -np.einsum("nij,nj->ni", rotation, centres)
    free = columns >= 0  # [C, WIDTH]
    intrinsics = bundle.intrinsics.copy()
    intrinsics[free] += step[columns[free]]
    intrinsics[bundle.one_focal, FY] = intrinsics[bundle.one_focal, FX]
    return replace(bundle, cam_from_world=cam_from_world, intrinsics=intrinsics)
