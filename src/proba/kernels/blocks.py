"""The steps of the fused kernel on one block of matches, eight matches at a time.

A block's intermediate values stay in the first-level cache, as rows of one array. The loops are short on purpose: a
processor overlaps the iterations of a loop only as far as its instruction window reaches, and sixteen registers hold
few values; a sum that has to leave its register waits for memory in every iteration.
"""

from __future__ import annotations

from math import floor

import numba as nb

from proba.kernels import math
from proba.kernels.math import HALF, ONE, THREE_HALVES, VOLUME_RANGE, ZERO, f32
from proba.kernels.patch import sample_patches, splat_patches
from proba.kernels.simd import WIDTH, lane_sum, load, load_first, store, store_whole

BLOCK = 128
"""Matches of a block. 64 and 256 were measured 10 % slower: loop ends, or rows beyond the first-level cache."""
PITCH = BLOCK + WIDTH
"""Distance of two rows: not a power of two, which would crowd them in few sets of the cache."""

# Rows of the scratch array. Rows that are named in sequence lie in sequence.
X_I, Y_I, RIGHT_I, BELOW_I, X_J, Y_J, RIGHT_J, BELOW_J = (r * PITCH for r in range(8))
LOG_DEPTH_I, LOG_VAR_I, LOG_DEPTH_J, LOG_VAR_J, DEPTH_I, PRECISION_I, DEPTH_J, PRECISION_J = (
    r * PITCH for r in range(8, 16)
)
G_X, G_Y, G_Z, GO_X, GO_Y, MAHA_G, VOLUME_G, FRONT_G = (r * PITCH for r in range(16, 24))  # i seen from j
H_X, H_Y, H_Z, HO_X, HO_Y, MAHA_H, VOLUME_H, FRONT_H = (r * PITCH for r in range(24, 32))  # j seen from i
GRAD_DEPTH_I, GRAD_VAR_I, GRAD_DEPTH_J, GRAD_VAR_J, Q_X, Q_Y, Q_Z = (r * PITCH for r in range(32, 39))
LOSS, INLIER, REAL = (r * PITCH for r in range(39, 42))
ROWS = 42
P_X = H_X  # a point is overwritten by its gradient
CELL_I, CELL_J = 0, PITCH

# Sums of an edge.
SUM_G, SUM_H, SUM_OI, SUM_OJ, SUM_FRONT_I, SUM_FRONT_J = 0, 12, 24, 26, 28, 29
SUM_ROBUST, SUM_INLIER, SUM_INLIER_LOSS = 30, 31, 32
SUMS = 33

fused = nb.njit(fastmath={"nnan", "ninf", "nsz", "contract"}, forceinline=True, nogil=True, error_model="numpy")


@fused
def mark(s, size):
    """One for each match of the block, zero for the padding to whole vectors."""
    for k in range(size):
        s[REAL + k] = ONE
    for k in range(size, (size + WIDTH - 1) // WIDTH * WIDTH):
        s[REAL + k] = ZERO


@fused
def locate(x, y, begin, size, s, row, cells, cell_row, extent, side):
    """Step 1: copy the points of one image from match `begin` on and find their map cells.

    Fills four rows: x, y, and the fractions to the cells on the right and below; a cell is the index of its depth.
    """
    top, stride = f32(side - 2), f32(2 * side)
    middle = HALF * top
    scale_x, scale_y = HALF * f32(side - 1) / extent[0], HALF * f32(side - 1) / extent[1]
    for k in range(0, size, WIDTH):
        u, v = load_first(x, begin + k, size - k), load_first(y, begin + k, size - k)
        store(s, row + k, u)
        store(s, row + PITCH + k, v)
        u, v = min(max(u * scale_x + middle, ZERO), top), min(max(v * scale_y + middle, ZERO), top)
        col, line = floor(u), floor(v)
        store(s, row + 2 * PITCH + k, u - col)
        store(s, row + 3 * PITCH + k, v - line)
        store_whole(cells, cell_row + k, line * stride + (col + col))


@fused
def gather(s, cells, cell_row, size, maps, base, stride, row, to):
    """Step 2: log depth and log variance of each point. `base` is where the image's map begins in the flat maps."""
    for k in range(0, size, WIDTH):
        right, below = load(s, row + 2 * PITCH + k), load(s, row + 3 * PITCH + k)
        log_depth, log_variance = sample_patches(maps, base, stride, cells, cell_row + k, right, below)
        store(s, to + k, log_depth)
        store(s, to + PITCH + k, log_variance)


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
def exponentiate(s, size):
    """Step 3a: depths and precisions 1/v."""
    for k in range(0, size, WIDTH):
        store(s, DEPTH_I + k, math.exp(math.clamp(load(s, LOG_DEPTH_I + k), math.LOG_DEPTH_RANGE)))
        store(s, PRECISION_I + k, math.exp(-math.clamp(load(s, LOG_VAR_I + k), math.LOG_VARIANCE_RANGE)))
        store(s, DEPTH_J + k, math.exp(math.clamp(load(s, LOG_DEPTH_J + k), math.LOG_DEPTH_RANGE)))
        store(s, PRECISION_J + k, math.exp(-math.clamp(load(s, LOG_VAR_J + k), math.LOG_VARIANCE_RANGE)))


@fused
def transform(s, size, rotation, translation, own, own_depth, tan, to):
    """Step 3b: the points of one image in the frame of the other."""
    (r_xx, r_xy, r_xz), (r_yx, r_yy, r_yz), (r_zx, r_zy, r_zz) = rotation
    t_x, t_y, t_z = translation
    r_xx, r_yx, r_zx = r_xx * tan[0], r_yx * tan[0], r_zx * tan[0]
    r_xy, r_yy, r_zy = r_xy * tan[1], r_yy * tan[1], r_zy * tan[1]
    for k in range(0, size, WIDTH):
        d = load(s, own_depth + k)
        x, y = d * load(s, own + k), d * load(s, own + PITCH + k)
        store(s, to + k, r_xx * x + (r_xy * y + (r_xz * d + t_x)))
        store(s, to + PITCH + k, r_yx * x + (r_yy * y + (r_yz * d + t_y)))
        store(s, to + 2 * PITCH + k, r_zx * x + (r_zy * y + (r_zz * d + t_z)))


@fused
def reproject(s, size, translation, point, precision, other, other_tan, to, grad_depth, z_min):
    """Step 3c: the 2D term of one direction: its gradients with respect to the point and to the ray."""
    t_x, t_y, t_z = translation
    tan_x, tan_y = other_tan
    for k in range(0, size, WIDTH):
        q_x, q_y, q_z = load(s, point + k), load(s, point + PITCH + k), load(s, point + 2 * PITCH + k)
        o_x, o_y = load(s, other + k) * tan_x, load(s, other + PITCH + k) * tan_y
        front, maha, volume, along_q, g_x, g_y, g_z, go_x, go_y = math.reprojection(
            q_x, q_y, q_z, o_x, o_y, load(s, precision + k), z_min
        )
        store(s, to + k, g_x)
        store(s, to + PITCH + k, g_y)
        store(s, to + 2 * PITCH + k, g_z)
        store(s, to + 3 * PITCH + k, go_x)
        store(s, to + 4 * PITCH + k, go_y)
        store(s, to + 5 * PITCH + k, maha)
        store(s, to + 6 * PITCH + k, volume)
        store(s, to + 7 * PITCH + k, front)
        # The depth moves the point along R p = q - t.
        store(s, grad_depth + k, along_q - g_x * t_x - g_y * t_y - g_z * t_z)


@fused
def overlap(s, size, translation, tan_j, w_3d, measure):
    """Step 3d: the 3D term is added to the gradients and begins the loss."""
    t_x, t_y, t_z = translation
    tan_x, tan_y = tan_j
    entropy, half = THREE_HALVES * w_3d, HALF * w_3d
    for k in range(0, size, WIDTH):
        d_j = load(s, DEPTH_J + k)
        b_x, b_y = d_j * (load(s, X_J + k) * tan_x), d_j * (load(s, Y_J + k) * tan_y)
        q_x, q_y, q_z = load(s, Q_X + k), load(s, Q_Y + k), load(s, Q_Z + k)
        e_x, e_y, e_z = q_x - b_x, q_y - b_y, q_z - d_j
        square, joint, share_i, share_j, total = math.overlap(
            e_x, e_y, e_z, load(s, PRECISION_I + k), load(s, PRECISION_J + k)
        )
        joint *= w_3d
        f_x, f_y, f_z = joint * e_x, joint * e_y, joint * e_z
        store(s, G_X + k, load(s, G_X + k) + f_x)
        store(s, G_Y + k, load(s, G_Y + k) + f_y)
        store(s, G_Z + k, load(s, G_Z + k) + f_z)
        store(s, GO_X + k, load(s, GO_X + k) - f_x * d_j)
        store(s, GO_Y + k, load(s, GO_Y + k) - f_y * d_j)
        arm = f_x * (q_x - t_x) + (f_y * (q_y - t_y) + (f_z * (q_z - t_z) - measure))
        store(s, GRAD_DEPTH_I + k, load(s, GRAD_DEPTH_I + k) + arm)
        arm = f_x * b_x + (f_y * b_y + (f_z * d_j + measure))
        store(s, GRAD_DEPTH_J + k, load(s, GRAD_DEPTH_J + k) - arm)
        square *= half
        store(s, GRAD_VAR_I + k, share_i * (entropy - square))
        store(s, GRAD_VAR_J + k, share_j * (entropy - square))
        store(s, LOSS + k, square + entropy * math.log(total))


@fused
def total(s, size, log_tan_i, log_tan_j, w_3d, measure):
    """Step 3e: loss of each match, and the gradients of the variances."""
    constant = HALF * measure * (log_tan_i + log_tan_j)
    entropy = THREE_HALVES * w_3d
    for k in range(0, size, WIDTH):
        log_v_i, log_v_j = load(s, LOG_VAR_I + k), load(s, LOG_VAR_J + k)
        front_g, front_h = load(s, FRONT_G + k), load(s, FRONT_H + k)
        half_g, half_h = HALF * load(s, MAHA_G + k), HALF * load(s, MAHA_H + k)
        store(s, GRAD_VAR_I + k, load(s, GRAD_VAR_I + k) + (front_g - half_g))
        store(s, GRAD_VAR_J + k, load(s, GRAD_VAR_J + k) + (front_h - half_h))
        loss = load(s, LOSS + k) + (half_g + half_h) - constant
        loss += front_g * (log_v_i - log_tan_j) + front_h * (log_v_j - log_tan_i)
        loss += entropy * (log_v_i + log_v_j) - measure * (load(s, LOG_DEPTH_I + k) + load(s, LOG_DEPTH_J + k))
        volume = min(max(load(s, VOLUME_G + k) * load(s, VOLUME_H + k), VOLUME_RANGE[0]), VOLUME_RANGE[1])
        store(s, LOSS + k, loss + HALF * math.log(volume))


@fused
def judge(s, size, outlier_level, sums):
    """Step 3f: robust loss and inlier posterior of each match; padding gets none."""
    robust_sum, inlier_sum = load(sums, WIDTH * SUM_ROBUST), load(sums, WIDTH * SUM_INLIER)
    loss_sum = load(sums, WIDTH * SUM_INLIER_LOSS)
    for k in range(0, size, WIDTH):
        loss, real = load(s, LOSS + k), load(s, REAL + k)
        robust, inlier = math.posterior(loss, outlier_level)
        inlier *= real
        store(s, INLIER + k, inlier)
        robust_sum += real * robust
        inlier_sum += inlier
        loss_sum += inlier * loss
    store(sums, WIDTH * SUM_ROBUST, robust_sum)
    store(sums, WIDTH * SUM_INLIER, inlier_sum)
    store(sums, WIDTH * SUM_INLIER_LOSS, loss_sum)


@fused
def sum_moments(s, size, force, own_depth, own, sums, to):
    """Step 4a: sums of a force times its arms (x d, y d, d), for the gradient of a rotation."""
    xx, xy, xz = load(sums, WIDTH * to), load(sums, WIDTH * (to + 1)), load(sums, WIDTH * (to + 2))
    yx, yy, yz = load(sums, WIDTH * (to + 4)), load(sums, WIDTH * (to + 5)), load(sums, WIDTH * (to + 6))
    zx, zy, zz = load(sums, WIDTH * (to + 8)), load(sums, WIDTH * (to + 9)), load(sums, WIDTH * (to + 10))
    for k in range(0, size, WIDTH):
        d = load(s, INLIER + k) * load(s, own_depth + k)
        x, y = d * load(s, own + k), d * load(s, own + PITCH + k)
        g_x, g_y, g_z = load(s, force + k), load(s, force + PITCH + k), load(s, force + 2 * PITCH + k)
        xx += g_x * x
        xy += g_x * y
        xz += g_x * d
        yx += g_y * x
        yy += g_y * y
        yz += g_y * d
        zx += g_z * x
        zy += g_z * y
        zz += g_z * d
    store(sums, WIDTH * to, xx)
    store(sums, WIDTH * (to + 1), xy)
    store(sums, WIDTH * (to + 2), xz)
    store(sums, WIDTH * (to + 4), yx)
    store(sums, WIDTH * (to + 5), yy)
    store(sums, WIDTH * (to + 6), yz)
    store(sums, WIDTH * (to + 8), zx)
    store(sums, WIDTH * (to + 9), zy)
    store(sums, WIDTH * (to + 10), zz)


@fused
def sum_forces(s, size, force, other, sums, to, to_o, to_front):
    """Step 4b: sums of a force, of its pull on the other camera's rays, and of the points in front of that camera."""
    x, y, z = load(sums, WIDTH * (to + 3)), load(sums, WIDTH * (to + 7)), load(sums, WIDTH * (to + 11))
    o_x, o_y, front = load(sums, WIDTH * to_o), load(sums, WIDTH * (to_o + 1)), load(sums, WIDTH * to_front)
    for k in range(0, size, WIDTH):
        inlier = load(s, INLIER + k)
        x += inlier * load(s, force + k)
        y += inlier * load(s, force + PITCH + k)
        z += inlier * load(s, force + 2 * PITCH + k)
        o_x += inlier * load(s, other + k) * load(s, force + 3 * PITCH + k)
        o_y += inlier * load(s, other + PITCH + k) * load(s, force + 4 * PITCH + k)
        front += inlier * load(s, force + 7 * PITCH + k)
    store(sums, WIDTH * (to + 3), x)
    store(sums, WIDTH * (to + 7), y)
    store(sums, WIDTH * (to + 11), z)
    store(sums, WIDTH * to_o, o_x)
    store(sums, WIDTH * (to_o + 1), o_y)
    store(sums, WIDTH * to_front, front)


@fused
def scatter(s, cells, cell_row, size, scale, grad, base, stride, row, source):
    """Step 5: gradients of the sampled values, weighted with the inlier posteriors, to the cells around each point."""
    for k in range(0, size, WIDTH):
        weight = load(s, INLIER + k) * scale
        right, below = load(s, row + 2 * PITCH + k), load(s, row + 3 * PITCH + k)
        depth, variance = weight * load(s, source + k), weight * load(s, source + PITCH + k)
        splat_patches(grad, base, stride, cells, cell_row + k, right, below, depth, variance)


@fused
def collapse(lanes, sums):
    """Sums [SUMS] of an edge from those of its lanes [SUMS * WIDTH]."""
    for k in range(SUMS):
        sums[k] = lane_sum(load(lanes, WIDTH * k))


@fused
def finish(b, e, sums, rotation, translation, tan_i, tan_j, size, weight, measure, losses, grad_pose, grad_tan):
    """From the sums over the `size` matches of edge e of world b to its losses and gradients.

    losses [3, B, E], grad_pose [B, E, 3, 4], grad_tan [B, E, 4].
    """
    losses[0, b, e] = sums[SUM_ROBUST] / f32(size)
    losses[1, b, e] = sums[SUM_INLIER] / f32(size)
    losses[2, b, e] = sums[SUM_INLIER_LOSS] / max(sums[SUM_INLIER], f32(1e-6))
    scale = weight / f32(size)
    arm_i = (tan_i[0], tan_i[1], ONE)
    arm_j = (tan_j[0], tan_j[1], ONE)
    for r in range(3):
        shift = sums[SUM_G + 4 * r + 3]
        for c in range(3):
            # q = R p_i + t gives g p_i^T; q = R^T (p_j - t) gives (p_j - t) h^T.
            moment = sums[SUM_G + 4 * r + c] * arm_i[c] + sums[SUM_H + 4 * c + r] * arm_j[r]
            grad_pose[b, e, r, c] = scale * (moment - translation[r] * sums[SUM_H + 4 * c + 3])
            shift -= rotation[r][c] * sums[SUM_H + 4 * c + 3]
        grad_pose[b, e, r, 3] = scale * shift
    for a in range(2):
        pull_i, pull_j = sums[SUM_OI + a], sums[SUM_OJ + a]
        for r in range(3):  # p scales with its own camera's tangent, too: diagonals of R^T g p_i^T and R h p_j^T
            pull_i += rotation[r][a] * sums[SUM_G + 4 * r + a]
            pull_j += rotation[a][r] * sums[SUM_H + 4 * r + a]
        shared = HALF * measure * sums[SUM_INLIER]
        grad_tan[b, e, a] = scale * (pull_i * tan_i[a] - sums[SUM_FRONT_I] - shared)
        grad_tan[b, e, 2 + a] = scale * (pull_j * tan_j[a] - sums[SUM_FRONT_J] - shared)
