"""Bundle adjustment with an annealed robust loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from proba.refine.bundle import CX, CY, FX, FY, K1, K2, MODEL_PARAMETERS, Bundle, reprojection_errors
from proba.refine.levenberg import minimise
from proba.refine.normal_equations import loss_per_noise
from proba.refine.triangulate import reassess

FINAL_LOSS_PX = (0.3, 2.0)
"""Bounds of the scale of the last robust loss."""
KEEP_PX, KEEP_PER_NOISE = (4.0, 8.0), 4.0
"""Bounds of the largest error of an observation in the result (image of 1024 px), and the same in noise units."""
MIN_ANGLE_DEG = 0.3

_FOCAL_BOUNDS = (0.15, 20.0)
"""Focal length in longest sides (147 to 3 degrees); what leaves these bounds has diverged."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One adjustment, and the judgement of the observations after it. Pixels of a 1024 px image."""

    loss_px: float
    """Scale of the Cauchy loss."""
    keep_px: float
    """Observations with a larger error do not take part in the next round."""
    min_angle_deg: float = 0.0
    """Points seen under a smaller angle do not count as reconstructed."""
    iterations: int = 25
    tolerance: float = 1e-5
    """Stop when the cost falls by a smaller share than this."""


ANNEALED = (
    Round(loss_px=20, keep_px=50, tolerance=1e-3),
    Round(loss_px=6, keep_px=12, tolerance=1e-3),
    Round(loss_px=2, keep_px=4, min_angle_deg=MIN_ANGLE_DEG, tolerance=1e-3),
    Round(loss_px=2, keep_px=4, min_angle_deg=MIN_ANGLE_DEG, tolerance=1e-4),
)
"""From a rough world: the wide loss has a very wide basin (rotations 20 degrees off came back on castle_p19), the
narrow one is accurate. Tighter tolerances took twice the time for the same poses."""

SETTLE = (
    Round(loss_px=4, keep_px=8, tolerance=1e-3),
    Round(loss_px=2, keep_px=4, min_angle_deg=MIN_ANGLE_DEG, tolerance=1e-4),
)
"""From a world that is right up to a few pixels."""


def noise_px(bundle: Bundle) -> float:
    """Standard deviation of a coordinate of the observations that hold, from the median, as the points fit them."""
    error = reprojection_errors(bundle)[bundle.alive]  # [U]
    return float(np.median(error)) / np.sqrt(2 * np.log(2)) if len(error) else 1.0


def noise_round(bundle: Bundle) -> Round:
    """A round whose loss and whose bound are as wide as the noise of the matches."""
    noise = noise_px(bundle)
    return Round(
        loss_px=float(np.clip(loss_per_noise(bundle) * noise, *FINAL_LOSS_PX)),
        keep_px=float(np.clip(KEEP_PER_NOISE * noise, *KEEP_PX)),
        min_angle_deg=MIN_ANGLE_DEG,
    )


@dataclass(frozen=True, kw_only=True)
class Freedom:
    """Which intrinsics the adjustment may change."""

    focal: bool = True
    principal_point: bool = False
    distortion: bool = False

    def columns(self, bundle: Bundle, rich: np.ndarray | None = None) -> np.ndarray:
        """Which intrinsics [C, 6] bool of which camera that concerns: those of its model, and of cameras that are not
        `rich` [C] bool the focal length alone."""
        allowed = np.zeros(6, bool)
        allowed[[FX, FY]], allowed[[CX, CY]], allowed[[K1, K2]] = self.focal, self.principal_point, self.distortion
        free = np.zeros(bundle.intrinsics.shape, bool)
        for camera, model in enumerate(bundle.camera_model):
            columns = list(MODEL_PARAMETERS[model])
            free[camera, columns] = allowed[columns]
        if rich is not None:
            free[~rich, CX:] = False
        return free


def adjust(
    bundle: Bundle,
    rounds: Sequence[Round],
    freedom: Freedom,
    *,
    images: np.ndarray | None = None,
    rich: np.ndarray | None = None,
) -> Bundle:
    """Run the rounds one after the other; each begins with the observations that survived the last.

    Only `images` [N] bool take part. Cameras that are not `rich` [C] bool change their focal lengths alone.
    """
    taking_part = np.ones(bundle.n_images, bool) if images is None else images  # [N]
    free = freedom.columns(bundle, rich)  # [C, 6]
    for step in rounds:
        bundle = _solve(bundle, step, free, taking_part)
        bundle = reassess(bundle, step.keep_px, step.min_angle_deg, images)
    return bundle


def _solve(bundle: Bundle, step: Round, free: np.ndarray, images: np.ndarray) -> Bundle:
    """One adjustment of the observations that hold."""
    used = bundle.alive & images[bundle.tracks.image]  # [K]
    if np.count_nonzero(bundle.alive_per_track(images) >= 2) < 4 or images.sum() < 2:
        return bundle
    bundle = minimise(bundle, used, free, loss_px=step.loss_px, iterations=step.iterations, tolerance=step.tolerance)
    side = bundle.camera_size.max(axis=1)  # [C]
    intrinsics = bundle.intrinsics.copy()
    focal = intrinsics[:, [FX, FY]]  # [C, 2]
    intrinsics[:, [FX, FY]] = np.clip(focal, _FOCAL_BOUNDS[0] * side[:, None], _FOCAL_BOUNDS[1] * side[:, None])
    return replace(bundle, intrinsics=intrinsics)
