"""Standard deviations of poses, intrinsics and points: the inverse of the reduced normal equations.

Parameters of a camera: a small rotation of the camera about its own axes, a shift of its centre along the
world's axes, and the free columns of its intrinsics. Nothing fixes the world (seven gauge freedoms), so the
covariance is the one of least trace: relative to the mean of all cameras, not to an arbitrary first one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numba
import numpy as np

from proba.refine.adjust import Freedom
from proba.refine.bundle import CX, CY, FX, FY, K1, K2, MODEL_PARAMETERS, Bundle
from proba.refine.linearise import N_INTRINSICS, N_POSE, linearise

_CHUNK = 20_000
UNSEEN_STD = 1.0
"""Standard deviation of what nothing observes: a radian, and a typical depth (the scene is scaled to depth one)."""


@dataclass(frozen=True, kw_only=True)
class CameraUncertainty:
    """Covariance of poses and intrinsics, in unit pixels and scene units."""

    noise_px: float  # robust standard deviation of one image coordinate
    covariance: np.ndarray  # [D, D], poses first, then the free intrinsics
    columns: np.ndarray  # [C, 6], column of each intrinsic in the covariance, -1: held fixed
    pose_std: np.ndarray  # [N, 6], rotation (rad, camera axes), centre (scene units, world axes)
    intrinsics_std: np.ndarray  # [C, 6], zero for what was held fixed


def camera_uncertainty(bundle: Bundle, freedom: Freedom, loss_px: float) -> CameraUncertainty:
    """Covariance of what the adjustment found, scaled by the variance of the residuals that are left."""
    system = _System.of(bundle, freedom, loss_px)
    # Variance of an M-estimator: E[psi^2] / E[psi']^2, and psi' of the Cauchy loss averages to weight^2.
    weight, square = system.weight, system.square
    n_points = np.count_nonzero(np.diff(system.begin) >= 2)
    degrees = max(2 * len(weight) - 3 * n_points - system.n_columns + 7, 1)
    noise2 = float((weight**2 * square).sum() / degrees / np.mean(weight**2) ** 2)
    # The system is weighted, so its inverse is too large by the mean weight.
    scale = noise2 * float(weight.mean())
    observed = np.zeros(system.n_columns, bool)  # [D]
    observed[system.block[system.block >= 0]] = True
    gauge = _gauge_directions(bundle, observed)  # [D, 7]
    covariance = np.diag(np.where(observed, 0.0, UNSEEN_STD**2))  # [D, D]
    inner = np.ix_(observed, observed)
    covariance[inner] = scale * _gauge_free_inverse(system.reduced()[inner], gauge[observed])
    variance = np.maximum(np.diag(covariance), 0.0)  # [D]
    columns = system.columns
    intrinsics_var = np.where(columns >= 0, variance[np.maximum(columns, 0)], 0.0)  # [C, 6]
    square_pixels = np.array([FY not in MODEL_PARAMETERS[model] for model in bundle.camera_model])
    intrinsics_var[square_pixels, FY] = intrinsics_var[square_pixels, FX]
    return CameraUncertainty(
        noise_px=float(np.sqrt(noise2)),
        covariance=covariance,
        columns=columns,
        pose_std=np.sqrt(variance[: N_POSE * bundle.n_images]).reshape(-1, N_POSE),
        intrinsics_std=np.sqrt(intrinsics_var),
    )


def point_std(bundle: Bundle, freedom: Freedom, cameras: CameraUncertainty, loss_px: float) -> np.ndarray:
    """Standard deviation [T] of each point: root mean square over the axes; infinite for lost points.

    Its own observations and the uncertainty of the cameras that see it both count.
    """
    variances = []
    for first in range(0, bundle.tracks.n_tracks, _CHUNK):  # in parts, because the derivatives need memory
        begin, end = bundle.tracks.offset[[first, min(first + _CHUNK, bundle.tracks.n_tracks)]]
        chosen = np.arange(first, min(first + _CHUNK, bundle.tracks.n_tracks))
        part = replace(bundle, tracks=bundle.tracks.take(chosen), xyz=bundle.xyz[chosen], alive=bundle.alive[begin:end])
        system = _System.of(part, freedom, loss_px)
        own = np.trace(system.inverse, axis1=1, axis2=2) * cameras.noise_px**2  # [T']
        variance = own + _camera_variances(system.begin, system.block, system.gain, cameras.covariance)
        variance[np.diff(system.begin) < 2] = np.inf
        variances.append(variance)
    return np.sqrt(np.concatenate(variances) / 3)


@dataclass(frozen=True, eq=False)
class _System:
    """Normal equations of the observations that hold (U of them), sorted by track."""

    begin: np.ndarray  # [T + 1], observations of each track
    block: np.ndarray  # [U, 12], system columns of pose and intrinsics, -1: fixed
    columns: np.ndarray  # [C, 6]
    n_columns: int
    square: np.ndarray  # [U], squared residuals
    weight: np.ndarray  # [U], of the Cauchy loss
    by_camera: np.ndarray  # [U, 2, 12], derivatives
    coupling: np.ndarray  # [U, 12, 3], camera against point
    gain: np.ndarray  # [U, 12, 3], coupling times the inverse block of the point
    inverse: np.ndarray  # [T, 3, 3], inverse point blocks

    @classmethod
    def of(cls, bundle: Bundle, freedom: Freedom, loss_px: float) -> _System:
        tracks = bundle.tracks
        kept = bundle.alive & (bundle.alive_per_track() >= 2)[tracks.track_of_observation]  # [K]
        residual, by_camera, by_point = linearise(bundle, kept)  # [U, 2], [U, 2, 12], [U, 2, 3]
        owner = tracks.track_of_observation[kept]  # [U]
        begin = np.searchsorted(owner, np.arange(tracks.n_tracks + 1))  # [T + 1]
        square = (residual**2).sum(axis=1)  # [U]
        weight = 1 / (1 + square / loss_px**2)  # [U]
        columns = _free_columns(bundle, freedom)  # [C, 6]
        weighted = weight[:, None, None] * by_camera.transpose(0, 2, 1)  # [U, 12, 2]
        inverse = _point_inverses(begin, weight, by_point)  # [T, 3, 3]
        coupling = weighted @ by_point  # [U, 12, 3]
        return cls(
            begin=begin,
            block=_block_columns(bundle, columns)[tracks.image[kept]],
            columns=columns,
            n_columns=max(N_POSE * bundle.n_images, int(columns.max()) + 1),
            square=square,
            weight=weight,
            by_camera=by_camera,
            coupling=coupling,
            gain=coupling @ inverse[owner],
            inverse=inverse,
        )

    def reduced(self) -> np.ndarray:
        """Schur complement [D, D]: what is left for the cameras once every point is at its best."""
        system = np.zeros((self.n_columns, self.n_columns))
        own = self.weight[:, None, None] * self.by_camera.transpose(0, 2, 1) @ self.by_camera  # [U, 12, 12]
        _add_own(system, self.block, own)
        _subtract_pairs(system, self.begin, self.block, self.gain, self.coupling)
        return system


def _point_inverses(begin: np.ndarray, weight: np.ndarray, by_point: np.ndarray) -> np.ndarray:
    """Inverses [T, 3, 3] of the points' normal matrices; identity where nothing is observed."""
    length = np.diff(begin)  # [T]
    products = weight[:, None, None] * by_point.transpose(0, 2, 1) @ by_point  # [U, 3, 3]
    blocks = np.tile(np.eye(3), (len(length), 1, 1))  # [T, 3, 3]
    if len(products):
        blocks[length > 0] = np.add.reduceat(products, begin[:-1][length > 0], axis=0)
    blocks += 1e-12 * np.trace(blocks, axis1=1, axis2=2)[:, None, None] * np.eye(3)
    return np.linalg.inv(blocks)


def _free_columns(bundle: Bundle, freedom: Freedom) -> np.ndarray:
    """Column [C, 6] of each free intrinsic in the system, after all poses; -1 where it is fixed."""
    free = np.zeros((bundle.n_cameras, N_INTRINSICS), bool)
    for camera, model in enumerate(bundle.camera_model):
        allowed = MODEL_PARAMETERS[model]
        free[camera, [c for c in allowed if c in (FX, FY)]] = freedom.focal
        free[camera, [c for c in allowed if c in (CX, CY)]] = freedom.principal_point
        free[camera, [c for c in allowed if c in (K1, K2)]] = freedom.distortion
    columns = np.full(free.shape, -1)
    columns[free] = N_POSE * bundle.n_images + np.arange(free.sum())
    return columns


def _block_columns(bundle: Bundle, columns: np.ndarray) -> np.ndarray:
    """System columns [N, 12] of each image's pose and intrinsics."""
    pose = np.arange(N_POSE * bundle.n_images).reshape(-1, N_POSE)
    return np.concatenate([pose, columns[bundle.camera_of_image]], axis=1)


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


@numba.njit(cache=True)
def _camera_variances(begin, block, gain, covariance):
    """Sum of the variances [T] over the axes that the cameras' uncertainty brings to each point."""
    width = block.shape[1]
    variance = np.zeros(len(begin) - 1)
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
                            along = gain[k, a, 0] * gain[other, b, 0]
                            along += gain[k, a, 1] * gain[other, b, 1]
                            along += gain[k, a, 2] * gain[other, b, 2]
                            variance[t] += along * covariance[row, column]
    return variance
