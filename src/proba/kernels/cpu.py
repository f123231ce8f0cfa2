"""The fused kernel: loss and all gradients of every edge in one pass over the matches, on CPU threads.

A window of matches is walked in blocks: 1. find the map cells, 2. gather the four cells around each point, 3. loss and
gradients of each match, 4. sums over the block, 5. scatter the map gradients. Every step does a vector at once.
Between the steps, what the next edge will need is fetched into the second-level cache, little by little: a processor
keeps few requests to memory open at a time.

The compiled code is cached beside this file. Numba looks only at this file's date, so touch it after a change to
`blocks`, `math`, `patch` or `simd`.
"""

from __future__ import annotations

from itertools import pairwise

import numba as nb
import numpy as np
import torch
from torch import Tensor

from proba.kernels import blocks
from proba.kernels.blocks import (
    BLOCK,
    CELL_I,
    CELL_J,
    DEPTH_I,
    DEPTH_J,
    FORCE_G,
    FORCE_H,
    GRAD_DEPTH_I,
    GRAD_DEPTH_J,
    LOG_DEPTH_I,
    LOG_DEPTH_J,
    PITCH,
    POINT_G,
    POINT_H,
    PRECISION_I,
    PRECISION_J,
    RAY_I,
    RAY_J,
    ROWS,
    SUM_FRONT_I,
    SUM_FRONT_J,
    SUM_G,
    SUM_H,
    SUM_OI,
    SUM_OJ,
    SUMS,
)
from proba.kernels.math import THREE_HALVES, ZERO, f32
from proba.kernels.patch import prefetch
from proba.kernels.simd import WIDTH
from proba.objective.evaluation import EdgeEvaluation
from proba.objective.options import ObjectiveOptions
from proba.objective.packed import PackedMatches
from proba.threads import pool

EDGE_COST = 16
"""What an edge costs beside its matches, in matches."""


@nb.njit(fastmath=True, nogil=True, cache=True, error_model="numpy")
def _run(
    first, last, edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch,
    maps, log_tan, tan, poses, edge_weight, outlier_level, w_3d, neutral, z_min, owns_first,
    losses, grad_pose, grad_tan, grad_maps, private,
):  # fmt: skip
    """Evaluate the tasks first..last of the list (world 0 edge 0, world 0 edge 1, ...).

    Map gradients of the first world go to `private` if an earlier task of that world belongs to someone else.
    """
    num_edges, num_images, side = len(edges), maps.shape[1], maps.shape[2]
    stride, image_floats = 2 * side, 2 * side * side
    world_floats = num_images * image_floats
    flat_maps, shared_grad, private_grad = maps.reshape(-1), grad_maps.reshape(-1), private.reshape(-1)
    s = np.zeros(ROWS * PITCH, np.float32)
    cells = np.zeros(2 * PITCH, np.int32)
    lanes, sums = np.empty(WIDTH * SUMS, np.float32), np.empty(SUMS, np.float32)
    measure = THREE_HALVES * neutral * w_3d
    for task in range(first, last):
        b, e = task // num_edges, task % num_edges
        shared = owns_first or b > first // num_edges
        target, world_base = (shared_grad, b * world_floats) if shared else (private_grad, 0)
        if task == first or e == 0:
            target[world_base : world_base + world_floats] = ZERO
        i, j = np.int64(edges[e, 0]), np.int64(edges[e, 1])
        size = min(batch, count[e])
        tan_i, tan_j = (tan[b, i, 0], tan[b, i, 1]), (tan[b, j, 0], tan[b, j, 1])
        log_tan_i, log_tan_j = log_tan[b, i, 0] + log_tan[b, i, 1], log_tan[b, j, 0] + log_tan[b, j, 1]
        extent_i, extent_j = (extent[i, 0], extent[i, 1]), (extent[j, 0], extent[j, 1])
        rotation, translation, transposed, inverse = blocks.both_ways(poses, b, e)
        scale = edge_weight[b, e] / f32(max(size, 1))
        base_i, base_j = (b * num_images + i) * image_floats, (b * num_images + j) * image_floats
        to_i, to_j = world_base + i * image_floats, world_base + j * image_floats
        lanes[:] = ZERO
        following = min(e + 1, num_edges - 1)
        next_begin = offset[following] + start[following]
        next_size = min(batch, count[following] - start[following])
        next_map = np.int64(edges[following, 1]) * image_floats
        done = 0
        while done < size:
            begin = (start[e] + done) % count[e]
            n = min(BLOCK, size - done, count[e] - begin)  # a block ends where the window wraps around
            at, part = offset[e] + begin, (done, done + n, size)
            done += n
            for coordinate in (x_i, y_i, x_j, y_j):  # the four pages are looked up at once
                prefetch(coordinate, next_begin + next_size * part[0] // size)
            blocks.mark(s, n)
            blocks.locate(x_i, y_i, at, n, s, RAY_I, cells, CELL_I, extent_i, tan_i, side)
            blocks.locate(x_j, y_j, at, n, s, RAY_J, cells, CELL_J, extent_j, tan_j, side)
            blocks.fetch(x_i, next_begin, next_size, part)
            blocks.gather(s, cells, CELL_I, n, flat_maps, base_i, stride, RAY_I, LOG_DEPTH_I)
            blocks.gather(s, cells, CELL_J, n, flat_maps, base_j, stride, RAY_J, LOG_DEPTH_J)
            blocks.fetch(y_i, next_begin, next_size, part)
            blocks.exponentiate(s, n)
            blocks.transform(s, n, rotation, translation, RAY_I, DEPTH_I, POINT_G, z_min)
            blocks.transform(s, n, transposed, inverse, RAY_J, DEPTH_J, POINT_H, z_min)
            blocks.fetch(x_j, next_begin, next_size, part)
            blocks.reproject(s, n, POINT_G, PRECISION_I, RAY_J, FORCE_G, GRAD_DEPTH_I, z_min)
            blocks.reproject(s, n, POINT_H, PRECISION_J, RAY_I, FORCE_H, GRAD_DEPTH_J, z_min)
            blocks.fetch(y_j, next_begin, next_size, part)
            blocks.overlap(s, n, w_3d, measure)
            blocks.total(s, n, log_tan_i, log_tan_j, w_3d, measure)
            blocks.fetch(flat_maps, b * world_floats + next_map, image_floats, part)
            blocks.judge(s, n, outlier_level[b], lanes)
            blocks.sum_moments(s, n, FORCE_G, DEPTH_I, RAY_I, lanes, SUM_G)
            blocks.sum_moments(s, n, FORCE_H, DEPTH_J, RAY_J, lanes, SUM_H)
            blocks.fetch(target, world_base + next_map, image_floats, part)
            blocks.sum_forces(s, n, FORCE_G, translation, GRAD_DEPTH_I, RAY_J, lanes, SUM_G, SUM_OJ, SUM_FRONT_J)
            blocks.sum_forces(s, n, FORCE_H, inverse, GRAD_DEPTH_J, RAY_I, lanes, SUM_H, SUM_OI, SUM_FRONT_I)
            blocks.scatter(s, cells, CELL_I, n, scale, target, to_i, stride, RAY_I, GRAD_DEPTH_I)
            blocks.scatter(s, cells, CELL_J, n, scale, target, to_j, stride, RAY_J, GRAD_DEPTH_J)
        blocks.collapse(lanes, sums)
        blocks.finish(
            b, e, sums, rotation, translation, max(size, 1), edge_weight[b, e], measure,
            losses, grad_pose, grad_tan,
        )  # fmt: skip


@nb.njit(nogil=True, cache=True)
def _split(count, batch, worlds, chunks):
    """Borders [chunks + 1] of the task list so that every chunk has about the same number of matches."""
    num_edges = len(count)
    total = np.int64(0)
    for e in range(num_edges):
        total += min(batch, count[e]) + EDGE_COST
    borders = np.zeros(chunks + 1, np.int64)
    borders[chunks] = worlds * num_edges
    for c in range(1, chunks):
        wanted = total * worlds * c // chunks
        task, seen = (wanted // total) * num_edges, (wanted // total) * total
        while seen < wanted:
            seen += min(batch, count[task % num_edges]) + EDGE_COST
            task += 1
        borders[c] = task
    return borders


@nb.njit(nogil=True, cache=True)
def collect(edges, grad_tan, grad_log_tan):
    """Sum the edges' log_tan gradients [B, E, 4] into the images' [B, N, 2]."""
    grad_log_tan[:] = 0
    for b in range(len(grad_tan)):
        for e in range(len(edges)):
            for a in range(2):
                grad_log_tan[b, edges[e, 0], a] += grad_tan[b, e, a]
                grad_log_tan[b, edges[e, 1], a] += grad_tan[b, e, 2 + a]


class Workspace:
    """Buffers that a kernel writes its result into, kept between iterations. A new result overwrites the last."""

    def __init__(self) -> None:
        self._buffers: dict[str, tuple[Tensor, np.ndarray]] = {}

    def buffer(self, name: str, *shape: int) -> tuple[Tensor, np.ndarray]:
        """Float32 memory, uninitialised, as tensor and as array: that of the last call with this name and shape."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer[1].shape != shape:
            tensor = torch.empty(shape)
            buffer = self._buffers[name] = (tensor, tensor.numpy())
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

    Runs on as many threads as torch does unless told otherwise. The same input and number of threads give the same
    bits. Log depths beyond +-20 and log variances beyond +-30 count as these bounds.
    """
    options = options or ObjectiveOptions()
    assert options.gaussians == "isotropic", "anisotropic Gaussians exist in the reference objective only"
    worlds, images, side, _, channels = maps.shape
    num_edges = packed.num_edges
    assert channels == 2, f"maps [B, N, L+1, L+1, 2], got {tuple(maps.shape)}"
    assert start.shape == (num_edges,), f"start [E] with E = {num_edges}, got {tuple(start.shape)}"
    space = workspace or Workspace()
    buffers = (
        space.buffer("losses", 3, worlds, num_edges),
        space.buffer("grad_pose", worlds, num_edges, 3, 4),
        space.buffer("grad_tan", worlds, num_edges, 4),
        space.buffer("grad_maps", worlds, images, side, side, 2),
        space.buffer("grad_log_tan", worlds, images, 2),
    )
    results, outputs = [tensor for tensor, _ in buffers], tuple(array for _, array in buffers)
    weight = np.ascontiguousarray(np.broadcast_to(float32_array(edge_weight), (worlds, num_edges)))
    log_tangent, poses = float32_array(log_tan), float32_array(j_from_i)
    inputs = (
        *packed.arrays, start.numpy(), batch, float32_array(maps), log_tangent, np.exp(log_tangent), poses, weight,
        np.minimum(float32_array(outlier_level), f32(1e30)),
        f32(options.w_3d), f32(options.measure == "neutral"), f32(options.z_min),
    )  # fmt: skip
    edges, _, count = packed.arrays[:3]
    threads = threads or torch.get_num_threads()
    _run_chunks(_borders(count, batch, worlds, threads), threads, inputs, outputs[:4], space)
    collect(edges, outputs[2], outputs[4])
    edge_loss, inlier_share, inlier_loss = results[0]  # [B, E] each
    return EdgeEvaluation(
        edge_loss=edge_loss,
        inlier_share=inlier_share,
        inlier_loss=inlier_loss,
        grad_pose=results[1],
        grad_maps=results[3],
        grad_log_tan=results[4],
    )


def _borders(count: np.ndarray, batch: int, worlds: int, threads: int) -> list[int]:
    """Borders of the chunks that threads take in turn: single worlds, then as many equal parts of the rest as threads.

    A thread that the machine disturbs takes fewer worlds. The last parts are equal so that nobody waits on a quiet one.
    """
    single = (worlds - 1) // threads * threads if threads > 1 else 0
    rest = single * len(count) + _split(count, batch, worlds - single, threads)
    return [world * len(count) for world in range(single)] + rest.tolist()


def _run_chunks(
    borders: list[int], threads: int, inputs: tuple, outputs: tuple[np.ndarray, ...], space: Workspace
) -> None:
    """Run the chunks of the task list, then add up the map gradients of worlds that several chunks share."""
    losses, *_, grad_maps = outputs
    num_edges = losses.shape[2]
    if num_edges == 0:
        grad_maps.fill(0)
        return
    jobs, shared = [], []
    for chunk, (first, last) in enumerate(pairwise(borders)):
        if first == last:
            continue
        private, owns_first = grad_maps[0], first % num_edges == 0
        if not owns_first:
            private = space.buffer(f"private {chunk}", *grad_maps.shape[1:])[1]
            shared.append((first // num_edges, private))
        jobs.append((first, last, *inputs, owns_first, *outputs, private))
    queue = iter(jobs)

    def work() -> None:
        for job in queue:  # the next one that no thread has taken
            _run(*job)

    others = [pool().submit(work) for _ in range(min(threads, len(jobs)) - 1)]
    work()
    for other in others:
        other.result()
    for world, private in shared:  # in the order of the chunks, whoever was first: same bits every time
        grad_maps[world] += private


def float32_array(tensor: Tensor) -> np.ndarray:
    """C-contiguous float32 view, or copy where there is no such view."""
    if tensor.dtype == torch.float32 and tensor.is_contiguous() and not tensor.requires_grad:
        return tensor.numpy()
    return tensor.detach().to(torch.float32).contiguous().numpy()
