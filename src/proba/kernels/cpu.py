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

# Rows of the scratch array.
X_I, Y_I, X_J, Y_J, RIGHT_I, BELOW_I, RIGHT_J, BELOW_J = (r * BLOCK for r in range(8))
LOG_DEPTH_I, LOG_VAR_I, LOG_DEPTH_J, LOG_VAR_J, DEPTH_I, DEPTH_J = (r * BLOCK for r in range(8, 14))
G_X, G_Y, G_Z, H_X, H_Y, H_Z, O_IX, O_IY, O_JX, O_JY = (r * BLOCK for r in range(14, 24))
FRONT_I, FRONT_J, LOSS, GRAD_DEPTH_I, GRAD_VAR_I, GRAD_DEPTH_J, GRAD_VAR_J = (r * BLOCK for r in range(24, 31))
ROWS = 31
CELL_I, CELL_J = 0, BLOCK

# Sums of an edge.
SUM_G, SUM_H, SUM_OI, SUM_OJ, SUM_WEIGHT, SUM_FRONT_I, SUM_FRONT_J = 0, 12, 24, 26, 28, 29, 30
SUM_ROBUST, SUM_INLIER, SUM_INLIER_LOSS = 31, 32, 33
SUMS = 34

fused = nb.njit(fastmath=True, forceinline=True, nogil=True)


@fused
def _copy(source, first, size, s, row):
    for k in range(size):
        s[row + k] = source[first + k]


@fused
def _load(x_i, y_i, x_j, y_j, offset, count, begin, size, padded, s):
    """Copy `size` matches of an edge from `begin` on into the rows, cyclically; pad with zeros."""
    head = min(size, count - begin)
    for row, source in ((X_I, x_i), (Y_I, y_i), (X_J, x_j), (Y_J, y_j)):
        _copy(source, offset + begin, head, s, row)
        _copy(source, offset, size - head, s, row + head)
        for k in range(size, padded):
            s[row + k] = ZERO


@fused
def _locate(s, cells, padded, row, cell_row, extent_x, extent_y, side):
    """Map cell (index of its log depth) and fractions to the next cells of the points in two rows."""
    top = f32(side - 2)
    scale_x, scale_y = HALF * f32(side - 1) / extent_x, HALF * f32(side - 1) / extent_y
    stride = np.int32(2 * side)
    for k in range(padded):
        x = min(max(s[row + k] * scale_x + HALF * top, ZERO), top)
        y = min(max(s[row + BLOCK + k] * scale_y + HALF * top, ZERO), top)
        col, line = np.int32(x), np.int32(y)
        s[row + (RIGHT_I - X_I) + k] = x - f32(col)
        s[row + (BELOW_I - X_I) + k] = y - f32(line)
        cells[cell_row + k] = np.int32(line * stride + np.int32(2) * col)


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
def _differentiate(s, padded, pose, tan_ix, tan_iy, tan_jx, tan_jy, log_tan_i, log_tan_j, w_3d, neutral, z_min):
    """Step 3: loss of each match and its gradients, before the inlier posterior is known.

    g = dL/dp_{i->j} and h = dL_2D/dp_{j->i}; depths follow from them because R p_i = q - t.
    """
    r_xx, r_xy, r_xz, t_x = pose[0, 0], pose[0, 1], pose[0, 2], pose[0, 3]
    r_yx, r_yy, r_yz, t_y = pose[1, 0], pose[1, 1], pose[1, 2], pose[1, 3]
    r_zx, r_zy, r_zz, t_z = pose[2, 0], pose[2, 1], pose[2, 2], pose[2, 3]
    c_x = r_xx * t_x + r_yx * t_y + r_zx * t_z  # R^T t
    c_y = r_xy * t_x + r_yy * t_y + r_zy * t_z
    c_z = r_xz * t_x + r_yz * t_y + r_zz * t_z
    measure = neutral * w_3d
    constant = HALF * HALF * THREE_HALVES * 2 * measure * (log_tan_i + log_tan_j)
    for k in range(padded):
        o_ix, o_iy, o_jx, o_jy = s[X_I + k] * tan_ix, s[Y_I + k] * tan_iy, s[X_J + k] * tan_jx, s[Y_J + k] * tan_jy
        log_d_i, log_v_i, log_d_j, log_v_j = s[LOG_DEPTH_I + k], s[LOG_VAR_I + k], s[LOG_DEPTH_J + k], s[LOG_VAR_J + k]
        d_i, d_j = math.exp(log_d_i), math.exp(log_d_j)
        u_i, u_j = math.exp(-log_v_i), math.exp(-log_v_j)
        p_x, p_y = d_i * o_ix, d_i * o_iy
        m_x = r_xx * p_x + r_xy * p_y + r_xz * d_i  # R p_i
        m_y = r_yx * p_x + r_yy * p_y + r_yz * d_i
        m_z = r_zx * p_x + r_zy * p_y + r_zz * d_i
        q_x, q_y, q_z = m_x + t_x, m_y + t_y, m_z + t_z  # p_{i->j}
        front_j, maha_j, volume_j, g_x, g_y, g_z, go_jx, go_jy = math.reprojection(
            q_x, q_y, q_z, o_jx, o_jy, u_i, z_min
        )
        b_x, b_y = d_j * o_jx, d_j * o_jy
        n_x = r_xx * b_x + r_yx * b_y + r_zx * d_j  # R^T p_j
        n_y = r_xy * b_x + r_yy * b_y + r_zy * d_j
        n_z = r_xz * b_x + r_yz * b_y + r_zz * d_j
        front_i, maha_i, volume_i, h_x, h_y, h_z, go_ix, go_iy = math.reprojection(
            n_x - c_x, n_y - c_y, n_z - c_z, o_ix, o_iy, u_j, z_min
        )
        e_x, e_y, e_z = q_x - b_x, q_y - b_y, q_z - d_j
        square, joint, share_i, share_j, total = math.overlap(e_x, e_y, e_z, u_i, u_j)
        spring = w_3d * joint
        f_x, f_y, f_z = spring * e_x, spring * e_y, spring * e_z
        g_x, g_y, g_z = g_x + f_x, g_y + f_y, g_z + f_z
        twice_volume = math.log(min(max(volume_i * volume_j, f32(1e-37)), f32(1e37)))
        overlap = square + THREE_HALVES * (math.log(total) + log_v_i + log_v_j)
        s[LOSS + k] = (
            HALF * (maha_i + maha_j + twice_volume)
            + front_j * (log_v_i - log_tan_j)
            + front_i * (log_v_j - log_tan_i)
            + w_3d * overlap
            - THREE_HALVES * measure * (log_d_i + log_d_j)
            - constant
        )
        s[DEPTH_I + k], s[DEPTH_J + k] = d_i, d_j
        s[FRONT_I + k], s[FRONT_J + k] = front_i, front_j
        s[G_X + k], s[G_Y + k], s[G_Z + k] = g_x, g_y, g_z
        s[H_X + k], s[H_Y + k], s[H_Z + k] = h_x, h_y, h_z
        s[O_IX + k], s[O_IY + k] = go_ix, go_iy
        s[O_JX + k], s[O_JY + k] = go_jx - f_x * d_j, go_jy - f_y * d_j
        s[GRAD_DEPTH_I + k] = g_x * m_x + g_y * m_y + g_z * m_z - THREE_HALVES * measure
        s[GRAD_DEPTH_J + k] = (
            (h_x * n_x + h_y * n_y + h_z * n_z) - (f_x * b_x + f_y * b_y + f_z * d_j) - THREE_HALVES * measure
        )
        spread = w_3d * (THREE_HALVES - square)
        s[GRAD_VAR_I + k] = front_j - HALF * maha_j + share_i * spread
        s[GRAD_VAR_J + k] = front_i - HALF * maha_i + share_j * spread


@fused
def _weigh(s, size, padded, outlier_level, scale, sums):
    """Step 3, continued: inlier posterior, the losses, and the posterior's weight on every gradient."""
    robust_sum, inlier_sum, loss_sum, front_i, front_j = ZERO, ZERO, ZERO, ZERO, ZERO
    for k in range(padded):
        robust, inlier = math.posterior(s[LOSS + k], outlier_level)
        real = ONE if k < size else ZERO
        inlier *= real
        robust_sum += real * robust
        inlier_sum += inlier
        loss_sum += inlier * s[LOSS + k]
        front_i += inlier * s[FRONT_I + k]
        front_j += inlier * s[FRONT_J + k]
        weight = inlier * scale
        s[GRAD_DEPTH_I + k] *= weight
        s[GRAD_VAR_I + k] *= weight
        s[GRAD_DEPTH_J + k] *= weight
        s[GRAD_VAR_J + k] *= weight
        s[G_X + k] *= weight
        s[G_Y + k] *= weight
        s[G_Z + k] *= weight
        s[H_X + k] *= weight
        s[H_Y + k] *= weight
        s[H_Z + k] *= weight
        s[O_IX + k] *= weight
        s[O_IY + k] *= weight
        s[O_JX + k] *= weight
        s[O_JY + k] *= weight
    sums[SUM_ROBUST] += robust_sum
    sums[SUM_INLIER] += inlier_sum
    sums[SUM_INLIER_LOSS] += loss_sum
    sums[SUM_FRONT_I] += scale * front_i
    sums[SUM_FRONT_J] += scale * front_j


@fused
def _sum_force(s, padded, force, depth_row, x_row, o_row, sums, to, to_o):
    """Step 4: sums of the force g over its arms (x d, y d, d) and 1, for the gradient of a pose."""
    xx = xy = xz = x1 = yx = yy = yz = y1 = zx = zy = zz = z1 = ZERO
    o_x = o_y = ZERO
    for k in range(padded):
        x, y, d = s[x_row + k], s[x_row + BLOCK + k], s[depth_row + k]
        g_x, g_y, g_z = s[force + k], s[force + BLOCK + k], s[force + 2 * BLOCK + k]
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
        o_x += s[o_row + k] * x
        o_y += s[o_row + BLOCK + k] * y
    for k, value in enumerate((xx, xy, xz, x1, yx, yy, yz, y1, zx, zy, zz, z1)):
        sums[to + k] += value
    sums[to_o] += o_x
    sums[to_o + 1] += o_y


@fused
def _scatter(s, cells, size, grad_i, grad_j, stride):
    """Step 5: gradients of the sampled values to the four cells around each point."""
    for k in range(size):
        splat_patch(
            grad_i, cells[CELL_I + k], stride, s[RIGHT_I + k], s[BELOW_I + k], s[GRAD_DEPTH_I + k], s[GRAD_VAR_I + k]
        )
        splat_patch(
            grad_j, cells[CELL_J + k], stride, s[RIGHT_J + k], s[BELOW_J + k], s[GRAD_DEPTH_J + k], s[GRAD_VAR_J + k]
        )


@fused
def _finish(sums, pose, tan_i, tan_j, size, measure, out, grad_pose, grad_tan):
    """From the sums of an edge to its losses `out` [3], grad_pose [3, 4] and grad_tan [4] = (i, j) x (x, y)."""
    out[0] = sums[SUM_ROBUST] / f32(size)
    out[1] = sums[SUM_INLIER] / f32(size)
    out[2] = sums[SUM_INLIER_LOSS] / max(sums[SUM_INLIER], f32(1e-30))
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
        grad_tan[a] = sums[SUM_OI + a] * tan_i[a] - sums[SUM_FRONT_I] - measure * sums[SUM_WEIGHT]
        grad_tan[2 + a] = sums[SUM_OJ + a] * tan_j[a] - sums[SUM_FRONT_J] - measure * sums[SUM_WEIGHT]
        for r in range(3):
            grad_tan[a] += pose[r, a] * sums[SUM_G + 4 * r + a] * arm_i[a]
            grad_tan[2 + a] += pose[a, r] * sums[SUM_H + 4 * r + a] * arm_j[a]


@nb.njit(fastmath=True, nogil=True, cache=True)
def _run(
    first, last, edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch,
    maps, log_tan, pose, edge_weight, outlier_level, w_3d, neutral, z_min, owns_first,
    losses, grad_pose, grad_tan, grad_maps, private,
):  # fmt: skip
    """Evaluate the tasks first..last of the list (world 0 edge 0, world 0 edge 1, ...)."""
    num_edges, side = len(edges), maps.shape[2]
    stride, cell_floats = 2 * side, 2 * side * side
    s = np.zeros(ROWS * BLOCK, np.float32)
    cells = np.zeros(2 * BLOCK, np.int32)
    sums = np.empty(SUMS, np.float32)
    measure = f32(0.75) * neutral * w_3d
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
        maps_i, maps_j = maps[b, i].reshape(cell_floats), maps[b, j].reshape(cell_floats)
        grad_i, grad_j = target[i].reshape(cell_floats), target[j].reshape(cell_floats)
        for done in range(0, size, BLOCK):
            n = min(BLOCK, size - done)
            padded = (n + LANES - 1) // LANES * LANES
            _load(x_i, y_i, x_j, y_j, offset[e], count[e], (start[e] + done) % count[e], n, padded, s)
            _locate(s, cells, padded, X_I, CELL_I, extent[i, 0], extent[i, 1], side)
            _locate(s, cells, padded, X_J, CELL_J, extent[j, 0], extent[j, 1], side)
            _gather(s, cells, padded, maps_i, maps_j, stride)
            _differentiate(
                s,
                padded,
                pose[b, e],
                tan_i[0],
                tan_i[1],
                tan_j[0],
                tan_j[1],
                log_tan_i,
                log_tan_j,
                w_3d,
                neutral,
                z_min,
            )
            _weigh(s, n, padded, outlier_level[b], edge_weight[b, e] / f32(size), sums)
            _sum_force(s, padded, G_X, DEPTH_I, X_I, O_IX, sums, SUM_G, SUM_OI)
            _sum_force(s, padded, H_X, DEPTH_J, X_J, O_JX, sums, SUM_H, SUM_OJ)
            _scatter(s, cells, n, grad_i, grad_j, stride)
        sums[SUM_WEIGHT] = sums[SUM_INLIER] * edge_weight[b, e] / f32(size)
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
    for c, (first, last) in enumerate(zip(borders[:-1], borders[1:], strict=True)):
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
