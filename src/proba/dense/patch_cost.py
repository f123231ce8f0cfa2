"""How well a slanted patch of one photo fits another: weighted zero-mean normalised correlation.

A hypothesis at a pixel is a plane (rho, a, b): inverse depth at the pixel, and its slopes by pixel along x and y. The
inverse depth of a plane is linear in the pixels, so a plane is handed to a neighbour by adding its slopes, and the
place of a pixel in another photo is m [3, 3] @ (x, y, 1) + e [3] * inverse depth, up to scale. Pixels here are numbers
of columns and rows: the centre of the first is (0, 0).
"""

from __future__ import annotations

import numpy as np

from proba.jit import cached_njit

RADIUS = 5
"""Half the side of a patch, pixels: 11 x 11."""
STEP = 2
"""Every second row and column of a patch is looked at: a quarter of the work for nearly the same answer."""
WORST = 1.0
"""Cost of a photo that does not show the patch: that of two that have nothing in common. A worse match tells no more,
so that a photo whose view is blocked cannot outvote the others."""
COLOUR_SIGMA = 40.0
"""Pixels that differ so much in grey from the one in the middle (of 255) count a sixteenth: they may lie on another
surface."""
SPATIAL_SIGMA_PX = 4.0

_side = np.arange(-RADIUS, RADIUS + 1, STEP)
_grid = np.stack(np.meshgrid(_side, _side), axis=-1).reshape(-1, 2)  # [36, 2]
_round = _grid[np.abs(_grid).sum(axis=1) < 2 * RADIUS]  # without the corners 32 are left, four full vectors of eight
ACROSS, DOWN = np.ascontiguousarray(_round.T).astype(np.float32)  # [S]
SPATIAL = np.exp(-(_round**2).sum(axis=1) / (2 * SPATIAL_SIGMA_PX**2)).astype(np.float32)  # [S]
SAMPLES = len(_round)


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def reference_patch(grey, row, column, values, weights):
    """Fill weights [S] (sum 1) and values [S] (weighted mean 0, weighted length 1); returns the deviation in grey."""
    height, width = grey.shape
    centre = grey[row, column]
    total = np.float32(0.0)
    mean = np.float32(0.0)
    for s in range(SAMPLES):
        y = min(max(row + int(DOWN[s]), 0), height - 1)
        x = min(max(column + int(ACROSS[s]), 0), width - 1)
        value = grey[y, x]
        apart = (value - centre) * np.float32(1 / COLOUR_SIGMA)
        near = np.float32(1.0) / (np.float32(1.0) + apart * apart)
        weight = SPATIAL[s] * near * near * near * near
        values[s], weights[s] = value, weight
        total += weight
        mean += weight * value
    mean /= total
    square = np.float32(0.0)
    for s in range(SAMPLES):
        weights[s] /= total
        values[s] -= mean
        square += weights[s] * values[s] * values[s]
    deviation = np.sqrt(square)
    for s in range(SAMPLES):
        values[s] /= deviation + np.float32(1e-6)
    return deviation


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def correlation(source, width, height, m, e, x, y, rho, a, b, values, weights):
    """Of a patch (see `reference_patch`) with where a plane puts it in another photo; -1: not inside that photo.

    `source` [H * W] is row by row, `width` and `height` the size of the photo, `m` [3, 3] and `e` [3] its camera.
    """
    q0 = m[0, 0] * x + m[0, 1] * y + m[0, 2] + e[0] * rho
    q1 = m[1, 0] * x + m[1, 1] * y + m[1, 2] + e[1] * rho
    q2 = m[2, 0] * x + m[2, 1] * y + m[2, 2] + e[2] * rho
    if q2 <= np.float32(1e-6):
        return np.float32(-1.0)
    scale = np.float32(1.0) / q2
    u, v = q0 * scale, q1 * scale
    # Within a patch the homography is as good as affine.
    ux, uy = (m[2, 0] + e[2] * a), (m[2, 1] + e[2] * b)
    du_dx, du_dy = (m[0, 0] + e[0] * a - u * ux) * scale, (m[0, 1] + e[0] * b - u * uy) * scale
    dv_dx, dv_dy = (m[1, 0] + e[1] * a - v * ux) * scale, (m[1, 1] + e[1] * b - v * uy) * scale
    reach_u = RADIUS * (abs(du_dx) + abs(du_dy))
    reach_v = RADIUS * (abs(dv_dx) + abs(dv_dy))
    if not (u >= reach_u and v >= reach_v and u + reach_u < width - 1 and v + reach_v < height - 1):
        return np.float32(-1.0)
    if du_dx * dv_dy - du_dy * dv_dx < np.float32(0.05):  # seen from behind, or at a glance, or far smaller
        return np.float32(-1.0)
    total, square, product = np.float32(0.0), np.float32(0.0), np.float32(0.0)
    for s in range(SAMPLES):
        px = u + du_dx * ACROSS[s] + du_dy * DOWN[s]
        py = v + dv_dx * ACROSS[s] + dv_dy * DOWN[s]
        column, line = np.int32(px), np.int32(py)
        fx, fy = px - np.float32(column), py - np.float32(line)
        place = np.uint32(line * width + column)
        below = place + np.uint32(width)
        top = source[place] + fx * (source[place + np.uint32(1)] - source[place])
        bottom = source[below] + fx * (source[below + np.uint32(1)] - source[below])
        value = top + fy * (bottom - top)
        weighted = weights[s] * value
        total += weighted
        square += weighted * value
        product += weighted * values[s]
    variance = square - total * total
    if variance < np.float32(0.25):  # half a grey value: nothing to see
        return np.float32(-1.0)
    return product / np.sqrt(variance)
