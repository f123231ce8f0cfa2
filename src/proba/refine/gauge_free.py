"""The inverse of the cameras' normal equations, whose null space is the freedom of the world to move, turn and grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import LinAlgError

from proba.refine.block_cholesky import FrontFactor
from proba.refine.block_matrix import BlockMatrix, taken_from
from proba.refine.bundle import Bundle
from proba.refine.elimination import Plan, plan_as_one
from proba.refine.normal_equations import N_POSE
from proba.refine.rig import centres_of

FLOOR = 1e-10
"""A direction that nothing observes gets a huge variance, not a negative or infinite one: eigenvalues are at least this
part of the largest, and diagonals are raised by it."""
MAX_EIGEN = 1000
"""Columns up to which eigenvalues are found, which takes twenty times as long as a factor."""
MIN_PIVOT = 1e-12
"""What is left of a diagonal number when its turn comes, relative to it. Less is rounding, and no observation."""


@dataclass(frozen=True, eq=False)
class Bodies:
    """What moves by itself, images or the rigs that carry them; the columns of their poses come first."""

    cam_from_world: np.ndarray  # [N, 4, 4]
    held: bool
    """Whether priors hold the world in place."""
    arms: np.ndarray | None = None  # [S, 3]
    """Centres of the free sensors on their rig, whose poses have the next columns."""
    metric: bool = False
    """Whether the unit of the world is fixed."""

    @property
    def count(self) -> int:
        return len(self.cam_from_world)

    @property
    def centres(self) -> np.ndarray:  # [N, 3]
        return centres_of(self.cam_from_world)


def bodies_of(bundle: Bundle) -> Bodies:
    """What moves by itself in a bundle."""
    held, rig = bundle.pose_prior is not None, bundle.rig
    if rig is None:
        return Bodies(bundle.cam_from_world, held)
    return Bodies(rig.frames(bundle.cam_from_world), held, rig.arms[rig.free], rig.metric)


class Inverse(Protocol):
    """A pseudo-inverse [D, D]; zero where nothing is observed."""

    @property
    def stored(self) -> BlockMatrix:
        """Its blocks where the system has them."""

    def times(self, rows: np.ndarray) -> np.ndarray:
        """Products of the rows [G, D] with it."""


def gauge_free_inverse(bodies: Bodies, system: BlockMatrix, observed: np.ndarray, plan: Plan | None) -> Inverse:
    """Pseudo-inverse of the system, whose null space is the world's freedom; zero if not `observed` [D] bool."""
    if plan is None and len(observed) <= MAX_EIGEN:
        return _DenseInverse(bodies, system, observed)
    return _SparseInverse(bodies, system, observed, plan or plan_as_one(system.blocks))


class _DenseInverse:
    """By the eigenvalues of the whole."""

    def __init__(self, bodies: Bodies, system: BlockMatrix, observed: np.ndarray):
        inner = np.ix_(observed, observed)
        gauge = gauge_directions(bodies, observed)[observed]  # [D', 7]
        inside = system.dense()[inner]  # [D', D']
        scale = 1 / np.sqrt(np.maximum(np.diag(inside), 1e-12))  # [D']
        # The gauge is removed by a penalty of the system's own size, then taken out of the inverse by projection.
        fixed = inside + np.median(np.diag(inside)) * gauge @ gauge.T
        conditioned = scale[:, None] * fixed * scale[None]  # [D', D']
        values, vectors = np.linalg.eigh((conditioned + conditioned.T) / 2)
        values = np.maximum(values, FLOOR * values[-1])
        root = scale[:, None] * vectors / np.sqrt(values)  # [D', D']
        root -= gauge @ (gauge.T @ root)
        self._whole = np.zeros((len(observed),) * 2)
        self._whole[inner] = root @ root.T
        self.stored = taken_from(self._whole, system.blocks)

    def times(self, rows: np.ndarray) -> np.ndarray:
        return rows @ self._whole


class _SparseInverse:
    """By the factor of the system with one image held, and another one's distance from it.

    That holds the world as the least trace does, but for a movement of the whole, which is taken out afterwards: of the
    inverse Z that comes of it and the gauge G the pseudo-inverse is (1 - G G^T) Z (1 - G G^T).
    """

    def __init__(self, bodies: Bodies, system: BlockMatrix, observed: np.ndarray, plan: Plan):
        self._gauge = gauge_directions(bodies, observed)  # [D, 7]
        self._observed = observed
        held = system if bodies.held else _holding_the_world(bodies, system, observed)
        self._factor = _factor_of(held.raised(np.where(observed, 0.0, 1.0)), plan)
        blocks, gauge = system.blocks, self._gauge
        bent = self._factor.solve(gauge)  # [D, 7]
        bent -= 0.5 * gauge @ (gauge.T @ bent)
        stored = self._factor.inverse().values
        g, b = (blocks.padded(columns.T).transpose(1, 2, 0) for columns in (gauge, bent))  # [B, LANES, 7] each
        for one, other in ((g, b), (b, g)):
            stored -= one[blocks.row] @ other[blocks.column].transpose(0, 2, 1)
        self.stored = BlockMatrix(blocks, stored).scaled(observed.astype(np.float64))

    def times(self, rows: np.ndarray) -> np.ndarray:
        right = np.where(self._observed, rows, 0.0).T  # [D, G]
        right = right - self._gauge @ (self._gauge.T @ right)
        moved = np.where(self._observed[:, None], self._factor.solve(right), 0.0)
        return (moved - self._gauge @ (self._gauge.T @ moved)).T


def _holding_the_world(bodies: Bodies, system: BlockMatrix, observed: np.ndarray) -> BlockMatrix:
    """The system with penalties on the pose of the image with most observations, and on how far the farthest one is.

    As many as the world has freedoms, seven, or six if its unit is fixed: they hold it without saying anything of its
    shape.
    """
    blocks, diagonal = system.blocks, system.diagonal  # [D]
    pose = diagonal[: N_POSE * bodies.count].reshape(-1, N_POSE)  # [N, 6]
    seen = observed[: N_POSE * bodies.count : N_POSE]  # [N]
    anchor = int(np.where(seen, pose[:, 0], 0).argmax())
    away = np.where(seen[:, None], bodies.centres - bodies.centres[anchor], 0.0)  # [N, 3]
    distance = np.linalg.norm(away, axis=1)  # [N]
    far = int(distance.argmax())
    direction = away[far] / max(distance[far], 1e-30)  # [3]
    held = np.zeros(len(diagonal))
    held[N_POSE * anchor : N_POSE * (anchor + 1)] = pose[anchor]
    if bodies.metric:
        return system.raised(held)
    values = system.raised(held).values
    place = blocks.start[far + 1] - 1  # the diagonal block ends its row
    values[place, 3:N_POSE, 3:N_POSE] += pose[far, 3:].mean() * np.outer(direction, direction)
    return BlockMatrix(blocks, values)


def _factor_of(system: BlockMatrix, plan: Plan) -> FrontFactor:
    """The factor, of a diagonal that is raised where a direction is not observed."""
    diagonal = system.diagonal  # [D]
    try:
        factor = FrontFactor(system, plan)
        if (factor.pivots > MIN_PIVOT * diagonal).all():
            return factor
    except LinAlgError:
        pass
    return FrontFactor(system.raised(FLOOR * np.maximum(diagonal, FLOOR * diagonal.max())), plan)


def gauge_directions(bodies: Bodies, observed: np.ndarray) -> np.ndarray:
    """Orthonormal directions [D, 7] in which the world can move without any residual changing; [D, 6] where its unit is
    fixed, and none, [D, 0], where its poses have priors.

    Columns that nothing observes (`observed` [D] bool) take no part.
    """
    if bodies.held:
        return np.zeros((len(observed), 0))
    seen = observed[: N_POSE * bodies.count : N_POSE]  # [N]
    centres = bodies.centres - bodies.centres[seen].mean(axis=0)  # [N, 3]
    rotation = bodies.cam_from_world[:, :3, :3]  # [N, 3, 3]
    directions = np.zeros((bodies.count, N_POSE, 7))
    directions[:, 3:, :3] = np.eye(3)  # shift
    for axis in range(3):  # turn about a world axis: R <- R exp(-w), C <- C + w x C
        turn = np.eye(3)[axis]
        directions[:, :3, 3 + axis] = -rotation @ turn
        directions[:, 3:, 3 + axis] = np.cross(turn, centres)
    directions[:, 3:, 6] = centres  # scale
    full = np.zeros((len(observed), 7))
    full[: N_POSE * bodies.count] = directions.reshape(-1, 7)
    if bodies.arms is not None:
        arms = np.concatenate([np.zeros_like(bodies.arms), bodies.arms], axis=1)  # [S, 6]
        full[N_POSE * bodies.count :][: arms.size, 6] = arms.ravel()
    full[~observed] = 0
    return np.linalg.qr(full[:, :6] if bodies.metric else full)[0]
