"""Standard deviations of poses, intrinsics and points: the inverse of the reduced normal equations."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from proba.refine.bundle import FX, FY, Bundle
from proba.refine.linearise import N_POSE
from proba.refine.normal_equations import NormalEquations, parts

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


def camera_uncertainty(bundle: Bundle, equations: NormalEquations) -> CameraUncertainty:
    """Covariance of the cameras, scaled by the variance of the residuals that are left.

    It is relative to the mean of all cameras (least trace), because nothing fixes the world. Residuals of real photos
    are not independent: what the lens model lacks moves neighbours together. So the standard deviation is at least how
    much the parts of the image plane disagree on the cameras (a cluster-robust estimate).
    """
    inverse = equations.inverse(bundle)  # [D, D]
    # The system is weighted, so its inverse is too large by the mean weight.
    covariance = equations.noise2 * equations.mean_weight * inverse
    wider = np.maximum(_disagreement(equations, inverse) / np.sqrt(np.maximum(np.diag(covariance), 1e-30)), 1.0)
    covariance *= wider[:, None] * wider[None]
    covariance += np.diag(np.where(equations.observed, 0.0, UNSEEN_STD**2))
    variance = np.maximum(np.diag(covariance), 0.0)  # [D]
    columns = equations.columns
    intrinsics_var = np.zeros(columns.shape)  # [C, 6]
    intrinsics_var[columns >= 0] = variance[columns[columns >= 0]]
    intrinsics_var[bundle.one_focal, FY] = intrinsics_var[bundle.one_focal, FX]
    return CameraUncertainty(
        noise_px=float(np.sqrt(equations.noise2)),
        covariance=covariance,
        columns=columns,
        pose_std=np.sqrt(variance[: N_POSE * bundle.n_images]).reshape(-1, N_POSE),
        intrinsics_std=np.sqrt(intrinsics_var),
    )


def _disagreement(equations: NormalEquations, inverse: np.ndarray) -> np.ndarray:  # [D]
    """Standard deviation of the cameras if each cell of the image plane is one independent observation."""
    cells = equations.gradients[np.abs(equations.gradients).max(axis=1) > 0]  # [G, D]
    if len(cells) < 2:
        return np.zeros(len(inverse))
    length = equations.mean_weight / max(
        equations.mean_weight2, 1e-12
    )  # Cauchy weights overstate the curvature: it is weight^2 on average
    moves = length * (cells - cells.mean(axis=0)) @ inverse  # [G, D]
    return np.sqrt((moves**2).sum(axis=0) * len(cells) / (len(cells) - 1))


def point_std(bundle: Bundle, cameras: CameraUncertainty, loss_px: float) -> np.ndarray:
    """Standard deviation [T] of each point: root mean square over the axes; infinite for lost points.

    Its own observations and the uncertainty of the cameras that see it both count.
    """
    variances = [np.zeros(0)]
    for part in parts(bundle, cameras.columns, loss_px):
        own = np.trace(part.inverse, axis1=1, axis2=2) * cameras.noise_px**2  # [T']
        variance = own + _camera_variances(part.begin, part.block, part.gain, cameras.covariance)
        variance[np.diff(part.begin) < 2] = np.inf
        variances.append(variance)
    return np.sqrt(np.concatenate(variances) / 3)


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
