"""The steps of the fused kernel on one block of matches, a vector of matches at a time.

A block's intermediate values stay in the nearest caches, as rows of one array. The loops are short on purpose: a
processor overlaps the iterations of a loop only as far as its instruction window reaches, so that a loop takes as long
as its longest chain of operations times its length; and sixteen registers hold few values: a sum that has to leave its
register waits for memory in every iteration.
"""

from __future__ import annotations

from math import floor

import numba as nb

from proba.kernels import math
from proba.kernels.math import DENSITY_RANGE, HALF, ONE, THREE_HALVES, ZERO, f32
from proba.kernels.patch import sample_patches, splat_patches
from proba.kernels.simd import WIDTH, lane_sums, load, load_first, select, store, store_whole

BLOCK = 256
"""Matches of a block. With 96 and 128 the starts of the loops cost 5 and 3 %; 512 gains nothing."""
PITCH = BLOCK + WIDTH
"""Distance of two rows: not a power of two, which would crowd them in few sets of the cache."""

# Rows of the scratch array. Rows that are named in sequence lie in sequence.
PLACE_I, PLACE_J, ONES = 0, 4 * PITCH, 8 * PITCH
DEPTH_I, PRECISION_I, DEPTH_J, PRECISION_J = (r * PITCH for r in range(9, 13))
POINT_G, FORCE_G, FORCE_H = (r * PITCH for r in (13, 18, 26))  # G: i seen from j, H: j seen from i
POINT_H, LOSS = FORCE_H, PRECISION_I  # the one is no longer needed where the other begins
LOG_DEPTH_I, LOG_VAR_I, LOG_DEPTH_J, LOG_VAR_J = (r * PITCH for r in range(34, 38))
GRAD_DEPTH_I, GRAD_VAR_I, GRAD_DEPTH_J, GRAD_VAR_J, INLIER = (r * PITCH for r in range(38, 43))
ROWS = 43
CELL_I, CELL_J = 0, PITCH

# Rows of a place (x, y, and where it is between map cells), of a point, and of the force on it.
X, Y, RIGHT, BELOW = (r * PITCH for r in range(4))
Z, INVERSE_NORM, INVERSE_Z = (r * PITCH for r in range(2, 5))
PULL_X, PULL_Y, FRONT, MAHA, DENSITY = (r * PITCH for r in range(3, 8))

# Sums of an edge.
SUM_G, SUM_H, SUM_OI, SUM_OJ, SUM_FRONT_I, SUM_FRONT_J = 0, 12, 24, 26, 28, 29
SUM_ROBUST, SUM_INLIER, SUM_INLIER_LOSS = 30, 31, 32
SUMS = 33
SUM_ROWS = -(-SUMS // WIDTH) * WIDTH
"""Sums whose lanes are kept: as many sums as there are lanes are added up at a time."""

FAST_MATH = {"nnan", "ninf", "nsz", "contract"}
fused = nb.njit(fastmath=FAST_MATH, forceinline=True, nogil=True, error_model="numpy")
step = nb.njit(fastmath=FAST_MATH, nogil=True, error_model="numpy")  # compiled once, however often it is called


@fused
def locate(x, y, begin, size, s, place, cells, cell_row, extent, side):
    """Step 1: coordinates of the points of one image from match `begin` on, and their map cells.

    A map cell is the index of the first of its two numbers; the place's other rows are the fractions to the cells on
    the right and below.
    """
    top, stride, numbers = f32(side - 2), f32(2 * side), f32(2)
    middle = HALF * top
    scale_x, scale_y = HALF * f32(side - 1) / extent[0], HALF * f32(side - 1) / extent[1]
    for k in range(0, size, WIDTH):
        u, v = load_first(x, begin + k, size - k), load_first(y, begin + k, size - k)
        store(s, place + X + k, u)
        store(s, place + Y + k, v)
        u, v = min(max(u * scale_x + middle, ZERO), top), min(max(v * scale_y + middle, ZERO), top)
        col, line = floor(u), floor(v)
        store(s, place + RIGHT + k, u - col)
        store(s, place + BELOW + k, v - line)
        store_whole(cells, cell_row + k, line * stride + col * numbers)


@step
def gather(s, cells, cell_row, size, maps, base, stride, place, to):
    """Step 2: log depth and log variance of each point. `base` is where the image's map begins in the flat maps."""
    for k in range(0, size, WIDTH):
        right, below = load(s, place + RIGHT + k), load(s, place + BELOW + k)
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
def transform(s, size, rotation, tan, translation, place, depth, point, z_min):
    """Step 3b: the points of one image in the frame of the other."""
    (r_xx, r_xy, r_xz), (r_yx, r_yy, r_yz), (r_zx, r_zy, r_zz) = rotation
    r_xx, r_yx, r_zx = r_xx * tan[0], r_yx * tan[0], r_zx * tan[0]
    r_xy, r_yy, r_zy = r_xy * tan[1], r_yy * tan[1], r_zy * tan[1]
    t_x, t_y, t_z = translation
    for k in range(0, size, WIDTH):
        x, y, d = load(s, place + X + k), load(s, place + Y + k), load(s, depth + k)
        q_x = d * (r_xx * x + (r_xy * y + r_xz)) + t_x
        q_y = d * (r_yx * x + (r_yy * y + r_yz)) + t_y
        q_z = d * (r_zx * x + (r_zy * y + r_zz)) + t_z
        inverse_norm, inverse_z = math.inverses(q_x, q_y, q_z, z_min)
        store(s, point + X + k, q_x)
        store(s, point + Y + k, q_y)
        store(s, point + Z + k, q_z)
        store(s, point + INVERSE_NORM + k, inverse_norm)
        store(s, point + INVERSE_Z + k, inverse_z)


@fused
def reproject(s, size, point, precision, other, tan, force, grad_depth, z_min):
    """Step 3c: the 2D term of one direction: its gradients with respect to the point and to the other image's ray."""
    for k in range(0, size, WIDTH):
        q_x, q_y, q_z = load(s, point + X + k), load(s, point + Y + k), load(s, point + Z + k)
        inverse_norm, inverse_z = load(s, point + INVERSE_NORM + k), load(s, point + INVERSE_Z + k)
        o_x, o_y = load(s, other + X + k) * tan[0], load(s, other + Y + k) * tan[1]
        front, maha, density, along_q, g_x, g_y, g_z, go_x, go_y = math.reprojection(
            q_x, q_y, q_z, o_x, o_y, load(s, precision + k), z_min, inverse_norm, inverse_z
        )
        store(s, force + X + k, g_x)
        store(s, force + Y + k, g_y)
        store(s, force + Z + k, g_z)
        store(s, force + PULL_X + k, go_x)
        store(s, force + PULL_Y + k, go_y)
        store(s, force + FRONT + k, front)
        store(s, force + MAHA + k, maha)
        store(s, force + DENSITY + k, density)
        store(s, grad_depth + k, along_q)


@fused
def overlap(s, size, tan_j, w_3d, measure):
    """Step 3d: the 3D term is added to the gradients and begins the loss."""
    entropy, half = THREE_HALVES * w_3d, HALF * w_3d
    both_constants = (measure + measure) - (entropy + entropy)
    for k in range(0, size, WIDTH):
        d_j = load(s, DEPTH_J + k)
        b_x, b_y = d_j * load(s, PLACE_J + X + k) * tan_j[0], d_j * load(s, PLACE_J + Y + k) * tan_j[1]
        q_x, q_y, q_z = load(s, POINT_G + X + k), load(s, POINT_G + Y + k), load(s, POINT_G + Z + k)
        e_x, e_y, e_z = q_x - b_x, q_y - b_y, q_z - d_j
        square, joint, share_i, share_j, total = math.overlap(
            e_x, e_y, e_z, load(s, PRECISION_I + k), load(s, PRECISION_J + k)
        )
        joint *= w_3d
        f_x, f_y, f_z = joint * e_x, joint * e_y, joint * e_z
        store(s, FORCE_G + X + k, load(s, FORCE_G + X + k) + f_x)
        store(s, FORCE_G + Y + k, load(s, FORCE_G + Y + k) + f_y)
        store(s, FORCE_G + Z + k, load(s, FORCE_G + Z + k) + f_z)
        store(s, FORCE_G + PULL_X + k, load(s, FORCE_G + PULL_X + k) - f_x * d_j)
        store(s, FORCE_G + PULL_Y + k, load(s, FORCE_G + PULL_Y + k) - f_y * d_j)
        arm = f_x * q_x + (f_y * q_y + (f_z * q_z - measure))
        store(s, GRAD_DEPTH_I + k, load(s, GRAD_DEPTH_I + k) + arm)
        square *= half
        rest = entropy - square
        arm += (rest + rest) + both_constants  # f e is twice the square
        store(s, GRAD_DEPTH_J + k, load(s, GRAD_DEPTH_J + k) - arm)
        store(s, GRAD_VAR_I + k, share_i * rest)
        store(s, GRAD_VAR_J + k, share_j * rest)
        store(s, LOSS + k, square + entropy * math.log(total))


@fused
def total(s, size, log_tan_i, log_tan_j, w_3d, measure):
    """Step 3e: loss of each match, and the gradients of the variances."""
    constant = HALF * measure * (log_tan_i + log_tan_j)
    entropy = THREE_HALVES * w_3d
    for k in range(0, size, WIDTH):
        log_v_i, log_v_j = load(s, LOG_VAR_I + k), load(s, LOG_VAR_J + k)
        front_g, front_h = load(s, FORCE_G + FRONT + k), load(s, FORCE_H + FRONT + k)
        maha_g, maha_h = load(s, FORCE_G + MAHA + k), load(s, FORCE_H + MAHA + k)
        store(s, GRAD_VAR_I + k, (load(s, GRAD_VAR_I + k) + front_g) - HALF * maha_g)
        store(s, GRAD_VAR_J + k, (load(s, GRAD_VAR_J + k) + front_h) - HALF * maha_h)
        loss = HALF * (maha_g + maha_h) + (load(s, LOSS + k) - constant)
        loss = front_g * (log_v_i - log_tan_j) + (front_h * (log_v_j - log_tan_i) + loss)
        loss = entropy * (log_v_i + log_v_j) + loss
        loss -= measure * (load(s, LOG_DEPTH_I + k) + load(s, LOG_DEPTH_J + k))
        density = load(s, FORCE_G + DENSITY + k) * load(s, FORCE_H + DENSITY + k)
        density = min(max(density, DENSITY_RANGE[0]), DENSITY_RANGE[1])
        store(s, LOSS + k, loss - HALF * math.log(density))


@fused
def judge_vector(s, k, outlier_level, real, so_far):
    """The sums `so_far` with those matches from k on that are real, which is one or zero."""
    robust_sum, product, inlier_sum, loss_sum = so_far
    loss = load(s, LOSS + k)
    least, both, inlier = math.posterior(loss, outlier_level)
    inlier *= real
    store(s, INLIER + k, inlier)
    product *= select(real > ZERO, both, ONE)
    return robust_sum + real * least, product, inlier_sum + inlier, loss_sum + inlier * loss


@fused
def judge(s, size, outlier_level, sums):
    """Step 3f: robust loss and inlier posterior of each match; padding gets none."""
    ones = load(s, ONES)
    so_far = (  # the product, from one on, is at most 2^(BLOCK / WIDTH) in the end
        load(sums, WIDTH * SUM_ROBUST), ones, load(sums, WIDTH * SUM_INLIER), load(sums, WIDTH * SUM_INLIER_LOSS),
    )  # fmt: skip
    whole = size // WIDTH * WIDTH
    for k in range(0, whole, WIDTH):
        so_far = judge_vector(s, k, outlier_level, ONE, so_far)
    if whole < size:
        so_far = judge_vector(s, whole, outlier_level, load_first(s, ONES, size - whole), so_far)
    robust_sum, product, inlier_sum, loss_sum = so_far
    store(sums, WIDTH * SUM_ROBUST, robust_sum - math.log(product))
    store(sums, WIDTH * SUM_INLIER, inlier_sum)
    store(sums, WIDTH * SUM_INLIER_LOSS, loss_sum)


@fused
def sum_moments(s, size, force, depth, place, sums, to):
    """Step 4a: sums of a force times its arms (x d, y d, d), for the gradient of a rotation."""
    xx, xy, xz = load(sums, WIDTH * to), load(sums, WIDTH * (to + 1)), load(sums, WIDTH * (to + 2))
    yx, yy, yz = load(sums, WIDTH * (to + 4)), load(sums, WIDTH * (to + 5)), load(sums, WIDTH * (to + 6))
    zx, zy, zz = load(sums, WIDTH * (to + 8)), load(sums, WIDTH * (to + 9)), load(sums, WIDTH * (to + 10))
    for k in range(0, size, WIDTH):
        d = load(s, INLIER + k) * load(s, depth + k)
        x, y = d * load(s, place + X + k), d * load(s, place + Y + k)
        g_x, g_y, g_z = load(s, force + X + k), load(s, force + Y + k), load(s, force + Z + k)
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
def sum_forces(s, size, force, translation, grad_depth, other, sums, to, to_o, to_front):
    """Step 4b: sums of a force, of its pull on the other camera's rays, and of the points in front of that camera.

    The depth moves the point along q - t: t completes its gradient here, where the force is at hand.
    """
    t_x, t_y, t_z = translation
    x, y, z = load(sums, WIDTH * (to + 3)), load(sums, WIDTH * (to + 7)), load(sums, WIDTH * (to + 11))
    o_x, o_y, front = load(sums, WIDTH * to_o), load(sums, WIDTH * (to_o + 1)), load(sums, WIDTH * to_front)
    for k in range(0, size, WIDTH):
        inlier = load(s, INLIER + k)
        g_x, g_y, g_z = load(s, force + X + k), load(s, force + Y + k), load(s, force + Z + k)
        store(s, grad_depth + k, load(s, grad_depth + k) - g_x * t_x - g_y * t_y - g_z * t_z)
        x += inlier * g_x
        y += inlier * g_y
        z += inlier * g_z
        o_x += inlier * load(s, other + X + k) * load(s, force + PULL_X + k)
        o_y += inlier * load(s, other + Y + k) * load(s, force + PULL_Y + k)
        front += inlier * load(s, force + FRONT + k)
    store(sums, WIDTH * (to + 3), x)
    store(sums, WIDTH * (to + 7), y)
    store(sums, WIDTH * (to + 11), z)
    store(sums, WIDTH * to_o, o_x)
    store(sums, WIDTH * (to_o + 1), o_y)
    store(sums, WIDTH * to_front, front)


@step
def scatter(s, cells, cell_row, size, scale, grad, base, stride, place, source):
    """Step 5: gradients of the sampled values, times inlier posterior and `scale`, to the cells around each point."""
    for k in range(0, size, WIDTH):
        right, below = load(s, place + RIGHT + k), load(s, place + BELOW + k)
        weight = load(s, INLIER + k) * scale
        depth, variance = weight * load(s, source + k), weight * load(s, source + PITCH + k)
        splat_patches(grad, base, stride, cells, cell_row + k, right, below, depth, variance)


@fused
def collapse(lanes, sums, tan_i, tan_j):
    """Sums [SUM_ROWS] of an edge from those of its lanes [SUM_ROWS * WIDTH]; coordinates in them become rays."""
    for k in range(0, SUM_ROWS, WIDTH):
        store(sums, k, lane_sums(lanes, WIDTH * k))
    for a in range(2):
        for r in range(3):
            sums[SUM_G + 4 * r + a] *= tan_i[a]
            sums[SUM_H + 4 * r + a] *= tan_j[a]
        sums[SUM_OI + a] *= tan_i[a]
        sums[SUM_OJ + a] *= tan_j[a]


@fused
def finish(b, e, sums, rotation, translation, size, weight, measure, losses, grad_pose, grad_tan):
    """From the sums over the `size` matches of edge e of world b to its losses and gradients.

    losses [3, B, E], grad_pose [B, E, 3, 4], grad_tan [B, E, 4].
    """
    losses[0, b, e] = sums[SUM_ROBUST] / f32(size)
    losses[1, b, e] = sums[SUM_INLIER] / f32(size)
    losses[2, b, e] = sums[SUM_INLIER_LOSS] / max(sums[SUM_INLIER], f32(1e-6))
    scale = weight / f32(size)
    for r in range(3):
        shift = sums[SUM_G + 4 * r + 3]
        for c in range(3):
            # q = R p_i + t gives g p_i^T; q = R^T (p_j - t) gives (p_j - t) h^T.
            moment = sums[SUM_G + 4 * r + c] + sums[SUM_H + 4 * c + r]
            grad_pose[b, e, r, c] = scale * (moment - translation[r] * sums[SUM_H + 4 * c + 3])
            shift -= rotation[r][c] * sums[SUM_H + 4 * c + 3]
        grad_pose[b, e, r, 3] = scale * shift
    for a in range(2):
        pull_i, pull_j = sums[SUM_OI + a], sums[SUM_OJ + a]
        for r in range(3):  # p scales with its own camera's tangent, too: diagonals of R^T g p_i^T and R h p_j^T
            pull_i += rotation[r][a] * sums[SUM_G + 4 * r + a]
            pull_j += rotation[a][r] * sums[SUM_H + 4 * r + a]
        shared = HALF * measure * sums[SUM_INLIER]
        grad_tan[b, e, a] = scale * (pull_i - sums[SUM_FRONT_I] - shared)
        grad_tan[b, e, 2 + a] = scale * (pull_j - sums[SUM_FRONT_J] - shared)
