"""Whether one camera model explains the observations better than another, beyond what chance gives."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtr

from proba.geometry.camera import CX, CY, distorted
from proba.refine.bundle import Bundle, reprojection_errors
from proba.refine.options import CameraModelOptions


def evidence(old: Bundle, new: Bundle, n_parameters: int, options: CameraModelOptions) -> float:
    """Gain of the log-likelihood ratio over the penalty, on the observations that hold in both bundles.

    An observation that holds in one only is a wrong match that found friends by chance more often than not.
    """
    common = old.alive & new.alive  # [K]
    n_tracks = np.count_nonzero(np.bincount(old.tracks.track_of_observation[common]) >= 2)
    freedom = 2 * np.count_nonzero(common) - 3 * n_tracks - 6 * old.n_images
    if freedom <= 0:
        return -np.inf
    # Every point is fitted too, which makes residuals too small; the ratio of counts undoes that.
    shrink = freedom / (2 * np.count_nonzero(common))
    old_error, new_error = reprojection_errors(old)[common], reprojection_errors(new)[common]
    noise2 = np.median(old_error**2) / (2 * np.log(2)) / shrink + 1e-12  # variance of one coordinate
    penalty = options.bic_factor * n_parameters * np.log(freedom) + freedom * options.min_systematic_px**2 / noise2
    gain = _robust_nll(old_error).sum() - _robust_nll(new_error).sum()
    return float(2 * shrink * gain - penalty)


def gains_in_every_image(old: Bundle, new: Bundle, cameras: np.ndarray, max_chance: float) -> bool:
    """Whether the log-likelihood gains in about every image of `cameras` [C] bool: Student's test.

    Of the square roots of the images' gains: a few images that gain most are no disagreement.
    """
    common = old.alive & new.alive & cameras[old.camera_of_image[old.tracks.image]]  # [K]
    image = old.tracks.image[common]
    gain = _robust_nll(reprojection_errors(old)[common]) - _robust_nll(reprojection_errors(new)[common])
    total = np.bincount(image, gain, old.n_images)[np.unique(image)]  # [N]
    root, n = np.sign(total) * np.sqrt(np.abs(total)), len(total)  # [N]
    student = root.mean() / (root.std(ddof=1) / np.sqrt(n) + 1e-12)
    return bool(stdtr(n - 1, -student) < max_chance)


def real_cameras(bundle: Bundle, options: CameraModelOptions) -> bool:
    """Whether the fitted principal points and distortions are those of a real camera."""
    side = bundle.camera_size.max(axis=1)  # [C]
    centre = bundle.camera_size / 2  # [C, 2]
    shift = np.linalg.norm(bundle.intrinsics[:, [CX, CY]] - centre, axis=1)  # [C]
    radius = np.sqrt(_outer2(bundle))  # [C]
    lenses = list(zip(radius, bundle.intrinsics, bundle.fisheye, strict=True))
    edge, slope = np.array([_at_radius(*lens) for lens in lenses]).T  # [C] each
    near, mild = (shift < options.max_shift * side).all(), (edge < options.max_edge_distortion).all()
    return bool(near and mild and (slope > options.min_edge_slope).all())


def _at_radius(radius: float, k: np.ndarray, fisheye: bool) -> tuple[float, float]:
    """Relative displacement at a radius on the plane of the lens, at most over the directions, and the least slope."""
    turn = np.linspace(0, 2 * np.pi, 8, endpoint=False)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)  # [8, 2]
    step = 1e-3 * radius
    at, before = (distorted(circle * r, k, bool(fisheye)) for r in (radius, radius - step))
    edge = np.linalg.norm(at - circle * radius, axis=1) / radius
    slope = ((at - before) * circle).sum(axis=1) / step
    return float(edge.max()), float(slope.min())


def _outer2(bundle: Bundle) -> np.ndarray:  # [C]
    """Squared radius up to which a lens must be real: the image corner; of a fisheye, whose corners may be dark, as far
    as it sees anything."""
    square = corner2(bundle)
    for c in np.flatnonzero(bundle.fisheye):
        mine = bundle.alive & (bundle.camera_of_image[bundle.tracks.image] == c)
        if mine.any():
            place = (bundle.tracks.xy[mine] - bundle.intrinsics[c, [CX, CY]]) / bundle.intrinsics[c, :2]
            square[c] = min(square[c], float(np.quantile((place**2).sum(axis=1), 0.99)))
    return square


def corner2(bundle: Bundle) -> np.ndarray:  # [C]
    """Squared radius of the ray of the image corner."""
    return ((bundle.camera_size / 2 / bundle.intrinsics[:, :2]) ** 2).sum(axis=1)


def _robust_nll(error: np.ndarray) -> np.ndarray:
    """Negative log-likelihoods of errors [K] under a 2D Cauchy density with its most likely scale."""
    square = np.minimum(error, 1e3) ** 2
    scale2 = np.median(square) + 1e-12
    for _ in range(30):  # expectation maximisation of the scale
        scale2 = np.mean(3 * square / (1 + square / scale2)) / 2 + 1e-12
    return np.log(scale2) + 1.5 * np.log1p(square / scale2)
