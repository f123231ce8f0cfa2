"""Depth hypotheses as Gaussians: those of other photos confirm one, contradict it, or cannot see the place.

A pixel's inverse depth is carried into another photo together with its variance. Where that photo's own Gaussian lies
close enough the two agree and are fused, weighted by precision. Where the other photo sees something farther away it
looks through the place: it votes against it. Where it sees something nearer the place is hidden, and it has no vote.
"""

from __future__ import annotations

import numpy as np

from proba.jit import cached_njit

GATE = 3.0
"""Standard deviations within which two Gaussians are one surface."""
MOST_APART = 0.02
"""Share of the depth: beyond it depths differ, however uncertain they are."""
LEAST_APART = 0.002
"""Share of the depth: within it depths are the same, however certain they say they are."""
THROUGH = 0.02
"""Share of the depth by which another photo must look beyond a place to vote against it."""
SHARED = 0.3
"""Part of the variance that depths of several photos have in common, because they were found in the same photos."""
MIN_NORMAL_COSINE = 0.5
"""Of the angle between the normals of two hypotheses of one surface: 60 degrees."""


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def landing(m, e, x, y, rho, sizes):
    """Column and row of the nearest pixel in another photo (-1: outside), the way from its centre, and the inverse
    depth there with its change by inverse depth here."""
    q0 = m[0, 0] * x + m[0, 1] * y + m[0, 2] + e[0] * rho
    q1 = m[1, 0] * x + m[1, 1] * y + m[1, 2] + e[1] * rho
    q2 = m[2, 0] * x + m[2, 1] * y + m[2, 2] + e[2] * rho
    if q2 <= 1e-9:
        return -1, -1, 0.0, 0.0, 0.0, 0.0
    u, v = q0 / q2, q1 / q2
    column, row = int(np.floor(u + 0.5)), int(np.floor(v + 0.5))
    if column < 0 or row < 0 or column >= sizes[0] or row >= sizes[1]:
        return -1, -1, 0.0, 0.0, 0.0, 0.0
    # The depth there is q2 / rho, since the last row of an intrinsic matrix is (0, 0, 1).
    return column, row, u - column, v - row, rho / q2, (q2 - rho * e[2]) / (q2 * q2)


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def _said(rhos, slopes, j, u, v, right, down):
    """Inverse depth of photo j beside the centre of a pixel: its planes go on between the pixels."""
    slope = slopes[j, v, u, 0] * right + slopes[j, v, u, 1] * down
    return np.float64(rhos[j, v, u]) * (1.0 + slope)


@cached_njit(nogil=True, error_model="numpy")
def _verdict(rho, sigma, normal, other_rho, other_sigma, other_normal, turn):
    """1: one surface, -1: the other photo looks through, 0: no vote. Inverse depths and deviations are there."""
    apart = rho - other_rho
    close = GATE * np.sqrt(sigma * sigma + other_sigma * other_sigma)
    if abs(apart) <= min(max(close, LEAST_APART * other_rho), MOST_APART * other_rho):
        cosine = 0.0
        for i in range(3):
            for j in range(3):
                cosine += other_normal[i] * turn[i, j] * normal[j]
        return 1 if cosine >= MIN_NORMAL_COSINE * 127.0 * 127.0 else 0
    if apart > max(close, THROUGH * rho):
        return -1
    return 0


@cached_njit(nogil=True, error_model="numpy")
def confirm(own, others, transfers, scale, fused, deviation, votes, first_row, last_row):
    """Fuse every pixel of some rows with what other photos say of it.

    own: inverse depth, deviation [h, w] and normals [h, w, 3] int8; others: the same of V photos, padded, with slopes
    (relative, by pixel) [V, H, W, 2] and sizes [V, 2]; transfers: m [V, 3, 3], e [V, 3] and turns [V, 3, 3] of
    normals. `scale` multiplies all deviations. Fills the fused inverse depth and deviation [h, w], and votes [h, w, 3]:
    photos that agree, as bits, how many these are, and how many look through.
    """
    rho_map, sigma_map, normal_map = own
    rhos, sigmas, normals, slopes, sizes = others
    m, e, turns = transfers
    for row in range(first_row, last_row):
        for column in range(rho_map.shape[1]):
            fused[row, column], deviation[row, column] = 0.0, 0.0
            votes[row, column, :] = 0
            rho, sigma = np.float64(rho_map[row, column]), np.float64(sigma_map[row, column]) * scale
            if sigma <= 0:
                continue
            total = 1.0 / (sigma * sigma)
            mean = rho * total
            for j in range(len(rhos)):
                u, v, right, down, there, change = landing(m[j], e[j], float(column), float(row), rho, sizes[j])
                if u < 0 or sigmas[j, v, u] <= 0:
                    continue
                other = _said(rhos, slopes, j, u, v, right, down)
                other_sigma = np.float64(sigmas[j, v, u]) * scale
                moved = abs(change) * sigma
                said = _verdict(there, moved, normal_map[row, column], other, other_sigma, normals[j, v, u], turns[j])
                if said > 0:
                    votes[row, column, 0] |= 1 << j
                    votes[row, column, 1] += 1
                    precision = (change / other_sigma) ** 2
                    total += precision
                    mean += precision * (rho + (other - there) / change)
                elif said < 0:
                    votes[row, column, 2] += 1
            alone = (1 + votes[row, column, 1]) / total  # variance of a typical one of them
            fused[row, column] = mean / total
            deviation[row, column] = np.sqrt(SHARED * alone + (1 - SHARED) / total)


@cached_njit(nogil=True, error_model="numpy")
def score_differences(own, others, transfers, histogram):
    """Count how many deviations apart what two photos say of one place is, in bins of a tenth up to 10."""
    rho_map, sigma_map, _ = own
    rhos, sigmas, _, slopes, sizes = others
    m, e, _ = transfers
    for row in range(0, rho_map.shape[0], 2):
        for column in range(row // 2 % 2, rho_map.shape[1], 2):
            rho, sigma = np.float64(rho_map[row, column]), np.float64(sigma_map[row, column])
            if sigma <= 0:
                continue
            for j in range(len(rhos)):
                u, v, right, down, there, change = landing(m[j], e[j], float(column), float(row), rho, sizes[j])
                if u < 0 or sigmas[j, v, u] <= 0:
                    continue
                other, other_sigma = _said(rhos, slopes, j, u, v, right, down), np.float64(sigmas[j, v, u])
                if abs(there - other) < MOST_APART * other:
                    apart = abs(there - other) / np.sqrt((change * sigma) ** 2 + other_sigma**2)
                    histogram[min(int(apart * 10), len(histogram) - 1)] += 1


@cached_njit(nogil=True, error_model="numpy")
def claim(fused, votes, transfers, sizes, used, taken):
    """Take every confirmed pixel [h, w] that no earlier photo has shown, and mark it as shown in those that agree.

    `used` [V, H, W] are the marks of the other photos, `taken` [h, w] those of this one: 1 where an earlier photo has
    shown it; set to 2 where it becomes a point.
    """
    m, e = transfers[0], transfers[1]
    for row in range(fused.shape[0]):
        for column in range(fused.shape[1]):
            if fused[row, column] <= 0 or taken[row, column] > 0:
                continue
            taken[row, column] = 2
            for j in range(len(used)):
                if votes[row, column, 0] >> j & 1:
                    u, v, _, _, _, _ = landing(m[j], e[j], float(column), float(row), fused[row, column], sizes[j])
                    if u >= 0 and used[j, v, u] == 0:
                        used[j, v, u] = 1
