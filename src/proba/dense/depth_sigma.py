"""The last step at a pixel: depth between the samples, and its standard deviation from how sharply the patch fits.

In each photo the squared difference of two normalised patches is 2 (1 - correlation). At the best place what is left of
it is noise, spread over the samples of the patch; its curvature along the ray says how far noise can move the place:
variance = noise / curvature, as in least squares. The noise of the patch itself is the same in all pairs of photos, so
that more photos take away only the other half of the variance.
"""

from __future__ import annotations

import numpy as np

from proba.dense.patch_cost import RADIUS, SAMPLES, correlation, reference_patch
from proba.jit import cached_njit

PROBE_PX = 0.5
"""How far the place in the other photo moves between the samples of the correlation."""
GREY_NOISE = 1.5
"""Standard deviation of grey values (of 255) in a good photo: correlations are never better than this allows."""
LEAST_PX = 0.03
"""No place is more certain, because bilinear samples between pixels are not what the lens saw there."""
EVIDENCE = 1.0
"""Standard deviations by which the correlation, in all photos together, must bend more than noise alone would bend it:
bare walls do not pass, also where light falls off along them."""
SILENT = -1e9
NOISE_BEND = 0.6
"""Standard deviation of that bend for noise that fills both patches, times the root of the samples: half the second
difference of three pixels, each patch with half of the noise. Only the noise of a good photo counts: what else two
patches differ by is mostly smooth, and hardly bends anything (with all of it, half of the right depth of noisy photos
was lost)."""
FREEDOM = 3
"""Numbers that are fitted in a patch: brightness, contrast and depth."""
MIN_CORRELATION = 0.4
"""A photo in which a patch fits less well says nothing of it."""


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def _pixels_by_inverse_depth(m, e, x, y, rho):
    """How far, in pixels, the place in another photo moves by unit of inverse depth."""
    q0 = m[0, 0] * x + m[0, 1] * y + m[0, 2] + e[0] * rho
    q1 = m[1, 0] * x + m[1, 1] * y + m[1, 2] + e[1] * rho
    q2 = m[2, 0] * x + m[2, 1] * y + m[2, 2] + e[2] * rho
    du, dv = (e[0] - q0 / q2 * e[2]) / q2, (e[1] - q1 / q2 * e[2]) / q2
    return np.sqrt(du * du + dv * dv)


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def _probe(views, j, x, y, plane, values, weights, noise):
    """Step to the best inverse depth in photo j, its information (1 / variance; 0: none), and by how many standard
    deviations of noise the correlation bends there (SILENT: it says nothing)."""
    sources, sizes, m, e = views[0], views[1], views[2], views[3]
    rho, a, b = plane[0], plane[1], plane[2]
    speed = _pixels_by_inverse_depth(m[j], e[j], x, y, rho)
    here = correlation(sources[j], sizes[j, 0], sizes[j, 1], m[j], e[j], x, y, rho, a, b, values, weights)
    if here < np.float32(MIN_CORRELATION) or speed <= 0:
        return np.float32(0.0), np.float32(0.0), np.float32(SILENT)
    step = np.float32(PROBE_PX) / speed
    before = correlation(sources[j], sizes[j, 0], sizes[j, 1], m[j], e[j], x, y, rho - step, a, b, values, weights)
    after = correlation(sources[j], sizes[j, 0], sizes[j, 1], m[j], e[j], x, y, rho + step, a, b, values, weights)
    left = np.float32(2.0) * (np.float32(1.0) - here) + noise
    square = np.float32(0.0)
    for s in range(SAMPLES):
        square += weights[s] * weights[s]
    freedom = max(np.float32(1.0) / square - np.float32(FREEDOM), np.float32(2.0))
    bend = np.float32(2.0) * here - before - after
    if before <= np.float32(-1.0) or after <= np.float32(-1.0):
        return np.float32(0.0), np.float32(0.0), np.float32(SILENT)
    evidence = bend * np.sqrt(freedom) / (np.float32(NOISE_BEND) * noise)
    if bend <= np.float32(1e-6):
        return np.float32(0.0), np.float32(0.0), evidence
    shift = np.float32(0.5) * (after - before) / bend * step
    variance = left / freedom * step * step / bend + (np.float32(LEAST_PX) / speed) ** 2
    return min(max(shift, -step), step), np.float32(1.0) / variance, evidence


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def settle(grey, views, planes, chosen, sigmas, support, first_row, last_row):
    """Move planes between the samples; fill the deviation of the inverse depth [h, w] (0: none) and in how many
    photos the patch is found [h, w]."""
    values, weights = np.empty(SAMPLES, np.float32), np.empty(SAMPLES, np.float32)
    height, width = grey.shape
    for row in range(first_row, last_row):
        for column in range(width):
            sigmas[row, column], support[row, column] = 0.0, 0
            picked = chosen[row, column]
            if picked[0] < 0 or min(row, column) < RADIUS or row >= height - RADIUS or column >= width - RADIUS:
                continue
            deviation = reference_patch(grey, row, column, values, weights)
            noise = np.float32(2.0) * (np.float32(GREY_NOISE) / max(deviation, np.float32(1e-3))) ** 2
            x, y = np.float32(column), np.float32(row)
            total, moved, count = np.float32(0.0), np.float32(0.0), 0
            evidence, asked = np.float32(0.0), 0
            for k in range(picked.shape[0]):
                if picked[k] < 0:
                    break
                shift, information, bend = _probe(views, picked[k], x, y, planes[row, column], values, weights, noise)
                if bend > np.float32(SILENT):
                    evidence += bend
                    asked += 1
                if information > 0:
                    total += information
                    moved += information * shift
                    count += 1
            if count == 0 or evidence < np.float32(EVIDENCE) * np.sqrt(np.float32(asked)):
                continue
            planes[row, column, 0] += moved / total
            support[row, column] = count
            alone = np.float32(count) / total  # variance of a typical pair of photos
            sigmas[row, column] = np.sqrt(np.float32(0.5) * (alone + np.float32(1.0) / total))
