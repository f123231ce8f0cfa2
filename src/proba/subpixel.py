"""Sub-pixel places: a patch of the first image is found again in the second by its grey values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from proba.jit import cached_njit

SMOOTHING_PX = 0.7
"""Bilinear sampling of unsmoothed pixels draws places to integers."""
CONVERGED_PX = 0.01


@dataclass(frozen=True, kw_only=True)
class SubpixelOptions:
    """Inverse-compositional Lucas-Kanade with free brightness and contrast."""

    radius: int = 6
    """Half the side of the patch, pixels."""
    iterations: int = 12
    max_move_px: float = 4.0
    """A patch that wanders farther has found something else."""
    min_correlation: float = 0.8
    """Normalised cross-correlation at the final place."""
    noise: float = 2.5
    """Standard deviation of grey values, of 255."""
    bend: float = 0.0
    """Standard deviation of what the elements of the given affine maps may be off; 0: they hold."""
    max_std_px: float = 0.2
    """Patches whose place is less certain for that noise (no texture, or a mere edge) are not trusted."""


class Refined(NamedTuple):
    """Places after the search."""

    points_j: np.ndarray  # [M, 2] float32, pixels with integer centres
    good: np.ndarray  # [M] bool
    correlation: np.ndarray  # [M] float32


def smoothed(grey: np.ndarray) -> np.ndarray:  # [h, w] float32
    """What the search expects of grey values [h, w] uint8."""
    import cv2

    return cv2.GaussianBlur(grey.astype(np.float32), (0, 0), SMOOTHING_PX)


def refine_places(
    grey_i: np.ndarray,
    grey_j: np.ndarray,
    points_i: np.ndarray,
    points_j: np.ndarray,
    affine: np.ndarray,
    options: SubpixelOptions | None = None,
) -> Refined:
    """Move `points_j` [M, 2] to where the patches around `points_i` [M, 2] fit best.

    Images are [h, w], see `smoothed`; points have integer pixel centres. `affine` [M, 2, 2] takes a small step
    in image i to the step in image j.
    """
    options = options or SubpixelOptions()
    found = points_j.astype(np.float64).copy()
    correlation = np.full(len(found), -1.0)
    std_px = np.full(len(found), np.inf)
    _search(
        grey_i, grey_j, points_i.astype(np.float64), found, affine.astype(np.float64), correlation, std_px,
        options.radius, options.iterations, options.max_move_px, options.noise, options.bend,
    )  # fmt: skip
    good = (correlation >= options.min_correlation) & (std_px <= options.max_std_px)
    return Refined(found.astype(np.float32), good, correlation.astype(np.float32))


@cached_njit(nogil=True)
def _bilinear(image, x, y):
    column, row = int(x), int(y)
    u, v = x - column, y - row
    above = image[row, column] * (1 - u) + image[row, column + 1] * u
    below = image[row + 1, column] * (1 - u) + image[row + 1, column + 1] * u
    return above * (1 - v) + below * v


@cached_njit(nogil=True)
def _normalise(values):
    """To mean 0 and length 1, in place; returns the length before."""
    mean = values.mean()
    length = 0.0
    for k in range(len(values)):
        values[k] -= mean
        length += values[k] * values[k]
    length = np.sqrt(length)
    for k in range(len(values)):
        values[k] /= length + 1e-9
    return length


@cached_njit(nogil=True)
def _template(grey, x0, y0, radius, template, slope):
    """Grey values [P] around a point, and their slopes [P, 2 or 6] with respect to a shift and an affine map."""
    k = 0
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            x, y = x0 + dx, y0 + dy
            template[k] = _bilinear(grey, x, y)
            slope_x = 0.5 * (_bilinear(grey, x + 1, y) - _bilinear(grey, x - 1, y))
            slope_y = 0.5 * (_bilinear(grey, x, y + 1) - _bilinear(grey, x, y - 1))
            slope[k, 0], slope[k, 1] = slope_x, slope_y
            if slope.shape[1] > 2:
                slope[k, 2], slope[k, 3] = slope_x * dx, slope_x * dy
                slope[k, 4], slope[k, 5] = slope_y * dx, slope_y * dy
            k += 1


@cached_njit(nogil=True)
def _warped(grey, u, v, warp, radius, patch):
    """Grey values [P] around a point, on a grid that an affine map has bent."""
    k = 0
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            x, y = u + warp[0, 0] * dx + warp[0, 1] * dy, v + warp[1, 0] * dx + warp[1, 1] * dy
            patch[k] = _bilinear(grey, x, y)
            k += 1


@cached_njit(nogil=True)
def _search(grey_i, grey_j, points_i, points_j, affine, correlation, std_px, radius, iterations, max_move, noise, bend):
    """Inverse compositional: slopes and normal equations of the first image's patch serve all iterations."""
    height_i, width_i = grey_i.shape
    height_j, width_j = grey_j.shape
    side = 2 * radius + 1
    template, patch = np.zeros(side * side), np.zeros(side * side)
    slope = np.zeros((side * side, 6 if bend > 0 else 2))  # with respect to a shift, and to the four of the affine map
    prior = 2 * (noise / bend) ** 2 if bend > 0 else 0.0
    for m in range(len(points_i)):
        x0, y0 = points_i[m]
        if min(x0, y0) < radius + 1 or x0 > width_i - radius - 3 or y0 > height_i - radius - 3:
            continue
        _template(grey_i, x0, y0, radius, template, slope)
        contrast = _normalise(template)
        for c in range(slope.shape[1]):
            slope[:, c] -= slope[:, c].mean()  # brightness is free
        normal = slope.T @ slope
        for c in range(2, slope.shape[1]):
            normal[c, c] += prior
        if contrast <= 1e-6 or np.linalg.cond(normal) > 1e9:
            continue
        inverse = np.linalg.inv(normal)
        half, difference = 0.5 * (inverse[0, 0] + inverse[1, 1]), 0.5 * (inverse[0, 0] - inverse[1, 1])
        widest = half + np.sqrt(difference**2 + inverse[0, 1] ** 2)  # larger eigenvalue of the shift's variance
        std_px[m] = noise * np.sqrt(2 * widest)  # noise in both images
        gain = contrast * (
            inverse @ slope.T
        )  # residuals in grey values of the template, so that slopes need no scaling
        warp = affine[m].copy()
        u, v = points_j[m]
        for _ in range(iterations + 1):
            reach_x = radius * (abs(warp[0, 0]) + abs(warp[0, 1]))
            reach_y = radius * (abs(warp[1, 0]) + abs(warp[1, 1]))
            outside = u < reach_x or v < reach_y or u > width_j - reach_x - 2 or v > height_j - reach_y - 2
            if outside or abs(u - points_j[m, 0]) > max_move or abs(v - points_j[m, 1]) > max_move:
                correlation[m] = -1.0
                break
            _warped(grey_j, u, v, warp, radius, patch)
            if _normalise(patch) <= 1e-6:
                correlation[m] = -1.0
                break
            correlation[m] = (patch * template).sum()
            step = gain @ (patch - template)
            if abs(step[0]) < CONVERGED_PX and abs(step[1]) < CONVERGED_PX:
                break
            if bend > 0:
                warp = warp @ np.linalg.inv(np.array([[1 + step[2], step[3]], [step[4], 1 + step[5]]]))
            u, v = u - (warp[0, 0] * step[0] + warp[0, 1] * step[1]), v - (warp[1, 0] * step[0] + warp[1, 1] * step[1])
        if correlation[m] > -1.0:
            points_j[m, 0], points_j[m, 1] = u, v
