"""Two worlds joined by two cameras that are fixed to each other: the hand-eye problem, with an unknown scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from proba.geometry.sim3 import Sim3

FEWEST = 4
"""Moments that are needed; three are as many numbers as there are unknowns."""
STARTS, POLISHED = 120, 6
"""Rotations of one world in the other that are tried, and how many of them are adjusted."""
TURN_DEG, SHIFT = 1.0, 0.03
"""Median errors that are believed: of rotations, and of centres in parts of the extent of the path."""
UNSURE_DEG = 3.0
"""A rotation that may be off by more is not known; nor is one if another one, this far away, fits nearly as well."""
CLEARLY = 3.0


@dataclass(frozen=True, eq=False)
class _Moments:
    """Poses [F, 4, 4] of two cameras, each in its own world, and what is known of their relation."""

    first: np.ndarray
    second: np.ndarray
    relation: np.ndarray | None  # [4, 4], second_from_first; its length in a unit of its own

    def fit(self, turn: np.ndarray) -> tuple[Sim3, np.ndarray, np.ndarray]:
        """The best similarity with the rotation `turn` [3, 3], and its errors: rotations [F, 3] in radians, and centres
        [F, 3] in parts of the extent."""
        r1, r2 = self.first[:, :3, :3], self.second[:, :3, :3]
        seen = r2 @ turn.T @ r1.transpose(0, 2, 1)  # [F, 3, 3], second_from_first
        fixed = Rotation.from_matrix(seen).mean().as_matrix() if self.relation is None else self.relation[:3, :3]
        rotation = Rotation.from_matrix(seen @ fixed.T).as_rotvec()
        c1, c2 = (-np.einsum("fji,fj->fi", pose[:, :3, :3], pose[:, :3, 3]) for pose in (self.first, self.second))
        away = c1.mean(axis=0)
        extent = float(np.linalg.norm(c1 - away, axis=1).mean()) or 1.0
        middle = c2.mean(axis=0)
        spread = (c2 - middle) @ turn.T
        # scale * spread + shift - r1^T arm = c1 - away
        columns = [spread[..., None], np.tile(np.eye(3), (len(c1), 1, 1)), -r1.transpose(0, 2, 1) @ self._arms()]
        system = np.concatenate(columns, axis=2).reshape(3 * len(c1), -1)
        solution = np.linalg.lstsq(system, (c1 - away).ravel(), rcond=1e-9)[0]
        scale, shift = float(solution[0]), solution[1:4]
        error = (system @ solution - (c1 - away).ravel()).reshape(-1, 3) / extent
        return Sim3(scale, turn, away + shift - scale * turn @ middle), rotation, error

    def _arms(self) -> np.ndarray:  # [3, k]
        """Directions in which the centre of the second camera may be, in the frame of the first."""
        if self.relation is None:
            return np.eye(3)
        arm = -self.relation[:3, :3].T @ self.relation[:3, 3]
        return arm[:, None] if np.linalg.norm(arm) > 1e-9 else np.zeros((3, 0))

    def errors(self, turn: np.ndarray) -> np.ndarray:
        """All errors in units of what is believed."""
        _, rotation, centres = self.fit(turn)
        return np.concatenate([rotation.ravel() / np.radians(TURN_DEG), centres.ravel() / SHIFT])


def hand_eye(first: np.ndarray, second: np.ndarray, relation: np.ndarray | None = None) -> Sim3 | None:
    """The first world from the second one, by the poses (cam_from_world [F, 4, 4]) of two cameras that are fixed to
    each other, one in each world, at the same moments. None where these do not tell.

    `relation` [4, 4] is second_from_first, if that is known; its length may have another unit.
    """
    if len(first) < FEWEST:
        return None
    moments = _Moments(first, second, relation)
    if relation is None:
        starts = Rotation.random(STARTS, random_state=0).as_matrix()  # [K, 3, 3]
    else:
        turns = first[:, :3, :3].transpose(0, 2, 1) @ relation[:3, :3].T @ second[:, :3, :3]
        starts = Rotation.from_matrix(turns).mean().as_matrix()[None]
    cost = [float(np.sqrt(np.minimum(np.abs(moments.errors(turn)), 50)).sum()) for turn in starts]
    found = [_polished(moments, starts[k]) for k in np.argsort(cost)[:POLISHED]]
    found.sort(key=lambda one: one[1])
    turn, best, unsure = found[0]
    for other, worse, _ in found[1:]:
        apart = np.degrees(Rotation.from_matrix(other @ turn.T).magnitude())
        if apart > UNSURE_DEG and worse < CLEARLY * best:
            return None
    world, rotation, centres = moments.fit(turn)
    off = np.median(np.linalg.norm(rotation, axis=1)), np.median(np.linalg.norm(centres, axis=1))
    right = off[0] < np.radians(TURN_DEG) and off[1] < SHIFT and world.scale > 0
    return world if right and (relation is not None or unsure < UNSURE_DEG) else None


def _polished(moments: _Moments, start: np.ndarray) -> tuple[np.ndarray, float, float]:
    """A rotation adjusted, its cost, and by how many degrees it may be off."""

    def turned(vector: np.ndarray) -> np.ndarray:
        return Rotation.from_rotvec(vector).as_matrix() @ start

    best = least_squares(lambda vector: moments.errors(turned(vector)), np.zeros(3), loss="soft_l1", max_nfev=60)
    error = moments.errors(turned(best.x))
    noise = max(float(np.median(np.abs(error))) / 0.67, 1e-6)
    weakest = float(np.linalg.svd(best.jac, compute_uv=False)[-1])
    return turned(best.x), float(best.cost) + 1e-12, float(np.degrees(noise / max(weakest, 1e-12)))
