"""Scalar closed forms of one match in float32, shared by the kernels. Branch-free, so that a loop of them vectorises.

Notation: q is the point in the target camera's frame, o = (o_x, o_y, 1) the ray of the observation there,
k = q x o. Then the Mahalanobis distance of the 2D term is |k|^2 q_z^2 / (|q|^2 v): the inverse of J J^T needs no
2 x 2 matrix and no projection. Every derivative is a product of the same few numbers.
"""

from __future__ import annotations

import numba as nb
import numpy as np

# No `reassoc` and no `arcp`: the order of operations is meant, and a division is as fast as its approximation.
scalar = nb.njit(fastmath={"nnan", "ninf", "nsz", "contract"}, forceinline=True, nogil=True, error_model="numpy")

f32 = np.float32
ZERO, HALF, ONE, THREE_HALVES, THREE = f32(0), f32(0.5), f32(1), f32(1.5), f32(3)

LOG2_E, LN2 = f32(1.4426950408889634), f32(0.6931471805599453)
EXP_RANGE = f32(80)
LOG_DEPTH_RANGE, LOG_VARIANCE_RANGE = f32(20), f32(30)  # no product of the closed forms overflows within
E0, E1, E2 = f32(1.0000000716969546), f32(0.9999996918061274), f32(0.49998894413652684)
E3, E4, E5 = f32(0.1666757509541915), f32(0.04191543141847106), f32(0.008297647671158492)

SQRT_HALF_BITS = np.int32(0x3F3504F3)
MANTISSA = np.int32(0x007FFFFF)
L0, L1, L2, L3 = f32(0.9999999178569582), f32(-0.5000034428219897), f32(0.3333560788579678), f32(-0.2497156019613199)
L4, L5, L6, L7 = f32(0.19884235951231655), f32(-0.172124275516842), f32(0.16338142079299722), f32(-0.10378706586397797)
P0, P1, P2, P3 = f32(0.9999998357285975), f32(-0.4999769926060309), f32(0.33280173156876575), f32(-0.24523584948576868)
P4, P5, P6, P7 = f32(0.17825505128465802), f32(-0.10885790882407), f32(0.04494444637891559), f32(-0.00878329775396183)


@scalar
def exp(x):
    """e^x to 4e-7 relative for |x| < 40 (minimax polynomial of degree 5). The caller clamps."""
    whole = np.rint(x * LOG2_E)
    r = x - whole * LN2  # contracted to one operation, exact but for the rounding of the constant
    r2 = r * r
    series = ((E5 * r + E4) * r2 + (E3 * r + E2)) * r2 + (E1 * r + E0)  # short chains: the loop waits on latency
    return np.int32(f32(series).view(np.int32) + (np.int32(whole) << np.int32(23))).view(np.float32)


@scalar
def clamp(x, limit):
    """x within +-limit."""
    return min(max(x, -limit), limit)


@scalar
def log(x):
    """Natural logarithm of a positive normal number to 1e-7 absolute (minimax polynomial of degree 8)."""
    bits = np.int32(f32(x).view(np.int32) - SQRT_HALF_BITS)
    exponent = f32(np.int32(bits >> np.int32(23)))
    r = np.int32((bits & MANTISSA) + SQRT_HALF_BITS).view(np.float32) - ONE
    r2 = r * r
    upper, lower = (L7 * r + L6) * r2 + (L5 * r + L4), (L3 * r + L2) * r2 + (L1 * r + L0)
    return exponent * LN2 + (upper * (r2 * r2) + lower) * r


@scalar
def log1p_unit(x):
    """log(1 + x) for 0 <= x <= 1 to 2e-7."""
    x2 = x * x
    upper, lower = (P7 * x + P6) * x2 + (P5 * x + P4), (P3 * x + P2) * x2 + (P1 * x + P0)
    return (upper * (x2 * x2) + lower) * x


@scalar
def reprojection(q_x, q_y, q_z, o_x, o_y, precision, z_min):
    """2D term of one direction and its gradients; `precision` is 1/v. All zero behind the camera.

    L_2D = in_front (mahalanobis / 2 - log precision + log volume / 2 + log f_x + log f_y).

    Returns (in_front, mahalanobis, volume, dL/dq [3], dL/do [2]); dL/dlog v = in_front - mahalanobis / 2.
    """
    in_front = ONE if q_z >= z_min else ZERO
    z = max(q_z, z_min)
    k_x, k_y, k_z = q_y - z * o_y, z * o_x - q_x, q_x * o_y - q_y * o_x
    square = q_x * q_x + q_y * q_y + z * z
    inverse = ONE / (z * square)  # one division for two reciprocals
    inverse_z, inverse_square = inverse * square, inverse * z
    m = in_front * (z * z) * inverse_square * precision
    mahalanobis = m * (k_x * k_x + k_y * k_y + k_z * k_z)
    along_q = (in_front - mahalanobis) * inverse_square
    g_x = m * (o_y * k_z - k_y) + along_q * q_x
    g_y = m * (k_x - o_x * k_z) + along_q * q_y
    g_z = m * (o_x * k_y - o_y * k_x) + along_q * z + (mahalanobis - THREE * in_front) * inverse_z
    g_ox, g_oy = m * (k_y * z - k_z * q_y), m * (k_z * q_x - k_x * z)
    squeeze = inverse_z * inverse_z
    volume = (square * squeeze) * (squeeze * squeeze) if q_z >= z_min else ONE  # |q|^2 / q_z^6
    return in_front, mahalanobis, volume, g_x, g_y, g_z, g_ox, g_oy


@scalar
def overlap(e_x, e_y, e_z, precision_i, precision_j):
    """3D term with e = p_{i->j} - p_j, without its logarithm, which is 3/2 (log(sum) - log of both precisions).

    Returns (square / 2, 1/(v_i + v_j), share of v_i, share of v_j, sum of the precisions), square = |e|^2/(v_i + v_j).
    """
    total = precision_i + precision_j
    inverse = ONE / total
    share_i, share_j = precision_j * inverse, precision_i * inverse
    joint = precision_i * share_i
    return HALF * joint * (e_x * e_x + e_y * e_y + e_z * e_z), joint, share_i, share_j, total


@scalar
def posterior(loss, outlier_level):
    """(robust loss, inlier probability): -log(e^-L + e^-L_out) and sigmoid(L_out - L)."""
    excess = loss - outlier_level
    e = exp(max(-abs(excess), -EXP_RANGE))
    p = ONE / (ONE + e)
    return min(loss, outlier_level) - log1p_unit(e), (e * p if excess > ZERO else p)
