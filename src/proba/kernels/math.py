"""Closed forms of one match in float32, shared by the kernels: of numbers (a GPU thread) or of lanes (a CPU).

Notation: q is the point in the target camera's frame, o = (o_x, o_y, 1) the observed ray there, n = q x o up to order
and signs of its elements. The Mahalanobis distance of the 2D term is |n|^2 q_z^2 / (|q|^2 v): the inverse of J J^T
needs no 2 x 2 matrix. Every derivative is a product of the same few numbers. There are no branches.
"""

from __future__ import annotations

import math as numbers

import numba as nb
import numpy as np
from numba.core import types
from numba.extending import overload

from proba.kernels.simd import (
    TO_WHOLE,
    WIDTH,
    Lanes,
    mantissa_and_exponent,
    near_one,
    rint,
    select,
    times_power_of_two,
    two_to_sixteenths,
)

closed_form = nb.njit(fastmath={"nnan", "ninf", "nsz", "contract"}, forceinline=True, nogil=True, error_model="numpy")

f32 = np.float32
ZERO, HALF, ONE, THREE_HALVES = f32(0), f32(0.5), f32(1), f32(1.5)

LOG2_E, LN2 = f32(1.4426950408889634), f32(0.6931471805599453)
LOG_DEPTH_RANGE, LOG_VARIANCE_RANGE = f32(20), f32(30)  # no product of the closed forms overflows within
DENSITY_RANGE = (f32(1e-37), f32(1e37))
CERTAIN = f32(47)
"""A match whose loss is this far above the outlier level weighs exactly nothing: arithmetic with the denormal numbers
that its weight would bring about takes several times as long."""
E0, E1, E2 = f32(1.0000000716969546), f32(0.9999996918061274), f32(0.49998894413652684)
E3, E4, E5 = f32(0.1666757509541915), f32(0.04191543141847106), f32(0.008297647671158492)

L0, L1, L2, L3 = f32(0.9999999178569582), f32(-0.5000034428219897), f32(0.3333560788579678), f32(-0.2497156019613199)
L4, L5, L6, L7 = f32(0.19884235951231655), f32(-0.172124275516842), f32(0.16338142079299722), f32(-0.10378706586397797)

SIXTEEN, SIXTH = f32(16), f32(1 / 6)
N2, N3 = f32(-0.5001901137951223), f32(0.33350361727961725)  # log(1 + r) - r for |r| < 1/33


def exp(x):
    """e^x. Of lanes to 4e-7 relative for |x| < 40, without a check of the range.

    Sixteen lanes look up a power of two and need a polynomial of degree 3 only, fewer need degree 5 (minimax).
    """
    return f32(numbers.exp(x))


@overload(exp, jit_options={"forceinline": True})
def _exp(x):
    if x == types.float32:
        return lambda x: f32(numbers.exp(x))

    def from_table(x):
        shifted = x * (SIXTEEN * LOG2_E) + TO_WHOLE
        r = x - (shifted - TO_WHOLE) * (LN2 / SIXTEEN)
        power = two_to_sixteenths(shifted)
        return power + power * (r + r * r * (HALF + r * SIXTH))

    def lanes(x):
        whole = rint(x * LOG2_E)
        r = x - whole * LN2  # contracted to one operation, exact but for the rounding of the constant
        r2 = r * r
        series = ((E5 * r + E4) * r2 + (E3 * r + E2)) * r2 + (E1 * r + E0)  # short chains: the loop waits on latency
        return times_power_of_two(series, whole)

    return (from_table if WIDTH == 16 else lanes) if x == Lanes else None


def log(x):
    """Natural logarithm. Of lanes to 2e-7, relative where it is above one, for positive normal numbers.

    Sixteen lanes look up a logarithm near theirs and need a polynomial of degree 3 only, fewer need degree 8 (minimax).
    """
    return f32(numbers.log(x))


@overload(log, jit_options={"forceinline": True})
def _log(x):
    if x == types.float32:
        return lambda x: f32(numbers.log(x))

    def from_table(x):
        mantissa, inverse, offset, exponent = near_one(x)
        r = mantissa * inverse - ONE
        return exponent * LN2 + offset + (r * r * (N3 * r + N2) + r)

    def lanes(x):
        mantissa, exponent = mantissa_and_exponent(x)
        r = mantissa - ONE
        r2 = r * r
        upper, lower = (L7 * r + L6) * r2 + (L5 * r + L4), (L3 * r + L2) * r2 + (L1 * r + L0)
        return exponent * LN2 + (upper * (r2 * r2) + lower) * r

    return (from_table if WIDTH == 16 else lanes) if x == Lanes else None


@closed_form
def clamp(x, limit):
    """x within +-limit."""
    return min(max(x, -limit), limit)


@closed_form
def inverses(q_x, q_y, q_z, z_min):
    """(1 / |q|^2, 1 / q_z) from one division, with q_z at least z_min."""
    z = max(q_z, z_min)
    norm = q_x * q_x + (q_y * q_y + z * z)
    inverse = ONE / (norm * z)
    return inverse * z, inverse * norm


@closed_form
def reprojection(q_x, q_y, q_z, o_x, o_y, precision, z_min, inverse_norm, inverse_z):
    """2D term of one direction and its gradients, all zero behind the camera.

    `precision` is 1/v; `inverse_norm` and `inverse_z` are what `inverses` gives.

    L_2D = in_front (mahalanobis / 2 - log precision - log density / 2 + log f_x + log f_y).

    Returns (in_front, mahalanobis, density, dL/dq . q, dL/dq [3], dL/do [2]); dL/dlog v = in_front - mahalanobis / 2.
    """
    seen = q_z >= z_min
    in_front, precision = select(seen, ONE, ZERO), select(seen, precision, ZERO)
    z = max(q_z, z_min)
    z_2 = z * z
    cosine_2 = z_2 * inverse_norm
    m = precision * cosine_2
    n_x, n_y, n_z = q_x - z * o_x, q_y - z * o_y, q_x * o_y - q_y * o_x
    c_x, c_y, c_z = m * n_x, m * n_y, m * n_z
    mahalanobis = c_x * n_x + (c_y * n_y + c_z * n_z)
    outward = (in_front - mahalanobis) * inverse_norm
    g_x = outward * q_x + (c_z * o_y + c_x)
    g_y = outward * q_y + (c_y - c_z * o_x)
    along_q = mahalanobis - (in_front + in_front)  # mahalanobis is quadratic in q, density of degree 4
    g_z = (along_q - g_x * q_x - g_y * q_y) * inverse_z
    g_ox, g_oy = -(c_z * q_y) - c_x * z, c_z * q_x - c_y * z
    density = select(seen, cosine_2 * (z_2 * z_2), ONE)  # q_z^6 / |q|^2
    return in_front, mahalanobis, density, along_q, g_x, g_y, g_z, g_ox, g_oy


@closed_form
def overlap(e_x, e_y, e_z, precision_i, precision_j):
    """3D term with e = p_{i->j} - p_j, without its logarithm, which is 3/2 (log(sum) - log of both precisions).

    Returns (square, 1/(v_i + v_j), share of v_i, share of v_j, sum of the precisions), square = |e|^2/(v_i + v_j).
    """
    total = precision_i + precision_j
    inverse = ONE / total
    share_i, share_j = precision_j * inverse, precision_i * inverse
    joint = precision_i * share_i
    return joint * (e_x * e_x + e_y * e_y + e_z * e_z), joint, share_i, share_j, total


@closed_form
def posterior(loss, outlier_level):
    """(a, b, inlier probability) of the robust loss -log(e^-L + e^-L_out) = a - log b with 1 <= b <= 2.

    The sum of log b over many matches is the logarithm of a product. The probability is sigmoid(L_out - L).
    """
    excess = loss - outlier_level
    distance = abs(excess)
    e = select(distance < CERTAIN, exp(-min(distance, CERTAIN)), ZERO)
    both = ONE + e
    return min(loss, outlier_level), both, select(excess > ZERO, e, ONE) / both
