"""PatchMatch sweeps: every pixel tries the planes of its neighbours and changed ones of its own, and keeps the best.

Pixels are coloured like a chessboard. One colour looks at the planes of the other only, so that a sweep gives the same
bits on any number of threads.
"""

from __future__ import annotations

import numpy as np

from proba.dense.patch_cost import RADIUS, SAMPLES, WORST, correlation, reference_patch
from proba.jit import cached_njit

CHOSEN = 4
"""Photos that a pixel is compared with, the best of all neighbours at its first plane."""
COUNTED = 3
"""The cost of a plane is the mean over this many photos in which it fits best: others may not see the place."""
HOPELESS = 0.6
"""A plane whose cost in the best photos is higher than that of the present one by this much in all is given up."""
MIN_COSINE = 0.12
"""Of the angle between ray and normal: surfaces seen at a sharper angle show too little of themselves."""
MIN_DEVIATION = 1.2
"""Patches whose grey values (of 255) vary less hold nothing that could be found again."""
GEOMETRY_WEIGHT = 0.1
"""Cost of each pixel by which a plane and the depth of another photo differ there and back."""
GEOMETRY_LIMIT_PX = 3.0
SAME = 1e-5
"""Planes that differ by less, as a share of the inverse depth, are one plane: no place moves by a hundredth pixel."""
FAR = np.array([3, 5, 7, 11, 17], np.int32)
"""Odd distances of pixels of the other colour along rows and columns; the best of each direction is tried."""


@cached_njit(nogil=True, inline="always")
def _random(seed):
    """A number in [0, 1) from an integer, and the next integer."""
    seed = np.uint32(seed) * np.uint32(747796405) + np.uint32(2891336453)
    word = ((seed >> ((seed >> np.uint32(28)) + np.uint32(4))) ^ seed) * np.uint32(277803737)
    word = (word >> np.uint32(22)) ^ word
    return np.float32(word >> np.uint32(8)) * np.float32(1.0 / 16777216.0), seed


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def facing(lens, x, y, rho, a, b):
    """Cosine of the angle between the ray of a pixel and the normal of a plane there."""
    fx, fy, cx, cy = lens[0], lens[1], lens[2], lens[3]
    n0, n1, n2 = a * fx, b * fy, rho - a * (x - cx) - b * (y - cy)
    rx, ry = (x - cx) / fx, (y - cy) / fy
    return rho / np.sqrt((n0 * n0 + n1 * n1 + n2 * n2) * (rx * rx + ry * ry + np.float32(1.0)) + np.float32(1e-30))


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def turned(lens, x, y, rho, a, b, amount, seed):
    """Slopes of a plane whose normal is turned at random by about `amount` radians, at the same inverse depth."""
    fx, fy, cx, cy = lens[0], lens[1], lens[2], lens[3]
    n0, n1, n2 = a * fx, b * fy, rho - a * (x - cx) - b * (y - cy)
    length = np.sqrt(n0 * n0 + n1 * n1 + n2 * n2) + np.float32(1e-30)
    r0, seed = _random(seed)
    r1, seed = _random(seed)
    r2, seed = _random(seed)
    n0 = n0 / length + amount * (np.float32(2) * r0 - np.float32(1))
    n1 = n1 / length + amount * (np.float32(2) * r1 - np.float32(1))
    n2 = n2 / length + amount * (np.float32(2) * r2 - np.float32(1))
    along = n0 * (x - cx) / fx + n1 * (y - cy) / fy + n2
    if along < np.float32(1e-6):
        return a, b, seed
    return rho * n0 / (along * fx), rho * n1 / (along * fy), seed


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def _disagreement(other, scale, m, e, back_m, back_e, x, y, rho):
    """Pixels between a pixel and where another photo's own depth puts it after the way there and back."""
    q2 = m[2, 0] * x + m[2, 1] * y + m[2, 2] + e[2] * rho
    u = (m[0, 0] * x + m[0, 1] * y + m[0, 2] + e[0] * rho) / q2
    v = (m[1, 0] * x + m[1, 1] * y + m[1, 2] + e[1] * rho) / q2
    column = int((u + np.float32(0.5)) * scale[0])
    row = int((v + np.float32(0.5)) * scale[1])
    if row < 0 or column < 0 or row >= other.shape[0] or column >= other.shape[1] or other[row, column, 0] <= 0:
        return np.float32(0.5 * GEOMETRY_LIMIT_PX)
    # Between the pixels of the smaller map its planes go on.
    across = (u + np.float32(0.5)) * scale[0] - np.float32(0.5) - column
    down = (v + np.float32(0.5)) * scale[1] - np.float32(0.5) - row
    there = other[row, column, 0] + across * other[row, column, 1] + down * other[row, column, 2]
    q2 = back_m[2, 0] * u + back_m[2, 1] * v + back_m[2, 2] + back_e[2] * there
    if q2 <= np.float32(1e-6):
        return np.float32(GEOMETRY_LIMIT_PX)
    off_x = (back_m[0, 0] * u + back_m[0, 1] * v + back_m[0, 2] + back_e[0] * there) / q2 - x
    off_y = (back_m[1, 0] * u + back_m[1, 1] * v + back_m[1, 2] + back_e[1] * there) / q2 - y
    return min(np.sqrt(off_x * off_x + off_y * off_y), np.float32(GEOMETRY_LIMIT_PX))


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def view_cost(views, j, x, y, rho, a, b, values, weights):
    """Cost of a plane in photo j, with what that photo's own depth says, where it is known."""
    sources, sizes, m, e, back_m, back_e, others, scales = views
    found = correlation(sources[j], sizes[j, 0], sizes[j, 1], m[j], e[j], x, y, rho, a, b, values, weights)
    if found <= np.float32(-1.0):
        return np.float32(WORST + GEOMETRY_WEIGHT * GEOMETRY_LIMIT_PX)
    cost = min(np.float32(1.0) - found, np.float32(WORST))
    if others.shape[0] > 0:
        cost += np.float32(GEOMETRY_WEIGHT) * _disagreement(
            others[j], scales[j], m[j], e[j], back_m[j], back_e[j], x, y, rho
        )
    return cost


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def plane_cost(views, chosen, x, y, rho, a, b, values, weights, limit):
    """Mean over the photos in which a plane fits best; some number above `limit` where it cannot be below."""
    first, second, third = np.float32(9.0), np.float32(9.0), np.float32(9.0)
    count, total = 0, np.float32(0.0)
    while count < chosen.shape[0] and chosen[count] >= 0:
        count += 1
    for k in range(count):
        cost = view_cost(views, chosen[k], x, y, rho, a, b, values, weights)
        if cost < first:
            first, second, third = cost, first, second
        elif cost < second:
            second, third = cost, second
        elif cost < third:
            third = cost
        total += cost
        if total > np.float32(k + 1) * limit + np.float32(HOPELESS):  # photos come in order of how well they fit
            return np.float32(9.0)
    if count == 1:
        return first
    if count == 2:
        return np.float32(0.5) * (first + second)
    return (first + second + third) / np.float32(3.0)


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def _try(views, chosen, lens, bounds, x, y, plane, rho, a, b, values, weights, best):
    """Replace the plane [3] of a pixel by another one if that fits better; returns the lower cost."""
    near = np.float32(SAME) * plane[0]
    if abs(rho - plane[0]) < near and np.float32(RADIUS) * (abs(a - plane[1]) + abs(b - plane[2])) < near:
        return best
    if not (rho > bounds[0] and rho < bounds[1]) or facing(lens, x, y, rho, a, b) < np.float32(MIN_COSINE):
        return best
    cost = plane_cost(views, chosen, x, y, rho, a, b, values, weights, best)
    if cost < best:
        plane[0], plane[1], plane[2] = rho, a, b
        return cost
    return best


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def choose_views(grey, views, planes, costs, chosen, first_row, last_row):
    """Pick for every pixel the photos that fit best at its plane, best first, and note the cost with those."""
    values, weights = np.empty(SAMPLES, np.float32), np.empty(SAMPLES, np.float32)
    n_views = views[1].shape[0]
    cost = np.empty(n_views, np.float32)
    for row in range(first_row, last_row):
        for column in range(grey.shape[1]):
            chosen[row, column, :] = -1
            costs[row, column] = 9.0
            if reference_patch(grey, row, column, values, weights) < np.float32(MIN_DEVIATION):
                continue
            x, y = np.float32(column), np.float32(row)
            rho, a, b = planes[row, column, 0], planes[row, column, 1], planes[row, column, 2]
            for j in range(n_views):
                cost[j] = view_cost(views, j, x, y, rho, a, b, values, weights)
            total, count = np.float32(0.0), 0
            for k in range(min(chosen.shape[2], n_views)):
                j = int(np.argmin(cost))
                chosen[row, column, k] = j
                if count < COUNTED:
                    total += cost[j]
                    count += 1
                cost[j] = np.float32(1e9)
            costs[row, column] = total / np.float32(max(count, 1))


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def _best_along(costs, row, column, step_row, step_column):
    """How far away, along one direction, the pixel with the lowest cost is; 0: there is none."""
    far, lowest = 0, np.float32(8.0)
    for k in range(FAR.shape[0]):
        r, c = row + FAR[k] * step_row, column + FAR[k] * step_column
        if r < 0 or c < 0 or r >= costs.shape[0] or c >= costs.shape[1]:
            break
        if costs[r, c] < lowest:
            far, lowest = FAR[k], costs[r, c]
    return far


@cached_njit(nogil=True, fastmath=True, error_model="numpy")
def sweep(grey, views, lens, bounds, planes, costs, chosen, colour, far_too, changes, seed, first_row, last_row):
    """One colour of the chessboard in some rows; planes of pixels farther away are tried on demand.

    `changes` [C, 3]: for each changed plane that is tried, by how much (share) its inverse depth changes, by how much
    its normal turns (radians), and whether the inverse depth is drawn anew (1) instead.
    """
    values, weights = np.empty(SAMPLES, np.float32), np.empty(SAMPLES, np.float32)
    plane = np.empty(3, np.float32)
    height, width = grey.shape
    for row in range(first_row, last_row):
        for column in range((row + colour) % 2, width, 2):
            picked = chosen[row, column]
            if picked[0] < 0:
                continue
            reference_patch(grey, row, column, values, weights)
            x, y, best = np.float32(column), np.float32(row), costs[row, column]
            plane[:] = planes[row, column]
            for direction in range(8 if far_too else 4):
                down = (direction % 4 == 0) - (direction % 4 == 1)
                right = (direction % 4 == 2) - (direction % 4 == 3)
                far = 1 if direction < 4 else _best_along(costs, row, column, down, right)
                r, c = row + far * down, column + far * right
                if far == 0 or r < 0 or c < 0 or r >= height or c >= width or costs[r, c] > np.float32(8.0):
                    continue
                a, b = planes[r, c, 1], planes[r, c, 2]
                rho = planes[r, c, 0] - a * np.float32(far * right) - b * np.float32(far * down)
                best = _try(views, picked, lens, bounds, x, y, plane, rho, a, b, values, weights, best)
            state = np.uint32((row * width + column) * 2654435 + seed)
            for k in range(changes.shape[0]):
                draw, state = _random(state)
                if changes[k, 2] > 0:
                    rho = bounds[0] + draw * (bounds[1] - bounds[0])
                    ratio = rho / plane[0]
                else:
                    ratio = np.float32(1.0) + changes[k, 0] * (np.float32(2.0) * draw - np.float32(1.0))
                    rho = plane[0] * ratio
                a, b, state = turned(lens, x, y, rho, plane[1] * ratio, plane[2] * ratio, changes[k, 1], state)
                best = _try(views, picked, lens, bounds, x, y, plane, rho, a, b, values, weights, best)
            costs[row, column] = best
            planes[row, column] = plane
