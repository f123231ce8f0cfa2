"""The fused kernel on an NVIDIA GPU (numba-cuda): the closed forms of `math`, a thread a match. Imported on demand.

A block of threads walks the window of one edge in one world and adds up its sums in shared memory, in a fixed order.
The map gradients of all edges meet in the same cells in no fixed order, so they are added as integers, whose sum
does not depend on it: the same input gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba as nb
import torch
from numba import cuda as numba_cuda
from torch import Tensor

from proba.kernels import blocks, cuda_launch, math
from proba.kernels.blocks import (
    SUM_FRONT_I,
    SUM_FRONT_J,
    SUM_G,
    SUM_H,
    SUM_INLIER,
    SUM_INLIER_LOSS,
    SUM_OI,
    SUM_OJ,
    SUM_ROBUST,
    SUMS,
)
from proba.kernels.cuda_launch import HOME, Adder, check_gpu, launch, spread, strides, view
from proba.kernels.math import DENSITY_RANGE, HALF, THREE_HALVES, ZERO, f32
from proba.objective.evaluation import EdgeEvaluation, Minibatch
from proba.objective.options import ObjectiveOptions
from proba.objective.packed import PackedMatches

cuda: Any = numba_cuda
LARGEST = SUMS
"""Row behind the sums: the largest gradient of a sampled value."""
SHARED = (SUMS + 1, cuda_launch.THREADS)
HEADROOM = 62
"""Bits of an integer that a sum of map gradients may use."""


@cuda.jit(device=True)
def _position(x, extent, side):
    """(cell, fraction to the next) of an image coordinate along one axis of the map."""
    top = f32(side - 2)
    at = min(max(x * (HALF * f32(side - 1) / extent) + HALF * top, ZERO), top)
    cell = int(at)
    return cell, at - f32(cell)


@cuda.jit(device=True)
def _sample(maps, b, n, row, col, below, right, channel):
    upper, lower = maps[b, n, row, col, channel], maps[b, n, row + 1, col, channel]
    left = upper + below * (lower - upper)
    upper, lower = maps[b, n, row, col + 1, channel], maps[b, n, row + 1, col + 1, channel]
    return left + right * (upper + below * (lower - upper) - left)


def _edge_sums(
    edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch, first,
    maps, log_tan, poses, edge_weight, outlier_level, w_3d, neutral, z_min, samples, sums,
):  # fmt: skip
    """Block (e, b): sums [B, E, SUMS + 1] of edge e in world b, and the weighted gradients [B, 4, S] of its samples."""
    e, b, thread, threads = cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x, cuda.blockDim.x
    shared = cuda.shared.array(SHARED, nb.float32)
    for k in range(SUMS + 1):
        shared[k, thread] = ZERO
    i, j, side = edges[e, 0], edges[e, 1], maps.shape[2]
    size = min(batch, count[e])
    log_tan_i, log_tan_j = log_tan[b, i, 0] + log_tan[b, i, 1], log_tan[b, j, 0] + log_tan[b, j, 1]
    tan_ix, tan_iy = math.exp(log_tan[b, i, 0]), math.exp(log_tan[b, i, 1])
    tan_jx, tan_jy = math.exp(log_tan[b, j, 0]), math.exp(log_tan[b, j, 1])
    r_xx, r_xy, r_xz, t_x = poses[b, e, 0, 0], poses[b, e, 0, 1], poses[b, e, 0, 2], poses[b, e, 0, 3]
    r_yx, r_yy, r_yz, t_y = poses[b, e, 1, 0], poses[b, e, 1, 1], poses[b, e, 1, 2], poses[b, e, 1, 3]
    r_zx, r_zy, r_zz, t_z = poses[b, e, 2, 0], poses[b, e, 2, 1], poses[b, e, 2, 2], poses[b, e, 2, 3]
    entropy = THREE_HALVES * w_3d
    measure = entropy * neutral
    scale = edge_weight[b, e] / f32(max(size, 1))
    for k in range(thread, size, threads):
        at = offset[e] + (start[e] + k) % count[e]
        u_i, v_i, u_j, v_j = x_i[at], y_i[at], x_j[at], y_j[at]
        (col, right), (row, below) = _position(u_i, extent[i, 0], side), _position(v_i, extent[i, 1], side)
        log_d_i = _sample(maps, b, i, row, col, below, right, 0)
        log_v_i = _sample(maps, b, i, row, col, below, right, 1)
        (col, right), (row, below) = _position(u_j, extent[j, 0], side), _position(v_j, extent[j, 1], side)
        log_d_j = _sample(maps, b, j, row, col, below, right, 0)
        log_v_j = _sample(maps, b, j, row, col, below, right, 1)
        d_i = math.exp(math.clamp(log_d_i, math.LOG_DEPTH_RANGE))
        d_j = math.exp(math.clamp(log_d_j, math.LOG_DEPTH_RANGE))
        w_i = math.exp(-math.clamp(log_v_i, math.LOG_VARIANCE_RANGE))
        w_j = math.exp(-math.clamp(log_v_j, math.LOG_VARIANCE_RANGE))
        oi_x, oi_y, oj_x, oj_y = u_i * tan_ix, v_i * tan_iy, u_j * tan_jx, v_j * tan_jy
        a_x, a_y, b_x, b_y = d_i * oi_x, d_i * oi_y, d_j * oj_x, d_j * oj_y
        # q = R p_i + t and p = R^T (p_j - t)
        m_x = r_xx * a_x + r_xy * a_y + r_xz * d_i
        m_y = r_yx * a_x + r_yy * a_y + r_yz * d_i
        m_z = r_zx * a_x + r_zy * a_y + r_zz * d_i
        q_x, q_y, q_z = m_x + t_x, m_y + t_y, m_z + t_z
        c_x, c_y, c_z = b_x - t_x, b_y - t_y, d_j - t_z
        p_x = r_xx * c_x + r_yx * c_y + r_zx * c_z
        p_y = r_xy * c_x + r_yy * c_y + r_zy * c_z
        p_z = r_xz * c_x + r_yz * c_y + r_zz * c_z
        # R^T p_j, along which p moves with the depth
        n_x = r_xx * b_x + r_yx * b_y + r_zx * d_j
        n_y = r_xy * b_x + r_yy * b_y + r_zy * d_j
        n_z = r_xz * b_x + r_yz * b_y + r_zz * d_j
        inverse_norm, inverse_z = math.inverses(q_x, q_y, q_z, z_min)
        front_g, maha_g, density_g, _, g_x, g_y, g_z, go_x, go_y = math.reprojection(
            q_x, q_y, q_z, oj_x, oj_y, w_i, z_min, inverse_norm, inverse_z
        )
        inverse_norm, inverse_z = math.inverses(p_x, p_y, p_z, z_min)
        front_h, maha_h, density_h, _, h_x, h_y, h_z, ho_x, ho_y = math.reprojection(
            p_x, p_y, p_z, oi_x, oi_y, w_j, z_min, inverse_norm, inverse_z
        )
        e_x, e_y, e_z = q_x - b_x, q_y - b_y, q_z - d_j
        square, joint, share_i, share_j, total = math.overlap(e_x, e_y, e_z, w_i, w_j)
        joint, square = joint * w_3d, HALF * w_3d * square
        f_x, f_y, f_z = joint * e_x, joint * e_y, joint * e_z
        g_x, g_y, g_z = g_x + f_x, g_y + f_y, g_z + f_z
        go_x, go_y = go_x - f_x * d_j, go_y - f_y * d_j
        depth_i = g_x * m_x + g_y * m_y + g_z * m_z - measure
        depth_j = h_x * n_x + h_y * n_y + h_z * n_z - f_x * b_x - f_y * b_y - f_z * d_j - measure
        variance_i = front_g - HALF * maha_g + share_i * (entropy - square)
        variance_j = front_h - HALF * maha_h + share_j * (entropy - square)
        density = min(max(density_g * density_h, DENSITY_RANGE[0]), DENSITY_RANGE[1])
        loss = square + entropy * math.log(total) + HALF * (maha_g + maha_h - math.log(density))
        loss += front_g * (log_v_i - log_tan_j) + front_h * (log_v_j - log_tan_i)
        loss += entropy * (log_v_i + log_v_j) - measure * (log_d_i + log_d_j + HALF * (log_tan_i + log_tan_j))
        least, both, inlier = math.posterior(loss, outlier_level[b])
        weight = inlier * scale
        depth_i, variance_i = weight * depth_i, weight * variance_i
        depth_j, variance_j = weight * depth_j, weight * variance_j
        slot = first[e] + k
        samples[b, 0, slot], samples[b, 1, slot] = depth_i, variance_i
        samples[b, 2, slot], samples[b, 3, slot] = depth_j, variance_j
        largest = max(max(abs(depth_i), abs(variance_i)), max(abs(depth_j), abs(variance_j)))
        shared[LARGEST, thread] = max(shared[LARGEST, thread], largest)
        shared[SUM_ROBUST, thread] += least - math.log(both)
        shared[SUM_INLIER, thread] += inlier
        shared[SUM_INLIER_LOSS, thread] += inlier * loss
        shared[SUM_FRONT_I, thread] += inlier * front_h
        shared[SUM_FRONT_J, thread] += inlier * front_g
        shared[SUM_OI, thread] += inlier * ho_x * oi_x
        shared[SUM_OI + 1, thread] += inlier * ho_y * oi_y
        shared[SUM_OJ, thread] += inlier * go_x * oj_x
        shared[SUM_OJ + 1, thread] += inlier * go_y * oj_y
        _add_moments(shared, thread, SUM_G, inlier * g_x, inlier * g_y, inlier * g_z, a_x, a_y, d_i)
        _add_moments(shared, thread, SUM_H, inlier * h_x, inlier * h_y, inlier * h_z, b_x, b_y, d_j)
    cuda.syncthreads()
    half = threads // 2
    while half > 0:  # a tree, so the order of additions depends on the number of threads alone
        if thread < half:
            for k in range(SUMS):
                shared[k, thread] += shared[k, thread + half]
            shared[LARGEST, thread] = max(shared[LARGEST, thread], shared[LARGEST, thread + half])
        cuda.syncthreads()
        half //= 2
    for k in range(thread, SUMS + 1, threads):
        sums[b, e, k] = shared[k, 0]


@cuda.jit(device=True)
def _add_moments(shared, thread, to, g_x, g_y, g_z, x, y, z):
    shared[to, thread] += g_x * x
    shared[to + 1, thread] += g_x * y
    shared[to + 2, thread] += g_x * z
    shared[to + 3, thread] += g_x
    shared[to + 4, thread] += g_y * x
    shared[to + 5, thread] += g_y * y
    shared[to + 6, thread] += g_y * z
    shared[to + 7, thread] += g_y
    shared[to + 8, thread] += g_z * x
    shared[to + 9, thread] += g_z * y
    shared[to + 10, thread] += g_z * z
    shared[to + 11, thread] += g_z


@cuda.jit(device=True)
def _splat(grad, b, n, row, col, below, right, channel, value):
    """Add an already scaled gradient to the four cells around its point, as integers."""
    cuda.atomic.add(grad, (b, n, row, col, channel), nb.int64(value * (1 - below) * (1 - right)))
    cuda.atomic.add(grad, (b, n, row, col + 1, channel), nb.int64(value * (1 - below) * right))
    cuda.atomic.add(grad, (b, n, row + 1, col, channel), nb.int64(value * below * (1 - right)))
    cuda.atomic.add(grad, (b, n, row + 1, col + 1, channel), nb.int64(value * below * right))


def _scatter(edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch, first, samples, scale, grad):
    """Block (e, b): add the gradients of the edge's samples, times scale [B], to grad [B, N, L+1, L+1, 2] int64."""
    e, b = cuda.blockIdx.x, cuda.blockIdx.y
    side = grad.shape[2]
    for k in range(cuda.threadIdx.x, min(batch, count[e]), cuda.blockDim.x):
        at, slot = offset[e] + (start[e] + k) % count[e], first[e] + k
        for end in range(2):
            n = edges[e, end]
            u, v = (x_i[at], y_i[at]) if end == 0 else (x_j[at], y_j[at])
            (col, right), (row, below) = _position(u, extent[n, 0], side), _position(v, extent[n, 1], side)
            for channel in range(2):
                value = samples[b, 2 * end + channel, slot] * scale[b]
                _splat(grad, b, n, row, col, below, right, channel, value)


def _collect_maps(grad, scale, out):
    """Block (x, b): integers of world b to numbers in out [B, M], and zeros for the next call."""
    b = cuda.blockIdx.y
    for k in range(
        cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x, out.shape[1], cuda.gridDim.x * cuda.blockDim.x
    ):
        out[b, k] = grad[b, k] / scale[b]
        grad[b, k] = 0


_finish_edge = cuda.jit(device=True)(blocks.finish.py_func)


def _finish(sums, count, batch, poses, edge_weight, measure, losses, grad_pose, grad_tan):
    """A thread an edge and world: from its sums to its losses and gradients."""
    edges = len(count)
    for task in range(cuda.grid(1), len(sums) * edges, cuda.gridsize(1)):
        b, e = task // edges, task % edges
        r_xx, r_xy, r_xz, t_x = poses[b, e, 0, 0], poses[b, e, 0, 1], poses[b, e, 0, 2], poses[b, e, 0, 3]
        r_yx, r_yy, r_yz, t_y = poses[b, e, 1, 0], poses[b, e, 1, 1], poses[b, e, 1, 2], poses[b, e, 1, 3]
        r_zx, r_zy, r_zz, t_z = poses[b, e, 2, 0], poses[b, e, 2, 1], poses[b, e, 2, 2], poses[b, e, 2, 3]
        rotation = ((r_xx, r_xy, r_xz), (r_yx, r_yy, r_yz), (r_zx, r_zy, r_zz))
        size = max(min(batch, count[e]), 1)
        _finish_edge(
            b, e, sums[b, e], rotation, (t_x, t_y, t_z), size, edge_weight[b, e], measure, losses, grad_pose, grad_tan
        )


KERNELS: tuple[Callable[..., None], ...] = (_edge_sums, _scatter, _collect_maps, _finish)


class Evaluator:
    """`proba.objective.evaluate` on the GPU, in float32, of tensors that are there; its results are there as well."""

    def __init__(self) -> None:
        check_gpu()
        self._kernels = {f.__name__: cuda.jit(f) for f in KERNELS}
        self._packed: PackedMatches | None = None
        self._window: tuple[Any, ...] = ()
        self._firsts: dict[int, tuple[Tensor, int]] = {}
        self._buffers: dict[str, Tensor] = {}

    def __call__(self, at: Minibatch, options: ObjectiveOptions | None = None) -> EdgeEvaluation:
        options = options or ObjectiveOptions()
        assert options.gaussians == "isotropic", "anisotropic Gaussians exist in the reference objective only"
        worlds, _, _, _, channels = at.maps.shape
        assert channels == 2, f"maps [B, N, L+1, L+1, 2], got {tuple(at.maps.shape)}"
        num_edges = at.packed.num_edges
        losses = self._buffer("losses", (3, worlds, num_edges))
        grad_pose = self._buffer("grad_pose", (worlds, num_edges, 3, 4))
        grad_tan = self._buffer("grad_tan", (worlds, num_edges, 4))
        grad_maps = self._buffer("grad_maps", tuple(at.maps.shape))
        if num_edges and worlds:
            self._launch(at, options, losses, grad_pose, grad_tan, grad_maps)
        else:
            grad_maps.zero_()
        edge_loss, inlier_share, inlier_loss = losses  # [B, E] each
        return EdgeEvaluation(
            edge_loss=edge_loss,
            inlier_share=inlier_share,
            inlier_loss=inlier_loss,
            grad_pose=grad_pose,
            grad_maps=grad_maps,
            grad_log_tan=self._of_images(at.packed, grad_tan),
        )

    def _launch(
        self, at: Minibatch, options: ObjectiveOptions, losses: Tensor, grad_pose: Tensor, grad_tan: Tensor, out: Tensor
    ) -> None:
        """Fill the arrays, shaped as in `blocks.finish`, and `out` with the gradients of the maps."""
        maps, log_tan, poses = (t.float().contiguous() for t in (at.maps, at.log_tan, at.j_from_i[..., :3, :]))
        worlds, num_edges = len(maps), at.packed.num_edges
        weight = at.edge_weight.float().expand(worlds, num_edges).contiguous()
        level = at.outlier_level.float().clamp(max=1e30)
        matches, first, samples_of_edges = self._minibatch(at.packed, at.batch)
        window = (*matches, view(at.start), at.batch, view(first))
        samples = self._buffer("samples", (worlds, 4, max(1, samples_of_edges)))
        sums = self._buffer("sums", (worlds, num_edges, SUMS + 1))
        w_3d, neutral = f32(options.w_3d), f32(options.measure == "neutral")
        grid, threads, kernels = (num_edges, worlds), _threads(at.batch), self._kernels
        unknowns = (maps, log_tan, poses, weight, level, w_3d, neutral, f32(options.z_min))
        launch(kernels["_edge_sums"], grid, threads, *window, *unknowns, samples, sums)
        scale = integer_scale(sums[:, :, LARGEST].amax(1), 2 * samples_of_edges)
        grad = self._buffer("grad", tuple(maps.shape), torch.int64)
        launch(kernels["_scatter"], grid, threads, *window, samples, scale, grad)
        flat = maps[0].numel()
        blocks_of_world, threads = strides(flat)
        of_worlds = (grad.view(worlds, flat), scale, out.view(worlds, flat))
        launch(kernels["_collect_maps"], (blocks_of_world, worlds), threads, *of_worlds)
        measure = THREE_HALVES * neutral * w_3d
        edge_results = (matches[2], at.batch, poses, weight, measure, losses, grad_pose, grad_tan)
        spread(kernels["_finish"], worlds * num_edges, sums, *edge_results)

    def _minibatch(self, packed: PackedMatches, batch: int) -> tuple[tuple[Any, ...], Tensor, int]:
        """Views of the matches, and of a minibatch: the first sample of each edge [E], and the number of all."""
        self._take(packed)
        if batch not in self._firsts:
            size = packed.count.clamp(max=batch)
            self._firsts[batch] = size.cumsum(0) - size, int(size.sum())
        return (self._window, *self._firsts[batch])

    def _take(self, packed: PackedMatches) -> None:
        """What stays the same as long as the matches do."""
        if self._packed is not packed:
            self._packed, self._firsts = packed, {}
            self._window = tuple(map(view, packed.fields))
            self._of_nodes = Adder(packed.edges.T.reshape(-1), packed.num_images)

    def _of_images(self, packed: PackedMatches, grad_tan: Tensor) -> Tensor:
        """Sums of the edges' gradients [B, E, 4], two for each end, over the images, [B, N, 2]."""
        self._take(packed)
        return self._of_nodes(torch.cat([grad_tan[..., :2], grad_tan[..., 2:]], 1))

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Zeros on the GPU when new; else the memory of the last call with this name and shape, as it was left."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != shape:
            buffer = self._buffers[name] = torch.zeros(shape, dtype=dtype, device=HOME)
        return buffer


def _threads(batch: int) -> int:
    """A power of two, for the tree of additions."""
    threads = 32
    while threads < min(batch, cuda_launch.THREADS):
        threads *= 2
    return threads


def integer_scale(largest: Tensor, additions: int) -> Tensor:
    """Per world the power of two, [B] float64, by which so many gradients up to `largest` [B] fill an integer.

    It is put together from its bits: a power that is computed might be off by one of them.
    """
    bound = largest.double() * max(additions, 1)
    usable = (bound > 0) & bound.isfinite()
    exponent = torch.where(usable, HEADROOM - torch.frexp(torch.where(usable, bound, 1.0))[1], 0)
    return ((exponent.long() + 1023) << 52).view(torch.float64)
