"""The steps of the fused kernel on one block of matches.

A block's intermediate values stay in the first-level cache, as rows of one array at constant distances, so that the
compiler can prove the rows disjoint and vectorise every loop. The loops are short on purpose: a processor overlaps
the iterations of a loop only as far as its instruction window reaches.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from proba.kernels import math
from proba.kernels.math import HALF, ONE, THREE_HALVES, ZERO, f32
from proba.kernels.patch import sample_patch, splat_patch

BLOCK = 256
"""Matches of a block; 256 was measured 5 % faster than 128."""
LANES = 8
"""Blocks are padded with matches of weight zero to a multiple of this: no scalar remainder."""

# Rows of the scratch array. Rows that are named in sequence lie in sequence.
X_I, Y_I, RIGHT_I, BELOW_I, X_J, Y_J, RIGHT_J, BELOW_J = (r * BLOCK for r in range(8))
LOG_DEPTH_I, LOG_VAR_I, LOG_DEPTH_J, LOG_VAR_J, DEPTH_I, PRECISION_I, DEPTH_J, PRECISION_J = (
    r * BLOCK for r in range(8, 16)
)
G_X, G_Y, G_Z, GO_X, GO_Y, MAHA_G, VOLUME_G, FRONT_G = (r * BLOCK for r in range(16, 24))  # i seen from j
H_X, H_Y, H_Z, HO_X, HO_Y, MAHA_H, VOLUME_H, FRONT_H = (r * BLOCK for r in range(24, 32))  # j seen from i
GRAD_DEPTH_I, GRAD_VAR_I, GRAD_DEPTH_J, GRAD_VAR_J, Q_X, Q_Y, Q_Z = (r * BLOCK for r in range(32, 39))
LOSS, INLIER, WEIGHT, P_X, P_Y, P_Z = (r * BLOCK for r in range(39, 45))
ROWS = 45
CELL_I, CELL_J = 0, BLOCK
PAIR_I, PAIR_J = 0, 2 * BLOCK

# Sums of an edge.
SUM_G, SUM_H, SUM_OI, SUM_OJ, SUM_WEIGHT, SUM_FRONT_I, SUM_FRONT_J = 0, 12, 24, 26, 28, 29, 30
SUM_ROBUST, SUM_INLIER, SUM_INLIER_LOSS = 31, 32, 33
SUMS = 34

fused = nb.njit(fastmath=True, forceinline=True, nogil=True, error_model="numpy")


@fused
def locate(x, y, offset, count, begin, size, padded, s, row, cells, cell_row, extent, side):
    """Step 1: copy the points of one image from match `begin` of the edge on, cyclically, and find their map cells.

    Fills four rows: x, y, and the fractions to the cells on the right and below; a cell is the index of its depth.
    """
    top, stride = f32(side - 2), np.int32(2 * side)
    scale_x, scale_y = HALF * f32(side - 1) / extent[0], HALF * f32(side - 1) / extent[1]
    head = min(size, count - begin)
    for part in range(2):
        first, last, source = (0, head, offset + begin) if part == 0 else (head, size, offset - head)
        for k in range(first, last):
            u, v = x[source + k], y[source + k]
            s[row + k], s[row + BLOCK + k] = u, v
            u = min(max(u * scale_x + HALF * top, ZERO), top)
            v = min(max(v * scale_y + HALF * top, ZERO), top)
            col, line = np.int32(u), np.int32(v)
            s[row + 2 * BLOCK + k], s[row + 3 * BLOCK + k] = u - f32(col), v - f32(line)
            cells[cell_row + k] = np.int32(line * stride + np.int32(2) * col)
    for k in range(size, padded):
        s[row + k] = s[row + BLOCK + k] = s[row + 2 * BLOCK + k] = s[row + 3 * BLOCK + k] = ZERO
        cells[cell_row + k] = 0


@fused
def gather(s, cells, padded, maps, base_i, base_j, stride):
    """Step 2: log depth and log variance of each point. `base` is where an image's map begins in the flat maps."""
    for k in range(padded):
        s[LOG_DEPTH_I + k], s[LOG_VAR_I + k] = sample_patch(
            maps, base_i + cells[CELL_I + k], stride, s[RIGHT_I + k], s[BELOW_I + k]
        )
        s[LOG_DEPTH_J + k], s[LOG_VAR_J + k] = sample_patch(
            maps, base_j + cells[CELL_J + k], stride, s[RIGHT_J + k], s[BELOW_J + k]
        )


@fused
def both_ways(poses, b, e):
    """(R, t, R^T, -R^T t) of poses[b, e], as tuples."""
    r = (
        (poses[b, e, 0, 0], poses[b, e, 0, 1], poses[b, e, 0, 2]),
        (poses[b, e, 1, 0], poses[b, e, 1, 1], poses[b, e, 1, 2]),
        (poses[b, e, 2, 0], poses[b, e, 2, 1], poses[b, e, 2, 2]),
    )
    t = (poses[b, e, 0, 3], poses[b, e, 1, 3], poses[b, e, 2, 3])
    transposed = ((r[0][0], r[1][0], r[2][0]), (r[0][1], r[1][1], r[2][1]), (r[0][2], r[1][2], r[2][2]))
    inverse = (
        -(r[0][0] * t[0] + r[1][0] * t[1] + r[2][0] * t[2]),
        -(r[0][1] * t[0] + r[1][1] * t[1] + r[2][1] * t[2]),
        -(r[0][2] * t[0] + r[1][2] * t[1] + r[2][2] * t[2]),
    )
    return r, t, transposed, inverse


@fused
def exponentiate(s, padded):
    """Step 3a: depths and precisions 1/v."""
    for k in range(padded):
        s[DEPTH_I + k] = math.exp(math.clamp(s[LOG_DEPTH_I + k], math.LOG_DEPTH_RANGE))
        s[PRECISION_I + k] = math.exp(math.clamp(-s[LOG_VAR_I + k], math.LOG_VARIANCE_RANGE))
        s[DEPTH_J + k] = math.exp(math.clamp(s[LOG_DEPTH_J + k], math.LOG_DEPTH_RANGE))
        s[PRECISION_J + k] = math.exp(math.clamp(-s[LOG_VAR_J + k], math.LOG_VARIANCE_RANGE))


@fused
def transform(s, padded, rotation, translation, own, own_depth, tan, to):
    """Step 3b: the points of one image in the frame of the other."""
    (r_xx, r_xy, r_xz), (r_yx, r_yy, r_yz), (r_zx, r_zy, r_zz) = rotation
    t_x, t_y, t_z = translation
    r_xx, r_yx, r_zx = r_xx * tan[0], r_yx * tan[0], r_zx * tan[0]
    r_xy, r_yy, r_zy = r_xy * tan[1], r_yy * tan[1], r_zy * tan[1]
    for k in range(padded):
        d = s[own_depth + k]
        x, y = d * s[own + k], d * s[own + BLOCK + k]
        s[to + k] = r_xx * x + r_xy * y + (r_xz * d + t_x)
        s[to + BLOCK + k] = r_yx * x + r_yy * y + (r_yz * d + t_y)
        s[to + 2 * BLOCK + k] = r_zx * x + r_zy * y + (r_zz * d + t_z)


@fused
def reproject(s, padded, translation, point, precision, other, other_tan, to, grad_depth, z_min):
    """Step 3c: the 2D term of one direction: its gradients with respect to the point and to the ray."""
    t_x, t_y, t_z = translation
    tan_x, tan_y = other_tan
    for k in range(padded):
        q_x, q_y, q_z = s[point + k], s[point + BLOCK + k], s[point + 2 * BLOCK + k]
        o_x, o_y = s[other + k] * tan_x, s[other + BLOCK + k] * tan_y
        front, maha, volume, g_x, g_y, g_z, go_x, go_y = math.reprojection(
            q_x, q_y, q_z, o_x, o_y, s[precision + k], z_min
        )
        s[to + k], s[to + BLOCK + k], s[to + 2 * BLOCK + k] = g_x, g_y, g_z
        s[to + 3 * BLOCK + k], s[to + 4 * BLOCK + k] = go_x, go_y
        s[to + 5 * BLOCK + k], s[to + 6 * BLOCK + k], s[to + 7 * BLOCK + k] = maha, volume, front
        # R p = q - t, so the gradient of the depth needs no rotation back.
        s[grad_depth + k] = g_x * (q_x - t_x) + g_y * (q_y - t_y) + g_z * (q_z - t_z)


@fused
def overlap(s, padded, translation, tan_j, w_3d, measure):
    """Step 3d: the 3D term is added to the gradients and begins the loss."""
    t_x, t_y, t_z = translation
    tan_x, tan_y = tan_j
    for k in range(padded):
        d_j = s[DEPTH_J + k]
        b_x, b_y = d_j * s[X_J + k] * tan_x, d_j * s[Y_J + k] * tan_y
        q_x, q_y, q_z = s[Q_X + k], s[Q_Y + k], s[Q_Z + k]
        e_x, e_y, e_z = q_x - b_x, q_y - b_y, q_z - d_j
        square, joint, share_i, share_j, total = math.overlap(e_x, e_y, e_z, s[PRECISION_I + k], s[PRECISION_J + k])
        joint *= w_3d
        f_x, f_y, f_z = joint * e_x, joint * e_y, joint * e_z
        s[G_X + k] += f_x
        s[G_Y + k] += f_y
        s[G_Z + k] += f_z
        s[GO_X + k] -= f_x * d_j
        s[GO_Y + k] -= f_y * d_j
        s[GRAD_DEPTH_I + k] += f_x * (q_x - t_x) + f_y * (q_y - t_y) + f_z * (q_z - t_z) - measure
        s[GRAD_DEPTH_J + k] -= f_x * b_x + f_y * b_y + f_z * d_j + measure
        spread = w_3d * (THREE_HALVES - square)
        s[GRAD_VAR_I + k] = s[FRONT_G + k] - HALF * s[MAHA_G + k] + share_i * spread
        s[GRAD_VAR_J + k] = s[FRONT_H + k] - HALF * s[MAHA_H + k] + share_j * spread
        s[LOSS + k] = w_3d * (square + THREE_HALVES * math.log(total)) + HALF * (s[MAHA_G + k] + s[MAHA_H + k])


@fused
def total(s, padded, log_tan_i, log_tan_j, w_3d, measure):
    """Step 3e: loss of each match."""
    constant = HALF * measure * (log_tan_i + log_tan_j)
    entropy = THREE_HALVES * w_3d
    for k in range(padded):
        log_v_i, log_v_j = s[LOG_VAR_I + k], s[LOG_VAR_J + k]
        volume = math.log(min(max(s[VOLUME_G + k] * s[VOLUME_H + k], f32(1e-37)), f32(1e37)))
        s[LOSS + k] += (
            HALF * volume
            + s[FRONT_G + k] * (log_v_i - log_tan_j)
            + s[FRONT_H + k] * (log_v_j - log_tan_i)
            + entropy * (log_v_i + log_v_j)
            - measure * (s[LOG_DEPTH_I + k] + s[LOG_DEPTH_J + k])
            - constant
        )


@fused
def judge(s, size, padded, outlier_level, sums):
    """Step 3f: robust loss and inlier posterior of each match; padding gets none."""
    robust_sum = ZERO
    for k in range(padded):
        robust, inlier = math.posterior(s[LOSS + k], outlier_level)
        real = ONE if k < size else ZERO
        robust_sum += real * robust
        s[INLIER + k] = real * inlier
    sums[SUM_ROBUST] += robust_sum


@fused
def weigh(s, pairs, padded, scale, sums):
    """Step 3g: the inlier posteriors weigh the gradients of depths and variances."""
    inlier_sum = loss_sum = front_i = front_j = ZERO
    for k in range(padded):
        inlier = s[INLIER + k]
        inlier_sum += inlier
        loss_sum += inlier * s[LOSS + k]
        front_i += inlier * s[FRONT_H + k]
        front_j += inlier * s[FRONT_G + k]
        weight = inlier * scale
        s[WEIGHT + k] = weight
        pairs[PAIR_I + 2 * k], pairs[PAIR_I + 2 * k + 1] = weight * s[GRAD_DEPTH_I + k], weight * s[GRAD_VAR_I + k]
        pairs[PAIR_J + 2 * k], pairs[PAIR_J + 2 * k + 1] = weight * s[GRAD_DEPTH_J + k], weight * s[GRAD_VAR_J + k]
    sums[SUM_INLIER] += inlier_sum
    sums[SUM_INLIER_LOSS] += loss_sum
    sums[SUM_FRONT_I] += scale * front_i
    sums[SUM_FRONT_J] += scale * front_j


@fused
def sum_force(s, padded, force, own_depth, own, other, sums, to, to_o):
    """Step 4: weighted sums of a force over its arms (x d, y d, d) and 1, for the gradient of a pose."""
    xx = xy = xz = x1 = yx = yy = yz = y1 = zx = zy = zz = z1 = ZERO
    o_x = o_y = ZERO
    for k in range(padded):
        weight, x, y, d = s[WEIGHT + k], s[own + k], s[own + BLOCK + k], s[own_depth + k]
        g_x, g_y, g_z = weight * s[force + k], weight * s[force + BLOCK + k], weight * s[force + 2 * BLOCK + k]
        o_x += weight * s[force + 3 * BLOCK + k] * s[other + k]
        o_y += weight * s[force + 4 * BLOCK + k] * s[other + BLOCK + k]
        x1 += g_x
        y1 += g_y
        z1 += g_z
        g_x, g_y, g_z = g_x * d, g_y * d, g_z * d
        xx += g_x * x
        xy += g_x * y
        xz += g_x
        yx += g_y * x
        yy += g_y * y
        yz += g_y
        zx += g_z * x
        zy += g_z * y
        zz += g_z
    for k, value in enumerate((xx, xy, xz, x1, yx, yy, yz, y1, zx, zy, zz, z1)):
        sums[to + k] += value
    sums[to_o] += o_x
    sums[to_o + 1] += o_y


@fused
def scatter(s, pairs, cells, size, grad, base_i, base_j, stride):
    """Step 5: gradients of the sampled values to the four cells around each point."""
    for k in range(size):
        splat_patch(grad, base_i + cells[CELL_I + k], stride, s[RIGHT_I + k], s[BELOW_I + k], pairs, PAIR_I + 2 * k)
        splat_patch(grad, base_j + cells[CELL_J + k], stride, s[RIGHT_J + k], s[BELOW_J + k], pairs, PAIR_J + 2 * k)


@fused
def finish(b, e, sums, rotation, translation, tan_i, tan_j, size, measure, losses, grad_pose, grad_tan):
    """From the sums of edge e of world b to losses [3, B, E], grad_pose [B, E, 3, 4], grad_tan [B, E, 4]."""
    losses[0, b, e] = sums[SUM_ROBUST] / f32(size)
    losses[1, b, e] = sums[SUM_INLIER] / f32(size)
    losses[2, b, e] = sums[SUM_INLIER_LOSS] / max(sums[SUM_INLIER], f32(1e-6))
    arm_i = (tan_i[0], tan_i[1], ONE)
    arm_j = (tan_j[0], tan_j[1], ONE)
    for r in range(3):
        shift = sums[SUM_G + 4 * r + 3]
        for c in range(3):
            # q = R p_i + t gives g p_i^T; q = R^T (p_j - t) gives (p_j - t) h^T.
            moment = sums[SUM_G + 4 * r + c] * arm_i[c] + sums[SUM_H + 4 * c + r] * arm_j[r]
            grad_pose[b, e, r, c] = moment - translation[r] * sums[SUM_H + 4 * c + 3]
            shift -= rotation[r][c] * sums[SUM_H + 4 * c + 3]
        grad_pose[b, e, r, 3] = shift
    for a in range(2):
        pull_i, pull_j = sums[SUM_OI + a], sums[SUM_OJ + a]
        for r in range(
            3
        ):  # p scales with the tangent of its own camera, too: the diagonals of R^T g p_i^T and R h p_j^T
            pull_i += rotation[r][a] * sums[SUM_G + 4 * r + a]
            pull_j += rotation[a][r] * sums[SUM_H + 4 * r + a]
        grad_tan[b, e, a] = pull_i * tan_i[a] - sums[SUM_FRONT_I] - HALF * measure * sums[SUM_WEIGHT]
        grad_tan[b, e, 2 + a] = pull_j * tan_j[a] - sums[SUM_FRONT_J] - HALF * measure * sums[SUM_WEIGHT]
