"""The fused kernel: loss and all gradients of every edge in one pass over the matches, on CPU threads.

A window of matches is walked in blocks whose intermediate rows stay in the first-level cache:

1. find the map cells (SIMD), 2. gather the four cells around each point, 3. loss and gradients of each match
(SIMD, no branches), 4. sums over the block (SIMD), 5. scatter the map gradients.

All rows live in one array at constant distances, so that the compiler can prove them disjoint and vectorise.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numba as nb
import numpy as np
import torch
from torch import Tensor

from proba.kernels import math
from proba.kernels.math import HALF, ONE, THREE_HALVES, ZERO, f32
from proba.kernels.patch import sample_patch, splat_patch
from proba.objective.evaluation import EdgeEvaluation
from proba.objective.options import ObjectiveOptions
from proba.objective.packed import PackedMatches

BLOCK = 128
"""Matches of a block; measured best of 64, 128, 256, 512."""
LANES = 8
"""Blocks are padded with matches of weight zero to a multiple of this: no scalar remainder."""

# Rows of the scratch array. Rows that are named in sequence lie in sequence.
X_I, Y_I, RIGHT_I, BELOW_I, X_J, Y_J, RIGHT_J, BELOW_J = (r * BLOCK for r in range(8))
LOG_DEPTH_I, LOG_VAR_I, LOG_DEPTH_J, LOG_VAR_J, DEPTH_I, PRECISION_I, DEPTH_J, PRECISION_J = (
    r * BLOCK for r in range(8, 16)
)
G_X, G_Y, G_Z, GO_X, GO_Y, MAHA_G, VOLUME_G, FRONT_G = (r * BLOCK for r in range(16, 24))  # i seen from j
H_X, H_Y, H_Z, HO_X, HO_Y, MAHA_H, VOLUME_H, FRONT_H = (r * BLOCK for r in range(24, 32))  # j seen from i
GRAD_DEPTH_I, GRAD_VAR_I, GRAD_DEPTH_J, GRAD_VAR_J, LOSS, WEIGHT, Q_X, Q_Y, Q_Z = (r * BLOCK for r in range(32, 41))
ROWS = 44
CELL_I, CELL_J = 0, BLOCK
PAIR_I, PAIR_J = 0, 2 * BLOCK

# Sums of an edge.
SUM_G, SUM_H, SUM_OI, SUM_OJ, SUM_WEIGHT, SUM_FRONT_I, SUM_FRONT_J = 0, 12, 24, 26, 28, 29, 30
SUM_ROBUST, SUM_INLIER, SUM_INLIER_LOSS = 31, 32, 33
SUMS = 34

fused = nb.njit(fastmath=True, forceinline=True, nogil=True, error_model="numpy")


@fused
def _locate(x, y, offset, count, begin, size, padded, s, row, cells, cell_row, extent, side):
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
def _gather(s, cells, padded, maps_i, maps_j, stride):
    """Step 2: log depth and log variance of each point."""
    for k in range(padded):
        s[LOG_DEPTH_I + k], s[LOG_VAR_I + k] = sample_patch(
            maps_i, cells[CELL_I + k], stride, s[RIGHT_I + k], s[BELOW_I + k]
        )
        s[LOG_DEPTH_J + k], s[LOG_VAR_J + k] = sample_patch(
            maps_j, cells[CELL_J + k], stride, s[RIGHT_J + k], s[BELOW_J + k]
        )


@fused
def _both_ways(pose):
    """(R, t, R^T, -R^T t) of pose [3, 4] or [4, 4], as tuples."""
    r = (
        (pose[0, 0], pose[0, 1], pose[0, 2]),
        (pose[1, 0], pose[1, 1], pose[1, 2]),
        (pose[2, 0], pose[2, 1], pose[2, 2]),
    )
    t = (pose[0, 3], pose[1, 3], pose[2, 3])
    transposed = ((r[0][0], r[1][0], r[2][0]), (r[0][1], r[1][1], r[2][1]), (r[0][2], r[1][2], r[2][2]))
    inverse = (
        -(r[0][0] * t[0] + r[1][0] * t[1] + r[2][0] * t[2]),
        -(r[0][1] * t[0] + r[1][1] * t[1] + r[2][1] * t[2]),
        -(r[0][2] * t[0] + r[1][2] * t[1] + r[2][2] * t[2]),
    )
    return r, t, transposed, inverse


@fused
def _exponentiate(s, padded):
    """Step 3a: depths and precisions 1/v."""
    for k in range(padded):
        s[DEPTH_I + k] = math.exp(math.clamp(s[LOG_DEPTH_I + k], math.LOG_DEPTH_RANGE))
        s[PRECISION_I + k] = math.exp(math.clamp(-s[LOG_VAR_I + k], math.LOG_VARIANCE_RANGE))
        s[DEPTH_J + k] = math.exp(math.clamp(s[LOG_DEPTH_J + k], math.LOG_DEPTH_RANGE))
        s[PRECISION_J + k] = math.exp(math.clamp(-s[LOG_VAR_J + k], math.LOG_VARIANCE_RANGE))


@fused
def _reproject(s, padded, rotation, translation, own, own_depth, tan, other, other_tan, to, grad_depth, z_min):
    """Step 3b: the 2D term of one direction: its gradients with respect to the point and to the ray."""
    (r_xx, r_xy, r_xz), (r_yx, r_yy, r_yz), (r_zx, r_zy, r_zz) = rotation
    t_x, t_y, t_z = translation
    r_xx, r_yx, r_zx = r_xx * tan[0], r_yx * tan[0], r_zx * tan[0]
    r_xy, r_yy, r_zy = r_xy * tan[1], r_yy * tan[1], r_zy * tan[1]
    tan_x, tan_y = other_tan
    for k in range(padded):
        d = s[own_depth + k]
        x, y = d * s[own + k], d * s[own + BLOCK + k]
        m_x = r_xx * x + r_xy * y + r_xz * d
        m_y = r_yx * x + r_yy * y + r_yz * d
        m_z = r_zx * x + r_zy * y + r_zz * d
        q_x, q_y, q_z = m_x + t_x, m_y + t_y, m_z + t_z
        o_x, o_y = s[other + k] * tan_x, s[other + BLOCK + k] * tan_y
        front, maha, volume, g_x, g_y, g_z, go_x, go_y = math.reprojection(
            q_x, q_y, q_z, o_x, o_y, s[own_depth + BLOCK + k], z_min
        )
        s[to + k], s[to + BLOCK + k], s[to + 2 * BLOCK + k] = g_x, g_y, g_z
        s[to + 3 * BLOCK + k], s[to + 4 * BLOCK + k] = go_x, go_y
        s[to + 5 * BLOCK + k], s[to + 6 * BLOCK + k], s[to + 7 * BLOCK + k] = maha, volume, front
        # R p = q - t, so the depth's gradient needs no rotation back.
        s[grad_depth + k] = g_x * m_x + g_y * m_y + g_z * m_z
        if to == G_X:
            s[Q_X + k], s[Q_Y + k], s[Q_Z + k] = q_x, q_y, q_z


@fused
def _overlap(s, padded, translation, tan_j, w_3d, measure):
    """Step 3c: the 3D term is added to the gradients."""
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
def _total(s, padded, log_tan_i, log_tan_j, w_3d, measure):
    """Step 3d: loss of each match."""
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
def _weigh(s, pairs, size, padded, outlier_level, scale, sums):
    """Step 3e: the inlier posterior of each match weighs its gradients."""
    robust_sum, inlier_sum, loss_sum, front_i, front_j = ZERO, ZERO, ZERO, ZERO, ZERO
    for k in range(padded):
        loss = s[LOSS + k]
        robust, inlier = math.posterior(loss, outlier_level)
        real = ONE if k < size else ZERO
        inlier *= real
        robust_sum += real * robust
        inlier_sum += inlier
        loss_sum += inlier * loss
        front_i += inlier * s[FRONT_H + k]
        front_j += inlier * s[FRONT_G + k]
        weight = inlier * scale
        s[WEIGHT + k] = weight
        pairs[PAIR_I + 2 * k], pairs[PAIR_I + 2 * k + 1] = weight * s[GRAD_DEPTH_I + k], weight * s[GRAD_VAR_I + k]
        pairs[PAIR_J + 2 * k], pairs[PAIR_J + 2 * k + 1] = weight * s[GRAD_DEPTH_J + k], weight * s[GRAD_VAR_J + k]
    sums[SUM_ROBUST] += robust_sum
    sums[SUM_INLIER] += inlier_sum
    sums[SUM_INLIER_LOSS] += loss_sum
    sums[SUM_FRONT_I] += scale * front_i
    sums[SUM_FRONT_J] += scale * front_j


@fused
def _sum_force(s, padded, force, own_depth, own, other, sums, to, to_o):
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
def _scatter(s, pairs, cells, size, grad_i, grad_j, stride):
    """Step 5: gradients of the sampled values to the four cells around each point."""
    for k in range(size):
        splat_patch(grad_i, cells[CELL_I + k], stride, s[RIGHT_I + k], s[BELOW_I + k], pairs, PAIR_I + 2 * k)
        splat_patch(grad_j, cells[CELL_J + k], stride, s[RIGHT_J + k], s[BELOW_J + k], pairs, PAIR_J + 2 * k)


@fused
def _finish(sums, pose, tan_i, tan_j, size, measure, out, grad_pose, grad_tan):
    """From the sums of an edge to its losses `out` [3], grad_pose [3, 4] and grad_tan [4] = (i, j) x (x, y)."""
    out[0] = sums[SUM_ROBUST] / f32(size)
    out[1] = sums[SUM_INLIER] / f32(size)
    out[2] = sums[SUM_INLIER_LOSS] / max(sums[SUM_INLIER], f32(1e-6))
    arm_i = (tan_i[0], tan_i[1], ONE)
    arm_j = (tan_j[0], tan_j[1], ONE)
    for r in range(3):
        grad_pose[r, 3] = sums[SUM_G + 4 * r + 3]
        for c in range(3):
            # q = R p_i + t gives g p_i^T; q = R^T (p_j - t) gives (p_j - t) h^T.
            grad_pose[r, c] = (
                sums[SUM_G + 4 * r + c] * arm_i[c]
                + sums[SUM_H + 4 * c + r] * arm_j[r]
                - pose[r, 3] * sums[SUM_H + 4 * c + 3]
            )
            grad_pose[r, 3] -= pose[r, c] * sums[SUM_H + 4 * c + 3]
    for a in range(2):
        grad_tan[a] = sums[SUM_OI + a] * tan_i[a] - sums[SUM_FRONT_I] - HALF * measure * sums[SUM_WEIGHT]
        grad_tan[2 + a] = sums[SUM_OJ + a] * tan_j[a] - sums[SUM_FRONT_J] - HALF * measure * sums[SUM_WEIGHT]
        for r in range(3):
            grad_tan[a] += pose[r, a] * sums[SUM_G + 4 * r + a] * arm_i[a]
            grad_tan[2 + a] += pose[a, r] * sums[SUM_H + 4 * r + a] * arm_j[a]


@nb.njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def _run(
    first, last, edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch,
    maps, log_tan, pose, edge_weight, outlier_level, w_3d, neutral, z_min, owns_first,
    losses, grad_pose, grad_tan, grad_maps, private,
):  # fmt: skip
    """Evaluate the tasks first..last of the list (world 0 edge 0, world 0 edge 1, ...)."""
    num_edges, side = len(edges), maps.shape[2]
    stride, cell_floats = 2 * side, 2 * side * side
    s = np.zeros(ROWS * BLOCK, np.float32)
    pairs = np.zeros(4 * BLOCK, np.float32)
    cells = np.zeros(2 * BLOCK, np.int32)
    sums = np.empty(SUMS, np.float32)
    measure = THREE_HALVES * neutral * w_3d
    for task in range(first, last):
        b, e = task // num_edges, task % num_edges
        mine = owns_first or b > first // num_edges
        target = grad_maps[b] if mine else private
        if task == first or e == 0:
            target[:] = ZERO
        i, j, size = edges[e, 0], edges[e, 1], min(batch, count[e])
        losses[b, e] = ZERO
        grad_pose[b, e] = ZERO
        grad_tan[b, e] = ZERO
        if size == 0:
            continue
        sums[:] = ZERO
        tan_i = (np.exp(log_tan[b, i, 0]), np.exp(log_tan[b, i, 1]))
        tan_j = (np.exp(log_tan[b, j, 0]), np.exp(log_tan[b, j, 1]))
        log_tan_i, log_tan_j = log_tan[b, i, 0] + log_tan[b, i, 1], log_tan[b, j, 0] + log_tan[b, j, 1]
        rotation, translation, transposed, inverse = _both_ways(pose[b, e])
        extent_i, extent_j = (extent[i, 0], extent[i, 1]), (extent[j, 0], extent[j, 1])
        scale = edge_weight[b, e] / f32(size)
        maps_i, maps_j = maps[b, i].reshape(cell_floats), maps[b, j].reshape(cell_floats)
        grad_i, grad_j = target[i].reshape(cell_floats), target[j].reshape(cell_floats)
        for done in range(0, size, BLOCK):
            n = min(BLOCK, size - done)
            padded = (n + LANES - 1) // LANES * LANES
            begin = (start[e] + done) % count[e]
            _locate(x_i, y_i, offset[e], count[e], begin, n, padded, s, X_I, cells, CELL_I, extent_i, side)
            _locate(x_j, y_j, offset[e], count[e], begin, n, padded, s, X_J, cells, CELL_J, extent_j, side)
            _gather(s, cells, padded, maps_i, maps_j, stride)
            _exponentiate(s, padded)
            _reproject(s, padded, rotation, translation, X_I, DEPTH_I, tan_i, X_J, tan_j, G_X, GRAD_DEPTH_I, z_min)
            _reproject(s, padded, transposed, inverse, X_J, DEPTH_J, tan_j, X_I, tan_i, H_X, GRAD_DEPTH_J, z_min)
            _overlap(s, padded, translation, tan_j, w_3d, measure)
            _total(s, padded, log_tan_i, log_tan_j, w_3d, measure)
            _weigh(s, pairs, n, padded, outlier_level[b], scale, sums)
            _sum_force(s, padded, G_X, DEPTH_I, X_I, X_J, sums, SUM_G, SUM_OJ)
            _sum_force(s, padded, H_X, DEPTH_J, X_J, X_I, sums, SUM_H, SUM_OI)
            _scatter(s, pairs, cells, n, grad_i, grad_j, stride)
        sums[SUM_WEIGHT] = sums[SUM_INLIER] * scale
        _finish(sums, pose[b, e], tan_i, tan_j, size, measure, losses[b, e], grad_pose[b, e], grad_tan[b, e])


@nb.njit(nogil=True, cache=True)
def _split(edges, count, batch, worlds, chunks):
    """Borders [chunks + 1] of the task list so that every chunk has about the same number of matches."""
    num_edges = len(edges)
    total = np.int64(0)
    for e in range(num_edges):
        total += min(batch, count[e]) + 16  # an edge costs about as much as 16 matches
    borders = np.zeros(chunks + 1, np.int64)
    borders[chunks] = worlds * num_edges
    for c in range(1, chunks):
        wanted = total * worlds * c // chunks
        e, seen = (wanted // total) * num_edges, (wanted // total) * total
        while seen < wanted:
            seen += min(batch, count[e % num_edges]) + 16
            e += 1
        borders[c] = e
    return borders


@nb.njit(nogil=True, cache=True)
def _collect(edges, grad_tan, grad_log_tan):
    """Sum the edges' log_tan gradients [B, E, 4] into the images' [B, N, 2]."""
    grad_log_tan[:] = 0
    for b in range(len(grad_tan)):
        for e in range(len(edges)):
            for a in range(2):
                grad_log_tan[b, edges[e, 0], a] += grad_tan[b, e, a]
                grad_log_tan[b, edges[e, 1], a] += grad_tan[b, e, 2 + a]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="proba-kernel")


def default_threads() -> int:
    """Threads of a kernel call when the caller does not say: as many as torch uses."""
    return torch.get_num_threads()


class Workspace:
    """Buffers that a kernel writes its result into, kept between iterations. A new result overwrites the last."""

    def __init__(self) -> None:
        self._buffers: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Uninitialised float32 array [*shape]; the same memory as the last time the name and shape were asked for."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != shape:
            buffer = self._buffers[name] = np.empty(shape, np.float32)
        return buffer


def evaluate(
    packed: PackedMatches,
    start: Tensor,
    batch: int,
    maps: Tensor,
    log_tan: Tensor,
    j_from_i: Tensor,
    edge_weight: Tensor,
    outlier_level: Tensor,
    options: ObjectiveOptions | None = None,
    *,
    threads: int | None = None,
    workspace: Workspace | None = None,
) -> EdgeEvaluation:
    """`proba.objective.evaluate` in float32, fused. With a workspace, the result lives in its buffers.

    The same input and number of threads give the same bits.
    """
    options = options or ObjectiveOptions()
    assert options.gaussians == "isotropic", "anisotropic Gaussians exist in the reference objective only"
    worlds, images, side, _, channels = maps.shape
    num_edges, threads = packed.num_edges, threads or default_threads()
    assert channels == 2, f"maps [B, N, L+1, L+1, 2], got {tuple(maps.shape)}"
    assert start.shape == (num_edges,), f"start [E] with E = {num_edges}, got {tuple(start.shape)}"
    space = workspace or Workspace()
    losses = space.array("losses", (worlds, num_edges, 3))
    grad_pose = space.array("grad_pose", (worlds, num_edges, 3, 4))
    grad_tan = space.array("grad_tan", (worlds, num_edges, 4))
    grad_maps = space.array("grad_maps", (worlds, images, side, side, 2))
    grad_log_tan = space.array("grad_log_tan", (worlds, images, 2))
    edges, count = packed.edges.numpy(), packed.count.numpy()
    level = outlier_level.clamp(max=1e30)
    arguments = (
        edges, packed.offset.numpy(), count,
        *(_float32(t) for t in (packed.x_i, packed.y_i, packed.x_j, packed.y_j, packed.extent)),
        start.numpy(), batch, _float32(maps), _float32(log_tan), _float32(j_from_i),
        _float32(edge_weight.expand(worlds, num_edges)), _float32(level),
        f32(options.w_3d), f32(options.measure == "neutral"), f32(options.z_min),
    )  # fmt: skip
    borders = _split(edges, count, batch, worlds, threads)
    jobs, parts = [], []
    for c, (first, last) in enumerate(pairwise(borders)):
        if first == last and threads > 1 and c:
            continue
        owns_first = first % num_edges == 0
        private = grad_maps[0] if owns_first else space.array(f"private{c}", grad_maps.shape[1:])
        if not owns_first:
            parts.append((first // num_edges, private))
        jobs.append((first, last, *arguments, owns_first, losses, grad_pose, grad_tan, grad_maps, private))
    running = [_pool(os.cpu_count() or 1).submit(_run, *job) for job in jobs[1:]]
    _run(*jobs[0])
    for job in running:
        job.result()
    for world, private in parts:
        grad_maps[world] += private
    _collect(edges, grad_tan, grad_log_tan)
    result = torch.from_numpy(losses)
    return EdgeEvaluation(
        edge_loss=result[..., 0],
        inlier_share=result[..., 1],
        inlier_loss=result[..., 2],
        grad_pose=torch.from_numpy(grad_pose),
        grad_maps=torch.from_numpy(grad_maps),
        grad_log_tan=torch.from_numpy(grad_log_tan),
    )


def _float32(tensor: Tensor) -> np.ndarray:
    """C-contiguous float32 view, or copy where there is no such view."""
    return tensor.detach().to(torch.float32).contiguous().numpy()
