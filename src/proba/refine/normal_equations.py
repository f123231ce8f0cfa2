"""Normal equations of the adjustment, with the points eliminated.

Parameters of a camera: a small rotation of the camera about its own axes, a shift of its centre along the
world's axes, and the free columns of its intrinsics. Nothing fixes the world (seven gauge freedoms), so they are
solved for the step of least norm, relative to the mean of all cameras and not to an arbitrary first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numba
import numpy as np

from proba.refine.bundle import Bundle
from proba.refine.linearise import N_POSE, linearise

CELLS = 4
"""Cells of the image plane along a side; the gradient is kept for each of them."""
_CHUNK = 20_000
"""Tracks that are linearised at a time; the derivatives need memory."""


@dataclass(frozen=True, eq=False)
class Part:
    """Derivatives of the observations that hold (U of them), sorted by track."""

    begin: np.ndarray  # [T + 1], observations of each track
    cell: np.ndarray  # [U], cell of the image plane where the observation's track begins
    block: np.ndarray  # [U, 12], system columns of pose and intrinsics, -1: fixed
    square: np.ndarray  # [U], squared residuals
    weight: np.ndarray  # [U], of the Cauchy loss
    by_camera: np.ndarray  # [U, 2, 12], derivatives
    pull: np.ndarray  # [U, 2], weighted residuals with the part taken out that moving the point explains
    coupling: np.ndarray  # [U, 12, 3], camera against point
    gain: np.ndarray  # [U, 12, 3], coupling times the inverse block of the point
    inverse: np.ndarray  # [T, 3, 3], inverse point blocks


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """System [D, D] and gradients for the cameras: poses first, then the free intrinsics."""

    system: np.ndarray  # [D, D]
    gradients: np.ndarray  # [CELLS^2, D], what the tracks of each cell of the image plane add to the gradient
    columns: np.ndarray  # [C, 6], column of each intrinsic, -1: fixed
    observed: np.ndarray  # [D] bool, columns that observations touch
    n_observations: int
    n_points: int
    mean_weight: float
    mean_weight2: float
    weighted_square: float
    """Sum of weight^2 residual^2."""

    @property
    def gradient(self) -> np.ndarray:  # [D]
        return self.gradients.sum(axis=0)

    @property
    def noise2(self) -> float:
        """Variance of one image coordinate: E[psi^2] / E[psi']^2; psi' of the Cauchy loss averages to weight^2."""
        degrees = 2 * self.n_observations - 3 * self.n_points - len(self.system) + 7
        return self.weighted_square / max(degrees, 1) / max(self.mean_weight2, 1e-12) ** 2

    def inverse(self, bundle: Bundle) -> np.ndarray:
        """Gauge-free inverse [D, D] of the system; zero in columns that nothing observes."""
        result = np.zeros_like(self.system)
        inner = np.ix_(self.observed, self.observed)
        gauge = _gauge_directions(bundle, self.observed)[self.observed]
        result[inner] = _gauge_free_inverse(self.system[inner], gauge)
        return result


def free_columns(bundle: Bundle, free: np.ndarray) -> np.ndarray:
    """Column [C, 6] of each `free` [C, 6] intrinsic in the system, after all poses; -1 where it is fixed."""
    columns = np.full(free.shape, -1)
    columns[free] = N_POSE * bundle.n_images + np.arange(free.sum())
    return columns


def normal_equations(bundle: Bundle, free: np.ndarray, loss_px: float) -> NormalEquations:
    """Equations of all observations that hold, with Cauchy weights; `free` [C, 6] bool are the free intrinsics."""
    columns = free_columns(bundle, free)  # [C, 6]
    n_columns = N_POSE * bundle.n_images + int(free.sum())
    system, gradients = np.zeros((n_columns, n_columns)), np.zeros(CELLS**2 * n_columns)
    observed = np.zeros(n_columns, bool)
    weights, n_points, weighted_square = [], 0, 0.0
    for part in parts(bundle, columns, loss_px):
        own = part.weight[:, None, None] * part.by_camera.transpose(0, 2, 1) @ part.by_camera  # [U, 12, 12]
        _add_own(system, part.block, own)
        _subtract_pairs(system, part.begin, part.block, part.gain, part.coupling)
        touched = part.block >= 0  # [U, 12]
        values = np.einsum("uai,ua->ui", part.by_camera, part.pull)  # [U, 12]
        place = part.cell[:, None] * n_columns + part.block  # [U, 12]
        gradients += np.bincount(place[touched], values[touched], len(gradients))
        observed[part.block[touched]] = True
        weights.append(part.weight)
        n_points += int(np.count_nonzero(np.diff(part.begin)))
        weighted_square += float((part.weight**2 * part.square).sum())
    weight = np.concatenate(weights) if weights else np.zeros(0)
    return NormalEquations(
        system=system,
        gradients=gradients.reshape(-1, n_columns),
        columns=columns,
        observed=observed,
        n_observations=len(weight),
        n_points=n_points,
        mean_weight=float(weight.mean()) if len(weight) else 1.0,
        mean_weight2=float((weight**2).mean()) if len(weight) else 1.0,
        weighted_square=weighted_square,
    )


def parts(bundle: Bundle, columns: np.ndarray, loss_px: float) -> Iterator[Part]:
    """The derivatives of the bundle, some tracks at a time; `columns` [C, 6] from `free_columns`."""
    pose = np.arange(N_POSE * bundle.n_images).reshape(-1, N_POSE)
    block = np.concatenate([pose, columns[bundle.camera_of_image]], axis=1)  # [N, 12]
    for first in range(0, bundle.tracks.n_tracks, _CHUNK):
        chosen = np.arange(first, min(first + _CHUNK, bundle.tracks.n_tracks))
        begin, end = bundle.tracks.offset[chosen[0]], bundle.tracks.offset[chosen[-1] + 1]
        some = replace(bundle, tracks=bundle.tracks.take(chosen), xyz=bundle.xyz[chosen], alive=bundle.alive[begin:end])
        yield _part(some, block, loss_px)


def _part(bundle: Bundle, block: np.ndarray, loss_px: float) -> Part:
    """Derivatives of the observations that hold."""
    tracks = bundle.tracks
    kept = bundle.alive & (bundle.alive_per_track() >= 2)[tracks.track_of_observation]  # [K]
    residual, by_camera, by_point = linearise(bundle, kept)  # [U, 2], [U, 2, 12], [U, 2, 3]
    owner = tracks.track_of_observation[kept]  # [U]
    begin = np.searchsorted(owner, np.arange(tracks.n_tracks + 1))  # [T + 1]
    start = tracks.offset[:-1]  # [T]
    relative = tracks.xy[start] / bundle.camera_size[bundle.camera_of_image[tracks.image[start]]]  # [T, 2], in [0, 1]
    column, row = np.clip(relative * CELLS, 0, CELLS - 1).astype(np.int64).T  # [T] each
    square = (residual**2).sum(axis=1)  # [U]
    weight = 1 / (1 + square / loss_px**2)  # [U]
    inverse = _point_inverses(begin, weight, by_point)  # [T, 3, 3]
    coupling = (weight[:, None, None] * by_camera.transpose(0, 2, 1)) @ by_point  # [U, 12, 3]
    slope = np.einsum("uai,ua->ui", by_point, weight[:, None] * residual)  # [U, 3]
    total = np.stack([np.bincount(owner, slope[:, a], tracks.n_tracks) for a in range(3)], axis=1)  # [T, 3]
    shift = np.einsum("tij,tj->ti", inverse, total)[owner]  # [U, 3], what the point would do by itself
    return Part(
        begin=begin,
        cell=(row * CELLS + column)[owner],
        block=block[tracks.image[kept]],
        square=square,
        weight=weight,
        by_camera=by_camera,
        pull=weight[:, None] * (residual - np.einsum("uai,ui->ua", by_point, shift)),
        coupling=coupling,
        gain=coupling @ inverse[owner],
        inverse=inverse,
    )


def _point_inverses(begin: np.ndarray, weight: np.ndarray, by_point: np.ndarray) -> np.ndarray:
    """Inverses [T, 3, 3] of the points' normal matrices; identity where nothing is observed."""
    length = np.diff(begin)  # [T]
    products = weight[:, None, None] * by_point.transpose(0, 2, 1) @ by_point  # [U, 3, 3]
    blocks = np.tile(np.eye(3), (len(length), 1, 1))  # [T, 3, 3]
    if len(products):
        blocks[length > 0] = np.add.reduceat(products, begin[:-1][length > 0], axis=0)
    blocks += 1e-12 * np.trace(blocks, axis1=1, axis2=2)[:, None, None] * np.eye(3)
    return np.linalg.inv(blocks)


def _gauge_directions(bundle: Bundle, observed: np.ndarray) -> np.ndarray:
    """Orthonormal directions [D, 7] in which the world can move without any residual changing.

    Columns that nothing observes (`observed` [D] bool) take no part.
    """
    seen = observed[: N_POSE * bundle.n_images : N_POSE]  # [N]
    centres = bundle.centres - bundle.centres[seen].mean(axis=0)  # [N, 3]
    rotation = bundle.cam_from_world[:, :3, :3]  # [N, 3, 3]
    directions = np.zeros((bundle.n_images, N_POSE, 7))
    directions[:, 3:, :3] = np.eye(3)  # shift
    for axis in range(3):  # turn about a world axis: R <- R exp(-w), C <- C + w x C
        turn = np.eye(3)[axis]
        directions[:, :3, 3 + axis] = -rotation @ turn
        directions[:, 3:, 3 + axis] = np.cross(turn, centres)
    directions[:, 3:, 6] = centres  # scale
    full = np.zeros((len(observed), 7))
    full[: N_POSE * bundle.n_images] = directions.reshape(-1, 7)
    full[~observed] = 0
    return np.linalg.qr(full)[0]


def _gauge_free_inverse(system: np.ndarray, gauge: np.ndarray) -> np.ndarray:
    """Pseudo-inverse of the system [D, D] whose null space is spanned by `gauge` [D, 7]."""
    scale = 1 / np.sqrt(np.maximum(np.diag(system), 1e-12))  # [D]
    # The gauge is removed by a penalty of the system's own size, then taken out of the inverse by projection.
    stiff = np.median(np.diag(system))
    fixed = system + stiff * gauge @ gauge.T
    conditioned = scale[:, None] * fixed * scale[None]  # [D, D]
    values, vectors = np.linalg.eigh((conditioned + conditioned.T) / 2)
    # A direction that nothing observes gets a huge variance, not a negative or infinite one.
    values = np.maximum(values, 1e-10 * values[-1])
    root = scale[:, None] * vectors / np.sqrt(values)  # [D, D]
    root -= gauge @ (gauge.T @ root)
    return root @ root.T


@numba.njit(cache=True)
def _add_own(system, block, own):
    """Add the camera blocks [U, 12, 12] to the system, in place."""
    width = block.shape[1]
    for k in range(len(block)):
        for a in range(width):
            for b in range(width):
                if block[k, a] >= 0 and block[k, b] >= 0:
                    system[block[k, a], block[k, b]] += own[k, a, b]


@numba.njit(cache=True)
def _subtract_pairs(system, begin, block, gain, coupling):
    """Eliminate the points: every two observations of a point couple their cameras. In place."""
    width = block.shape[1]
    for t in range(len(begin) - 1):
        for k in range(begin[t], begin[t + 1]):
            for other in range(begin[t], begin[t + 1]):
                for a in range(width):
                    row = block[k, a]
                    if row < 0:
                        continue
                    for b in range(width):
                        column = block[other, b]
                        if column >= 0:
                            along = gain[k, a, 0] * coupling[other, b, 0]
                            along += gain[k, a, 1] * coupling[other, b, 1]
                            along += gain[k, a, 2] * coupling[other, b, 2]
                            system[row, column] -= along
