"""Closed forms of one match in float32, shared by the kernels: of numbers (a GPU thread) or of eight lanes (a CPU).

Notation: q is the point in the target camera's frame, (a, b) = (q_x, q_y) / q_z where it is seen, o the observation
there, r = (a, b) - o, s = a o_y - b o_x, Q = 1 + a^2 + b^2. Then the Mahalanobis distance of the 2D term is
(|r|^2 + s^2) q_z^2 / (Q v): the inverse of J J^T needs no 2 x 2 matrix. Every derivative is a product of the same few
numbers. There are no branches.
"""

from __future__ import annotations

import math as numbers

import numba as nb
import numpy as np
from numba.core import types
from numba.extending import overload

from proba.kernels.simd import Lanes, mantissa_and_exponent, rint, select, times_power_of_two

closed_form = nb.njit(fastmath={"nnan", "ninf", "nsz", "contract"}, forceinline=True, nogil=True, error_model="numpy")

f32 = np.float32
ZERO, HALF, ONE, THREE_HALVES = f32(0), f32(0.5), f32(1), f32(1.5)

LOG2_E, LN2 = f32(1.4426950408889634), f32(0.6931471805599453)
LOG_DEPTH_RANGE, LOG_VARIANCE_RANGE = f32(20), f32(30)  # no product of the closed forms overflows within
VOLUME_RANGE = (f32(1e-37), f32(1e37))
CERTAIN = f32(47)
"""A match whose loss is this far above the outlier level weighs exactly nothing: arithmetic with the denormal numbers
that its weight would bring about takes several times as long."""
E0, E1, E2 = f32(1.0000000716969546), f32(0.9999996918061274), f32(0.49998894413652684)
E3, E4, E5 = f32(0.1666757509541915), f32(0.04191543141847106), f32(0.008297647671158492)

L0, L1, L2, L3 = f32(0.9999999178569582), f32(-0.5000034428219897), f32(0.3333560788579678), f32(-0.2497156019613199)
L4, L5, L6, L7 = f32(0.19884235951231655), f32(-0.172124275516842), f32(0.16338142079299722), f32(-0.10378706586397797)
P0, P1, P2, P3 = f32(0.9999998357285975), f32(-0.4999769926060309), f32(0.33280173156876575), f32(-0.24523584948576868)
P4, P5, P6, P7 = f32(0.17825505128465802), f32(-0.10885790882407), f32(0.04494444637891559), f32(-0.00878329775396183)


def exp(x):
    """e^x. Of lanes to 4e-7 relative for |x| < 40 (minimax polynomial of degree 5), without a check of the range."""
    return f32(numbers.exp(x))


@overload(exp, jit_options={"forceinline": True})
def _exp(x):
    if x == types.float32:
        return lambda x: f32(numbers.exp(x))

    def lanes(x):
        whole = rint(x * LOG2_E)
        r = x - whole * LN2  # contracted to one operation, exact but for the rounding of the constant
        r2 = r * r
        series = ((E5 * r + E4) * r2 + (E3 * r + E2)) * r2 + (E1 * r + E0)  # short chains: the loop waits on latency
        return times_power_of_two(series, whole)

    return lanes if x == Lanes else None


def log(x):
    """Natural logarithm. Of lanes to 1e-7 absolute for positive normal numbers (minimax polynomial of degree 8)."""
    return f32(numbers.log(x))


@overload(log, jit_options={"forceinline": True})
def _log(x):
    if x == types.float32:
        return lambda x: f32(numbers.log(x))

    def lanes(x):
        mantissa, exponent = mantissa_and_exponent(x)
        r = mantissa - ONE
        r2 = r * r
        upper, lower = (L7 * r + L6) * r2 + (L5 * r + L4), (L3 * r + L2) * r2 + (L1 * r + L0)
        return exponent * LN2 + (upper * (r2 * r2) + lower) * r

    return lanes if x == Lanes else None


@closed_form
def clamp(x, limit):
    """x within +-limit."""
    return min(max(x, -limit), limit)


@closed_form
def log1p_unit(x):
    """log(1 + x) for 0 <= x <= 1 to 2e-7. In nested form, as powers of a small x would be denormal numbers."""
    return (((((((P7 * x + P6) * x + P5) * x + P4) * x + P3) * x + P2) * x + P1) * x + P0) * x


@closed_form
def reprojection(q_x, q_y, q_z, o_x, o_y, precision, z_min):
    """2D term of one direction and its gradients; `precision` is 1/v. All zero behind the camera.

    L_2D = in_front (mahalanobis / 2 - log precision + log volume / 2 + log f_x + log f_y).

    Returns (in_front, mahalanobis, volume, dL/dq . q, dL/dq [3], dL/do [2]); dL/dlog v = in_front - mahalanobis / 2.
    """
    seen = q_z >= z_min
    in_front, precision = select(seen, ONE, ZERO), select(seen, precision, ZERO)
    z = max(q_z, z_min)
    inverse_z = ONE / z
    a, b = q_x * inverse_z, q_y * inverse_z
    spread = a * a + (b * b + ONE)
    inverse_spread = ONE / spread
    r_x, r_y, s = a - o_x, b - o_y, a * o_y - b * o_x
    m = precision * inverse_spread * (z * z)
    mahalanobis = m * (r_x * r_x + r_y * r_y + s * s)
    outward = (in_front - mahalanobis) * inverse_spread
    g_a = m * (r_x + s * o_y) + outward * a
    g_b = m * (r_y - s * o_x) + outward * b
    along_q = mahalanobis - (in_front + in_front)  # a and b do not change along q, only z does
    g_z = along_q - a * g_a - b * g_b
    g_ox, g_oy = m * (-s * b - r_x), m * (s * a - r_y)
    squeeze = inverse_z * inverse_z
    volume = select(seen, spread * (squeeze * squeeze), ONE)  # |q|^2 / q_z^6
    return in_front, mahalanobis, volume, along_q, g_a * inverse_z, g_b * inverse_z, g_z * inverse_z, g_ox, g_oy


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
    """(robust loss, inlier probability): -log(e^-L + e^-L_out) and sigmoid(L_out - L)."""
    excess = loss - outlier_level
    distance = abs(excess)
    e = select(distance < CERTAIN, exp(-min(distance, CERTAIN)), ZERO)
    p = ONE / (ONE + e)
    return min(loss, outlier_level) - log1p_unit(e), select(excess > ZERO, e, ONE) * p
