"""Standard deviations of poses, intrinsics and points: the inverse of the reduced normal equations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from proba.geometry.camera import FX, FY
from proba.refine.block_matrix import BlockMatrix, Blocks
from proba.refine.bundle import Bundle, reprojection_errors
from proba.refine.gauge_free import bodies_of, gauge_free_inverse
from proba.refine.normal_equations import N_POSE, Equations
from proba.refine.options import UncertaintyOptions
from proba.refine.rig import Rig
from proba.refine.rig_equations import Tie


@dataclass(frozen=True, kw_only=True)
class CameraUncertainty:
    """Covariance of poses and intrinsics, in unit pixels and scene units."""

    noise_px: float  # robust standard deviation of one image coordinate
    covariance: BlockMatrix  # [D, D], poses first, then the free intrinsics
    pose_std: np.ndarray  # [N, 6], rotation (rad, camera axes), centre (scene units, world axes)
    intrinsics_std: np.ndarray  # [C, WIDTH], zero for what was held fixed
    intrinsics_wider: np.ndarray  # [C, WIDTH], how many times as much as independent residuals would give, at least 1
    sensor_std: np.ndarray | None = (
        None  # [S, 6], of the sensors of a rig: rotation (rad), centre (rig axes); None: no rig
    )


def camera_uncertainty(
    bundle: Bundle,
    free: np.ndarray,
    loss_px: float,
    noise_px: float,
    options: UncertaintyOptions,
    blocks: Blocks | None = None,
) -> CameraUncertainty:
    """Covariance of the cameras, scaled by the variance of the residuals that are left.

    `free` [C, WIDTH] bool are the free intrinsics; `noise_px` weighs their priors. It is relative to the mean of all
    cameras (least trace), because nothing fixes the world. Residuals of real photos are not independent: what the lens
    model lacks moves neighbours together. So the standard deviation is at least how much the parts of the image plane
    disagree on the cameras (a cluster-robust estimate). `blocks` are those that the covariance shall have, if more than
    the observations of the bundle couple.
    """
    equations = Equations(bundle, bundle.alive, free, loss_px, noise_px, blocks)
    reduced = equations.reduced(bundle, group=_cell_of_track(bundle, options.cells)[equations.points])
    tie = None if bundle.rig is None else Tie(bundle.rig, equations)
    tied = None if tie is None else tie.at(bundle)
    if tied is not None and bundle.rig is not None:
        reduced = tied.reduced(reduced, bundle.rig)  # from here on D counts the unknowns of frames and sensors
    columns = equations.columns + (0 if tie is None else tie.shift)  # [C, WIDTH]
    observed = reduced.diagonal > 0  # [D]
    square = reprojection_errors(bundle)[equations.used] ** 2  # [U]
    weight = 1 / (1 + square / loss_px**2)  # [U]
    parameters = 3 * len(equations.points) + len(observed) - 7
    noise2, curvature, overstated = _robust_noise(square, weight, parameters)
    plan = equations.plan if tie is None else tie.plan
    inverse = gauge_free_inverse(bodies_of(bundle), reduced.system, observed, plan)
    length = overstated / curvature
    moves = _disagreement(reduced.gradients, inverse.times)  # [D]
    wider = length * moves / np.sqrt(np.maximum(noise2 * overstated * inverse.stored.diagonal, 1e-30))
    wider = np.maximum(wider, 1.0)  # [D]
    # A prior that weighs more because residuals err together says by how much; they no longer show it themselves.
    told = free[:, FX] & np.isfinite(bundle.focal_prior_sigma)  # [C]
    strength = np.sqrt(bundle.prior[told, FX]) * bundle.focal_prior_sigma[told]
    wider[columns[told, FX]] = np.maximum(wider[columns[told, FX]], strength)
    spread = inverse.stored.scaled(wider * np.sqrt(noise2 * overstated))
    covariance = spread.raised(np.where(observed, 0.0, options.unseen_std**2))
    sensor_std = None
    if tied is not None and bundle.rig is not None:
        sensor_std = _sensor_std(covariance.diagonal, bundle.rig)
        covariance = tied.covariance(covariance)
    variance = np.maximum(covariance.diagonal, 0.0)  # [D] of the images
    intrinsics_var = np.zeros(free.shape)  # [C, WIDTH]
    intrinsics_var[free] = variance[equations.columns[free]]
    intrinsics_var[bundle.one_focal, FY] = intrinsics_var[bundle.one_focal, FX]
    intrinsics_wider = np.ones(free.shape)  # [C, WIDTH]
    intrinsics_wider[free] = wider[columns[free]]
    return CameraUncertainty(
        noise_px=noise2**0.5,
        covariance=covariance,
        pose_std=np.sqrt(variance[: N_POSE * bundle.n_images]).reshape(-1, N_POSE),
        intrinsics_std=np.sqrt(intrinsics_var),
        intrinsics_wider=intrinsics_wider,
        sensor_std=sensor_std,
    )


def _sensor_std(variance: np.ndarray, rig: Rig) -> np.ndarray:  # [S, 6]
    """Standard deviations of the sensors, from the variances [D] of all unknowns; zero for those that are held."""
    std = np.zeros((rig.n_sensors, N_POSE))
    first = N_POSE * rig.n_frames
    std[rig.free] = np.sqrt(np.maximum(variance[first : first + N_POSE * int(rig.free.sum())], 0)).reshape(-1, N_POSE)
    return std


def point_std(bundle: Bundle, cameras: CameraUncertainty, free: np.ndarray, loss_px: float) -> np.ndarray:
    """Standard deviation [T] of each point: root mean square over the axes; infinite for lost points.

    Its own observations and the uncertainty of the cameras that see it both count.
    """
    equations = Equations(bundle, bundle.alive, free, loss_px, cameras.noise_px)
    variance = np.full(bundle.tracks.n_tracks, np.inf)
    variance[equations.points] = equations.point_variances(bundle, cameras.noise_px**2, cameras.covariance)
    return np.sqrt(variance / 3)


def _robust_noise(square: np.ndarray, weight: np.ndarray, parameters: int) -> tuple[float, float, float]:
    """Variance of a coordinate as the Cauchy loss sees it, the loss's mean curvature, and what the weights say of that.

    E[psi^2] / E[psi']^2 of squared errors [U] with their weights [U], after fitting `parameters`. In the plane the
    curvature is weight^2 on average, which a system of weighted residuals overstates. Fitted residuals choose weights
    that suit them, the more the fewer there are to a parameter: Huber's correction (Robust Statistics, 7.6) for the
    scatter of the curvature, over observations and directions. With three views of a point it makes the deviations
    1.15 times as large; the scatter of a focal length over 200 noises was 1.18 +- 0.06 times what they were without.
    """
    if not len(weight):
        return 0.0, 1.0, 1.0
    coordinates = 2 * len(weight)
    curvature = max(float((weight**2).mean()), 1e-12)
    scatter = float((weight**4 + (weight * (1 - weight)) ** 2).mean()) / curvature**2 - 1
    correction = 1 + min(parameters / coordinates, 1.0) * scatter
    noise2 = float((weight**2 * square).sum()) / max(coordinates - parameters, 1) / curvature**2
    return correction**2 * noise2, curvature, float(weight.mean())


def _cell_of_track(bundle: Bundle, side: int) -> np.ndarray:  # [T]
    """Cell of the image plane, with `side` cells along a side, where each track begins."""
    tracks, start = bundle.tracks, bundle.tracks.offset[:-1]
    relative = tracks.xy[start] / bundle.camera_size[bundle.camera_of_image[tracks.image[start]]]  # [T, 2], in [0, 1]
    column, row = np.clip(relative * side, 0, side - 1).astype(np.int64).T  # [T] each
    return row * side + column


def _disagreement(gradients: np.ndarray, moved: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:  # [D]
    """Standard deviation of the cameras if each cell of the image plane [G, D] is one independent observation; `moved`
    says where gradients move the cameras."""
    cells = gradients[np.abs(gradients).max(axis=1) > 0]  # [G', D]
    if len(cells) < 2:
        return np.zeros(gradients.shape[1])
    moves = moved(cells - cells.mean(axis=0))  # [G', D]
    return np.sqrt((moves**2).sum(axis=0) * len(cells) / (len(cells) - 1))
