"""Standard deviations of poses, intrinsics and points: the inverse of the reduced normal equations.

Parameters of a camera: a small rotation of the camera about its own axes, a shift of its centre along the
world's axes, and the free columns of its intrinsics. Nothing fixes the world (seven gauge freedoms), so the
covariance is the one of least trace: relative to the mean of all cameras, not to an arbitrary first one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from proba.refine.adjust import MODEL_PARAMETERS, Freedom
from proba.refine.bundle import CX, CY, FX, FY, K1, K2, Bundle, points_in_cameras, project

_POSE = 6
_INTRINSICS = 6


@dataclass(frozen=True, kw_only=True)
class Uncertainty:
    """One standard deviation of everything, in unit pixels and scene units."""

    noise_px: float  # robust standard deviation of one image coordinate
    pose_std: np.ndarray  # [N, 6], rotation (rad, camera axes), centre (scene units, world axes)
    intrinsics_std: np.ndarray  # [C, 6], zero for what was held fixed
    point_std: np.ndarray  # [T], root mean square over the axes; infinite for points that were lost


def estimate_uncertainty(bundle: Bundle, freedom: Freedom, loss_px: float) -> Uncertainty:
    """Covariance of the adjusted parameters, scaled by the variance of the residuals that is left."""
    tracks = bundle.tracks
    kept = bundle.alive & (bundle.alive_per_track() >= 2)[tracks.track_of_observation]  # [K]
    residual, jacobian_cam, jacobian_point = _linearise(bundle, kept)
    owner = tracks.track_of_observation[kept]  # [U]
    square = (residual**2).sum(axis=1)  # [U]
    weight = 1 / (1 + square / loss_px**2)  # [U], of the Cauchy loss
    columns = _free_columns(bundle, freedom)  # [C, 6], column in the system, -1: fixed
    n_columns = max(_POSE * bundle.n_images, int(columns.max()) + 1)

    image = tracks.image[kept]  # [U]
    block = _block_columns(bundle, columns)[image]  # [U, 12]
    begin = np.searchsorted(owner, np.arange(tracks.n_tracks + 1))  # [T + 1]
    system, inverse, gain = _reduce(begin, block, weight, jacobian_cam, jacobian_point, n_columns)
    n_points = np.count_nonzero(np.diff(begin) >= 2)
    degrees = max(2 * len(owner) - 3 * n_points - n_columns + 7, 1)
    # Variance of an M-estimator: E[psi^2] / E[psi']^2, and psi' of the Cauchy loss averages to weight^2.
    noise2 = float((weight**2 * square).sum() / degrees / np.mean(weight**2) ** 2)
    scale = noise2 * float(weight.mean())  # the system is weighted, so its inverse is too large by the mean weight

    covariance = _gauge_free_inverse(system, _gauge_directions(bundle, n_columns))  # [D, D]
    own = np.trace(inverse, axis1=1, axis2=2)  # [T]
    point_var = scale / 3 * (own + _camera_variances(begin, block, gain, covariance))  # [T]
    point_var[np.diff(begin) < 2] = np.inf
    covariance *= scale
    variance = np.maximum(np.diag(covariance), 0.0)
    intrinsics_var = np.where(columns >= 0, variance[np.maximum(columns, 0)], 0.0)  # [C, 6]
    square_pixels = np.array([FY not in MODEL_PARAMETERS[model] for model in bundle.camera_model])
    intrinsics_var[square_pixels, FY] = intrinsics_var[square_pixels, FX]
    return Uncertainty(
        noise_px=float(np.sqrt(noise2)),
        pose_std=np.sqrt(variance[: _POSE * bundle.n_images]).reshape(-1, _POSE),
        intrinsics_std=np.sqrt(intrinsics_var),
        point_std=np.sqrt(point_var),
    )


def _linearise(bundle: Bundle, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals [U, 2] and Jacobians by camera [U, 2, 12] (pose, intrinsics) and point [U, 2, 3]."""
    projected, _ = project(bundle)
    residual = (projected - bundle.tracks.xy)[kept]  # [U, 2]
    image = bundle.tracks.image[kept]  # [U]
    x, y, z = points_in_cameras(bundle)[kept].T  # [U] each
    k = bundle.intrinsics[bundle.camera_of_image[image]]  # [U, 6]
    ray = np.stack([x / z, y / z], axis=1)  # [U, 2]
    square = (ray**2).sum(axis=1)  # [U]
    factor = 1 + square * (k[:, K1] + square * k[:, K2])  # [U]
    slope = 2 * (k[:, K1] + 2 * square * k[:, K2])  # [U], d factor = slope * ray . d ray
    focal = k[:, [FX, FY]]  # [U, 2]
    by_ray = focal[:, :, None] * (
        factor[:, None, None] * np.eye(2) + slope[:, None, None] * ray[:, :, None] * ray[:, None, :]
    )  # [U, 2, 2]
    zero = np.zeros_like(z)
    ray_by_point = np.stack(
        [np.stack([1 / z, zero, -x / z**2], axis=1), np.stack([zero, 1 / z, -y / z**2], axis=1)], axis=1
    )  # [U, 2, 3]
    by_cam_point = by_ray @ ray_by_point  # [U, 2, 3]
    rotation = bundle.cam_from_world[image, :3, :3]  # [U, 3, 3]
    by_point = by_cam_point @ rotation  # [U, 2, 3]
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)  # [U, 3, 3], p x .
    by_intrinsics = np.zeros((len(image), 2, _INTRINSICS))
    by_intrinsics[:, 0, FX] = factor * ray[:, 0]
    by_intrinsics[:, 1, FY] = factor * ray[:, 1]
    by_intrinsics[:, 0, CX] = by_intrinsics[:, 1, CY] = 1
    by_intrinsics[:, :, K1] = focal * ray * square[:, None]
    by_intrinsics[:, :, K2] = focal * ray * square[:, None] ** 2
    # Square pixels have one focal length: its column is the sum of both.
    one_focal = np.array([FY not in MODEL_PARAMETERS[model] for model in bundle.camera_model])
    shared = one_focal[bundle.camera_of_image[image]]  # [U]
    by_intrinsics[shared, 1, FX] = by_intrinsics[shared, 1, FY]
    by_intrinsics[shared, 1, FY] = 0
    return residual, np.concatenate([-by_cam_point @ cross, -by_point, by_intrinsics], axis=2), by_point


def _free_columns(bundle: Bundle, freedom: Freedom) -> np.ndarray:
    """Column [C, 6] of each free intrinsic in the system, after all poses; -1 where it is fixed."""
    free = np.zeros((bundle.n_cameras, _INTRINSICS), bool)
    for camera, model in enumerate(bundle.camera_model):
        allowed = MODEL_PARAMETERS[model]
        free[camera, [c for c in allowed if c in (FX, FY)]] = freedom.focal
        free[camera, [c for c in allowed if c in (CX, CY)]] = freedom.principal_point
        free[camera, [c for c in allowed if c in (K1, K2)]] = freedom.distortion
    columns = np.full(free.shape, -1)
    columns[free] = _POSE * bundle.n_images + np.arange(free.sum())
    return columns


def _block_columns(bundle: Bundle, columns: np.ndarray) -> np.ndarray:
    """System columns [N, 12] of each image's pose and intrinsics."""
    pose = np.arange(_POSE * bundle.n_images).reshape(-1, _POSE)
    return np.concatenate([pose, columns[bundle.camera_of_image]], axis=1)


def _gauge_directions(bundle: Bundle, n_columns: int) -> np.ndarray:
    """Orthonormal directions [D, 7] in which the world can move without any residual changing."""
    centres = bundle.centres - bundle.centres.mean(axis=0)  # [N, 3]
    rotation = bundle.cam_from_world[:, :3, :3]  # [N, 3, 3]
    directions = np.zeros((bundle.n_images, _POSE, 7))
    directions[:, 3:, :3] = np.eye(3)  # shift
    for axis in range(3):  # turn about a world axis: R <- R exp(-w), C <- C + w x C
        turn = np.eye(3)[axis]
        directions[:, :3, 3 + axis] = -rotation @ turn
        directions[:, 3:, 3 + axis] = np.cross(turn, centres)
    directions[:, 3:, 6] = centres  # scale
    full = np.zeros((n_columns, 7))
    full[: _POSE * bundle.n_images] = directions.reshape(-1, 7)
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


def _reduce(
    begin: np.ndarray,
    block: np.ndarray,
    weight: np.ndarray,
    jacobian_cam: np.ndarray,
    jacobian_point: np.ndarray,
    n_columns: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Schur complement [D, D] of the points, their inverse blocks [T, 3, 3], and gains [U, 12, 3].

    The gain of an observation is its coupling of camera and point times the inverse block of the point.
    """
    length = np.diff(begin)  # [T]
    owner = np.repeat(np.arange(len(length)), length)  # [U]
    weighted = weight[:, None, None] * jacobian_cam.transpose(0, 2, 1)  # [U, 12, 2]
    by_point = weight[:, None, None] * jacobian_point.transpose(0, 2, 1) @ jacobian_point  # [U, 3, 3]
    blocks = np.tile(np.eye(3), (len(length), 1, 1))  # [T, 3, 3], identity where nothing is observed
    if len(owner):
        blocks[length > 0] = np.add.reduceat(by_point, begin[:-1][length > 0], axis=0)
    blocks += 1e-12 * np.trace(blocks, axis1=1, axis2=2)[:, None, None] * np.eye(3)
    inverse = np.linalg.inv(blocks)  # [T, 3, 3]
    coupling = weighted @ jacobian_point  # [U, 12, 3]
    gain = coupling @ inverse[owner]  # [U, 12, 3]
    system = np.zeros((n_columns, n_columns))
    _add_own(system, block, weighted @ jacobian_cam)
    _subtract_pairs(system, begin, block, gain, coupling)
    return system, inverse, gain


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
