"""Bundle adjustment with an annealed robust loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from proba.geometry.camera import CX, CY, FX, FY, K1, MODELS, WIDTH
from proba.refine.bundle import Bundle, reprojection_errors
from proba.refine.levenberg import minimise
from proba.refine.options import AdjustOptions, Round
from proba.refine.triangulate import reassess

MOST_FREE = 8
"""Intrinsics of a camera that may be free at a time: a row of the compiled equations has room for as many. The last
ones of FULL_OPENCV and THIN_PRISM_FISHEYE stay as they are."""


def noise_px(bundle: Bundle) -> float:
    """Standard deviation of a coordinate of the observations that hold, from the median, as the points fit them."""
    error = reprojection_errors(bundle)[bundle.alive]  # [U]
    return float(np.median(error)) / np.sqrt(2 * np.log(2)) if len(error) else 1.0


def noise_round(bundle: Bundle, options: AdjustOptions) -> Round:
    """A round whose loss and whose bound are as wide as the noise of the matches."""
    noise = noise_px(bundle)
    return Round(
        loss_px=float(np.clip(loss_per_noise(bundle, options) * noise, *options.last_loss_px)),
        keep_px=float(np.clip(options.keep_per_noise * noise, *options.keep_px)),
        min_angle_deg=options.min_angle_deg,
    )


def loss_per_noise(bundle: Bundle, options: AdjustOptions) -> float:
    """Scale of the last robust losses in standard deviations of the noise."""
    return options.loss_per_noise_of_collections if bundle.many_cameras else options.loss_per_noise


def assumed_noise_px(bundle: Bundle, loss_px: float, options: AdjustOptions) -> float:
    """The noise for which a loss of this scale is meant; priors are weighed against it."""
    return loss_px / loss_per_noise(bundle, options)


@dataclass(frozen=True, kw_only=True)
class Freedom:
    """Which intrinsics the adjustment may change."""

    focal: bool = True
    """Where they are not held: those are not free in any case."""
    principal_point: bool = False
    distortion: bool = False

    def columns(self, bundle: Bundle, rich: np.ndarray | None = None) -> np.ndarray:
        """Which intrinsics [C, WIDTH] bool of which camera that concerns: those of its model, and of cameras that are
        not `rich` [C] bool the focal length alone. Of calibrated cameras those that are not held."""
        allowed = np.zeros(WIDTH, bool)
        allowed[[FX, FY]], allowed[[CX, CY]], allowed[K1:] = self.focal, self.principal_point, self.distortion
        free = np.zeros(bundle.intrinsics.shape, bool)
        for camera, model in enumerate(bundle.camera_model):
            columns = list(MODELS[model])
            free[camera, columns] = allowed[columns]
        free[bundle.square, FY] = False
        free[bundle.held, FX] = free[bundle.held, FY] = False
        if rich is not None:
            free[~rich, CX:] = False
        if bundle.calibration_sigma is not None and self.focal:
            told = bundle.calibrated
            free[told] = bundle.calibration_sigma[told] > 0
        free[(free.cumsum(axis=1) > MOST_FREE)] = False
        return free


def adjust(
    bundle: Bundle,
    rounds: Sequence[Round],
    freedom: Freedom,
    options: AdjustOptions,
    *,
    images: np.ndarray | None = None,
    rich: np.ndarray | None = None,
) -> Bundle:
    """Run the rounds one after the other; each begins with the observations that survived the last.

    Only `images` [N] bool take part. Cameras that are not `rich` [C] bool change their focal lengths alone.
    """
    taking_part = np.ones(bundle.n_images, bool) if images is None else images  # [N]
    free = freedom.columns(bundle, rich)  # [C, WIDTH]
    for step in rounds:
        bundle = _solve(bundle, step, free, taking_part, options)
        bundle = reassess(bundle, step.keep_px, step.min_angle_deg, images)
    return bundle


def _solve(bundle: Bundle, step: Round, free: np.ndarray, images: np.ndarray, options: AdjustOptions) -> Bundle:
    """One adjustment of the observations that hold."""
    used = bundle.alive & images[bundle.tracks.image]  # [K]
    if np.count_nonzero(bundle.alive_per_track(images) >= 2) < 4 or images.sum() < 2:
        return bundle
    bundle = minimise(
        bundle,
        used,
        free,
        loss_px=step.loss_px,
        noise_px=assumed_noise_px(bundle, step.loss_px, options),
        iterations=step.iterations,
        tolerance=step.tolerance,
    )
    side = bundle.camera_size.max(axis=1)  # [C]
    intrinsics = bundle.intrinsics.copy()
    shortest, longest = (bound * side[:, None] for bound in options.focal_bounds)  # [C, 1] each
    intrinsics[:, [FX, FY]] = np.clip(intrinsics[:, [FX, FY]], shortest, longest)
    return replace(bundle, intrinsics=intrinsics)
