"""Pixels and their derivatives through any lens, compiled: `proba.geometry.camera` for one point at a time."""

from __future__ import annotations

import numba
import numpy as np

from proba.geometry.camera import WIDTH
from proba.refine.bundle import Bundle

PLAIN, RATIONAL, FISHEYE = 0.0, 1.0, 2.0
"""Kinds of lenses in the column after the others: at most k1 and k2, a perspective one with more, a fisheye."""
NEAR_AXIS = 1e-9
FAST_MATH = {"nsz", "arcp", "contract", "reassoc"}
inlined = numba.njit(nogil=True, error_model="numpy", fastmath=FAST_MATH, forceinline=True)
_FEW = ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL")


def lenses_of(bundle: Bundle) -> np.ndarray:  # [C, WIDTH + 1]
    """Columns of each camera, and its kind."""
    more = np.array([model not in _FEW for model in bundle.camera_model], np.float64) * RATIONAL
    return np.column_stack([bundle.intrinsics, np.where(bundle.fisheye, FISHEYE, more)])


@inlined
def rich_pixel(x, y, z, k):
    """Whether the lens sees a point in its camera's frame, and its pixel."""
    seen, a, b = _place(x, y, z, k[WIDTH])[:3]
    right, down = _bent(a, b, k)[:2]
    return seen, k[0] * right + k[2], k[1] * down + k[3]


@inlined
def _place(x, y, z, kind):
    """Whether it is seen; its place on the plane of the lens, and the derivatives by x, y and z: (s + c x x, c x y) and
    (c x y, s + c y y), and -d x and -d y."""
    if kind < FISHEYE:
        if z <= NEAR_AXIS:
            return False, 0.0, 0.0, 0.0, 0.0, 0.0
        return True, x / z, y / z, 1 / z, 0.0, 1 / (z * z)
    radius2 = x * x + y * y
    square = radius2 + z * z
    if radius2 <= NEAR_AXIS * NEAR_AXIS * square:
        if z <= NEAR_AXIS:
            return False, 0.0, 0.0, 0.0, 0.0, 0.0
        return True, x / z, y / z, 1 / z, 0.0, 1 / square
    radius = np.sqrt(radius2)
    stretch = np.arctan2(radius, z) / radius
    return True, x * stretch, y * stretch, stretch, (z / square - stretch) / radius2, 1 / square


@inlined
def _bent(a, b, k):
    """The place after distortion; the factor of the radial part, its derivative by r^2, and what divides it."""
    r2 = a * a + b * b
    if k[WIDTH] == FISHEYE:
        bottom = 1.0
        radial = 1 + r2 * (k[4] + r2 * (k[5] + r2 * (k[8] + r2 * k[9])))
        slope = k[4] + r2 * (2 * k[5] + r2 * (3 * k[8] + r2 * 4 * k[9]))
        sx, sy = k[10], k[11]
    else:
        bottom = 1 + r2 * (k[9] + r2 * (k[10] + r2 * k[11]))
        radial = (1 + r2 * (k[4] + r2 * (k[5] + r2 * k[8]))) / bottom
        slope = k[4] + r2 * (2 * k[5] + r2 * 3 * k[8])
        slope = (slope - radial * (k[9] + r2 * (2 * k[10] + r2 * 3 * k[11]))) / bottom
        sx, sy = 0.0, 0.0
    right = a * radial + 2 * k[6] * a * b + k[7] * (r2 + 2 * a * a) + sx * r2
    down = b * radial + 2 * k[7] * a * b + k[6] * (r2 + 2 * b * b) + sy * r2
    return right, down, radial, slope, bottom, sx, sy


@inlined
def rich_derivatives(x, y, z, pose, k, one_focal, xy, loss2, full, by_point):
    """What `normal_equations.derivatives` gives, of a point (x, y, z) in the camera's frame."""
    full[:] = 0
    by_point[:] = 0
    seen, a, b, stretch, bend, shrink = _place(x, y, z, k[WIDTH])
    if not seen:
        return 0.0, 0.0, 0.0
    place_right, place_down, radial, slope, bottom, sx, sy = _bent(a, b, k)
    r2 = a * a + b * b
    cross = 2 * a * b * slope + 2 * k[6] * a + 2 * k[7] * b
    right, down = k[0] * place_right + k[2] - xy[0], k[1] * place_down + k[3] - xy[1]
    for row in range(2):
        ray, focal = (a, k[0]) if row == 0 else (b, k[1])
        if row == 0:
            by_a = radial + 2 * a * a * slope + 2 * k[6] * b + 6 * k[7] * a + 2 * sx * a
            by_b = cross + 2 * sx * b
        else:
            by_a = cross + 2 * sy * a
            by_b = radial + 2 * b * b * slope + 2 * k[7] * a + 6 * k[6] * b + 2 * sy * b
        by_a, by_b = focal * by_a, focal * by_b
        along = bend * (by_a * x + by_b * y)
        by_x, by_y, by_z = by_a * stretch + along * x, by_b * stretch + along * y, -shrink * (by_a * x + by_b * y)
        for i in range(3):
            by_point[row, i] = by_x * pose[0, i] + by_y * pose[1, i] + by_z * pose[2, i]
            full[row, 3 + i] = -by_point[row, i]
        full[row, 0] = by_z * y - by_y * z
        full[row, 1] = by_x * z - by_z * x
        full[row, 2] = by_y * x - by_x * y
        by_focal = place_right if row == 0 else place_down
        full[row, 6] = by_focal if row == 0 or one_focal else 0.0
        full[row, 7] = by_focal if row == 1 and not one_focal else 0.0
        full[row, 8 + row] = 1.0
        step = focal * ray * r2 / bottom
        full[row, 10], full[row, 11], full[row, 14] = step, step * r2, step * r2 * r2
        full[row, 12 + row], full[row, 13 - row] = focal * 2 * a * b, focal * (r2 + 2 * ray * ray)
        if k[WIDTH] == FISHEYE:
            full[row, 15] = step * r2 * r2 * r2
            full[row, 16 + row] = focal * r2
        else:
            full[row, 15], full[row, 16], full[row, 17] = -step * radial, -step * radial * r2, -step * radial * r2 * r2
    return right, down, 1 / (1 + (right * right + down * down) / loss2)
