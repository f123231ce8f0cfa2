"""The fused kernel: loss and all gradients of every edge in one pass over the matches, on CPU threads.

A window of matches is walked in blocks: 1. find the map cells, 2. gather the four cells around each point, 3. loss and
gradients of each match, 4. sums over the block, 5. scatter the map gradients. Every step does a vector at once.
Steps 1, 2 and 5 serve a group of four worlds together, whose maps are interleaved for that. Between the steps and
within their loops, what the next edge will need is fetched into the second-level cache, little by little: a processor
keeps few requests to memory open at a time, and a burst of them holds up the loads of the steps.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numba as nb
import numpy as np
import torch
from torch import Tensor

from proba.jit import cached_njit
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
    NEXT_WORLD,
    ONES,
    PITCH,
    PLACE_I,
    PLACE_J,
    POINT_G,
    POINT_H,
    PRECISION_I,
    PRECISION_J,
    ROWS,
    SUM_FRONT_I,
    SUM_FRONT_J,
    SUM_G,
    SUM_H,
    SUM_OI,
    SUM_OJ,
    SUM_ROWS,
)
from proba.kernels.group import GROUP
from proba.kernels.math import ONE, THREE_HALVES, ZERO, f32
from proba.kernels.patch import prefetch
from proba.kernels.simd import WIDTH
from proba.objective.evaluation import EdgeEvaluation
from proba.objective.options import ObjectiveOptions
from proba.objective.packed import PackedMatches
from proba.threads import pool

EDGE_COST = 16
"""What an edge costs beside its matches, in matches."""
WORTH_A_THREAD = 32_768
"""Matches, counted once for each world, below which a thread costs more than it brings (about 0.1 ms to wake it)."""
MARGIN = 4096
"""Unused numbers around every buffer: a processor reads ahead of a loop, beyond its end, and so takes cache lines from
the thread that writes there (a second thread whose scratch memory followed that of the first was 12 % slower)."""
WORK_IN_GROUP, WORK_ALONE = 5, 8
"""What a match costs in a world of a group and in a single world, relative to each other."""


@nb.njit(nogil=True, error_model="numpy")
def _interleave(maps, first, out):
    """out [cells * GROUP], cell by cell, from maps [B, cells] of the worlds first, first + 1, ..."""
    for cell in range(maps.shape[1]):
        for w in range(GROUP):
            out[GROUP * cell + w] = maps[first + w, cell]


@nb.njit(nogil=True, error_model="numpy")
def _separate(grouped, out, first):
    """The inverse of `_interleave`."""
    for cell in range(out.shape[1]):
        for w in range(GROUP):
            out[first + w, cell] = grouped[GROUP * cell + w]


@nb.njit(nogil=True, error_model="numpy")
def _pairs(maps):
    """maps [B, ...] as [B, cells]: the two numbers of a cell are moved as one."""
    return maps.reshape(len(maps), maps.size // len(maps)).view(np.float64)


@cached_njit(fastmath=True, nogil=True, error_model="numpy")
def _run(
    first, last, groups, edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch,
    maps, log_tan, tan, poses, edge_weight, outlier_level, w_3d, neutral, z_min, owns_first,
    losses, grad_pose, grad_tan, grad_maps, private, group_maps, group_grad, s, lanes,
):  # fmt: skip
    """Evaluate the tasks first..last of the list (group 0 edge 0, group 0 edge 1, ...).

    Group g has the worlds groups[g]..groups[g + 1], GROUP of them or one. Map gradients of the first group go to
    `private` if an earlier task of that group belongs to someone else.
    """
    num_edges, num_images, side = len(edges), maps.shape[1], maps.shape[2]
    world_floats = 2 * num_images * side * side
    flat_maps, flat_grad, flat_private = maps.reshape(-1), grad_maps.reshape(-1), private.reshape(-1)
    source, source_base, target, target_base = flat_maps, 0, flat_grad, 0
    cells = np.zeros(2 * PITCH, np.int32)
    sums, scale = np.empty(SUM_ROWS, np.float32), np.zeros(GROUP, np.float32)
    measure = THREE_HALVES * neutral * w_3d
    s[ONES : ONES + WIDTH] = ONE
    for task in range(first, last):
        group, e = task // num_edges, task % num_edges
        first_world, together = groups[group], groups[group + 1] - groups[group]
        shared = owns_first or group > first // num_edges
        if task == first or e == 0:
            if together == GROUP:
                _interleave(_pairs(maps), first_world, group_maps.view(np.float64))
                source, source_base, target, target_base = group_maps, 0, group_grad, 0
            else:
                source, source_base = flat_maps, first_world * world_floats
                target, target_base = (flat_grad, source_base) if shared else (flat_private, 0)
            target[target_base : target_base + together * world_floats] = ZERO
        i, j = np.int64(edges[e, 0]), np.int64(edges[e, 1])
        size = min(batch, count[e])
        extent_i, extent_j = (extent[i, 0], extent[i, 1]), (extent[j, 0], extent[j, 1])
        for w in range(together):
            scale[w] = edge_weight[first_world + w, e] / f32(max(size, 1))
        cell, stride, image_floats = 2 * together, 2 * together * side, 2 * together * side * side
        from_i, from_j = source_base + i * image_floats, source_base + j * image_floats
        to_i, to_j = target_base + i * image_floats, target_base + j * image_floats
        lanes[:together] = ZERO
        following = min(e + 1, num_edges - 1)
        next_begin = offset[following] + start[following]
        next_size = min(batch, count[following] - start[following])
        next_map = np.int64(edges[following, 1]) * image_floats
        done = 0
        while done < size:
            begin = (start[e] + done) % count[e]
            n = min(BLOCK, size - done, count[e] - begin)  # a block ends where the window wraps around
            at, next_share = offset[e] + begin, (next_size * done // size, next_size * (done + n) // size)
            done += n
            for coordinate in (x_i, y_i, x_j, y_j):  # the four pages are looked up at once
                prefetch(coordinate, next_begin + next_share[0])
            blocks.locate(x_i, y_i, at, n, s, PLACE_I, cells, CELL_I, extent_i, side, cell)
            blocks.locate(x_j, y_j, at, n, s, PLACE_J, cells, CELL_J, extent_j, side, cell)
            if together == GROUP:
                blocks.gather_group(s, cells, CELL_I, n, source, from_i, stride, PLACE_I, LOG_DEPTH_I)
                blocks.gather_group(s, cells, CELL_J, n, source, from_j, stride, PLACE_J, LOG_DEPTH_J)
            else:
                blocks.gather(s, cells, CELL_I, n, source, from_i, stride, PLACE_I, LOG_DEPTH_I)
                blocks.gather(s, cells, CELL_J, n, source, from_j, stride, PLACE_J, LOG_DEPTH_J)
            for coordinate in (x_i, y_i, x_j, y_j):
                blocks.fetch(coordinate, next_begin + next_share[0], next_share[1] - next_share[0])
            for w in range(together):
                b, own, to = first_world + w, w * NEXT_WORLD, lanes[w]
                tan_i, tan_j = (tan[b, i, 0], tan[b, i, 1]), (tan[b, j, 0], tan[b, j, 1])
                log_tan_i, log_tan_j = log_tan[b, i, 0] + log_tan[b, i, 1], log_tan[b, j, 0] + log_tan[b, j, 1]
                rotation, translation, transposed, inverse = blocks.both_ways(poses, b, e)
                grad_i, grad_j = own + GRAD_DEPTH_I, own + GRAD_DEPTH_J
                first_part, last_part = (done - n) * together + n * w, (done - n) * together + n * (w + 1)
                begin_ahead = next_map + image_floats * first_part // (size * together)
                rest = next_map + image_floats * last_part // (size * together) - begin_ahead - 4 * n
                map_ahead, grad_ahead = source_base + begin_ahead, target_base + begin_ahead
                blocks.exponentiate(s, own, n)
                blocks.transform(
                    s, n, rotation, tan_i, translation, PLACE_I, DEPTH_I, POINT_G, z_min, source, map_ahead
                )
                blocks.reproject(
                    s, n, POINT_G, PRECISION_I, PLACE_J, tan_j, FORCE_G, grad_i, z_min, source, map_ahead + n
                )
                blocks.transform(
                    s, n, transposed, tan_j, inverse, PLACE_J, DEPTH_J, POINT_H, z_min, source, map_ahead + 2 * n
                )
                blocks.reproject(
                    s, n, POINT_H, PRECISION_J, PLACE_I, tan_i, FORCE_H, grad_j, z_min, source, map_ahead + 3 * n
                )
                blocks.fetch(source, map_ahead + 4 * n, rest)
                blocks.overlap(s, own, n, tan_j, w_3d, measure)
                blocks.total(s, own, n, log_tan_i, log_tan_j, w_3d, measure)
                blocks.judge(s, own, n, outlier_level[b], to)
                blocks.sum_moments(s, own, n, FORCE_G, DEPTH_I, PLACE_I, to, SUM_G, target, grad_ahead)
                blocks.sum_moments(s, own, n, FORCE_H, DEPTH_J, PLACE_J, to, SUM_H, target, grad_ahead + n)
                blocks.sum_forces(
                    s, own, n, FORCE_G, translation, grad_i, PLACE_J, to,
                    SUM_G, SUM_OJ, SUM_FRONT_J, target, grad_ahead + 2 * n,
                )  # fmt: skip
                blocks.sum_forces(
                    s, own, n, FORCE_H, inverse, grad_j, PLACE_I, to,
                    SUM_H, SUM_OI, SUM_FRONT_I, target, grad_ahead + 3 * n,
                )  # fmt: skip
                blocks.fetch(target, grad_ahead + 4 * n, rest)
            if together == GROUP:
                blocks.scatter_group(s, cells, CELL_I, n, scale, target, to_i, stride, PLACE_I, GRAD_DEPTH_I)
                blocks.scatter_group(s, cells, CELL_J, n, scale, target, to_j, stride, PLACE_J, GRAD_DEPTH_J)
            else:
                blocks.scatter(s, cells, CELL_I, n, scale, target, to_i, stride, PLACE_I, GRAD_DEPTH_I)
                blocks.scatter(s, cells, CELL_J, n, scale, target, to_j, stride, PLACE_J, GRAD_DEPTH_J)
        for w in range(together):
            b = first_world + w
            tan_i, tan_j = (tan[b, i, 0], tan[b, i, 1]), (tan[b, j, 0], tan[b, j, 1])
            rotation, translation, _, _ = blocks.both_ways(poses, b, e)
            blocks.collapse(lanes[w], sums, tan_i, tan_j)
            blocks.finish(
                b, e, sums, rotation, translation, max(size, 1), edge_weight[b, e], measure,
                losses, grad_pose, grad_tan,
            )  # fmt: skip
        if together == GROUP and (task == last - 1 or e == num_edges - 1):
            if shared:
                _separate(group_grad.view(np.float64), _pairs(grad_maps), first_world)
            else:
                _separate(group_grad.view(np.float64), _pairs(private), 0)


@cached_njit(nogil=True)
def _split(count, batch, groups, first_group, chunks):
    """Borders [chunks + 1] of the tasks from a group on so that every chunk has about the same work."""
    num_edges, num_groups = len(count), len(groups) - 1
    of_group = np.diff(groups)
    of_group = np.where(of_group == GROUP, WORK_IN_GROUP * of_group, WORK_ALONE * of_group)
    of_world = np.int64(0)
    for e in range(num_edges):
        of_world += min(batch, count[e]) + EDGE_COST
    total = of_world * of_group[first_group:].sum()
    borders = np.full(chunks + 1, num_groups * num_edges)
    task, seen = first_group * num_edges, 0
    for c in range(chunks):
        while seen < total * c // chunks:
            seen += (min(batch, count[task % num_edges]) + EDGE_COST) * of_group[task // num_edges]
            task += 1
        borders[c] = task
    return borders


@cached_njit(nogil=True)
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
            size = math.prod(shape)
            tensor = torch.empty(size + 2 * MARGIN)[MARGIN : MARGIN + size].view(shape)
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

    Unless told how many, it runs on as many of numba's threads as have enough to do. The same input and number of
    threads give the same bits. Log depths beyond +-20 and log variances beyond +-30 count as these bounds.
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
    threads = threads or _worthwhile_threads(count, batch, worlds)
    groups = _groups(worlds, threads)
    _run_chunks(_borders(count, batch, groups, threads), groups, threads, inputs, outputs[:4], space)
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


def _worthwhile_threads(count: np.ndarray, batch: int, worlds: int) -> int:
    """As many as get `WORTH_A_THREAD` matches each, up to numba's number."""
    work = worlds * int((np.minimum(count, batch) + EDGE_COST).sum())
    return min(nb.get_num_threads(), max(1, work // WORTH_A_THREAD))


def _groups(worlds: int, threads: int) -> np.ndarray:
    """Borders of the groups of worlds: as many whole ones as there are, if every thread gets one, then single worlds.

    To share a group, threads would have to rearrange its maps twice and add up its gradients: single worlds cost less.
    """
    whole = worlds // GROUP * GROUP if worlds >= threads * GROUP else 0
    return np.append(np.arange(0, whole, GROUP), np.arange(whole, worlds + 1))


def _borders(count: np.ndarray, batch: int, groups: np.ndarray, threads: int) -> list[int]:
    """Borders of the chunks that threads take in turn: single groups, then as many equal parts of the rest as threads.

    A thread that the machine disturbs takes fewer groups. The last parts are equal so that nobody waits on a quiet one.
    """
    single = (len(groups) - 2) // threads * threads if threads > 1 else 0
    return [group * len(count) for group in range(single)] + _split(count, batch, groups, single, threads).tolist()


def _run_chunks(
    borders: list[int],
    groups: np.ndarray,
    threads: int,
    inputs: tuple,
    outputs: tuple[np.ndarray, ...],
    space: Workspace,
) -> None:
    """Run the chunks of the task list, then add up the map gradients of groups that several chunks share."""
    losses, *_, grad_maps = outputs
    num_edges = losses.shape[2]
    if num_edges == 0:
        grad_maps.fill(0)
        return
    jobs, shared = [], []
    for chunk, (first, last) in enumerate(pairwise(borders)):
        if first == last:
            continue
        private, owns_first = grad_maps, first % num_edges == 0
        if not owns_first:
            worlds = slice(*groups[first // num_edges :][:2])
            private = space.buffer(f"private {chunk}", *grad_maps[worlds].shape)[1]
            shared.append((worlds, private))
        jobs.append((first, last, groups, *inputs, owns_first, *outputs, private))
    queue = iter(jobs)

    def work(own: tuple[np.ndarray, ...]) -> None:
        for job in queue:  # the next one that no thread has taken
            _run(*job, *own)

    floats = GROUP * grad_maps[0].size
    mine, *theirs = [
        (
            space.buffer(f"group maps {thread}", floats)[1],
            space.buffer(f"group gradients {thread}", floats)[1],
            space.buffer(f"scratch {thread}", ROWS * PITCH)[1],
            space.buffer(f"lanes {thread}", GROUP, WIDTH * SUM_ROWS)[1],
        )
        for thread in range(min(threads, len(jobs)))
    ]
    others = [pool().submit(work, own) for own in theirs]
    work(mine)
    for other in others:
        other.result()
    for worlds, private in shared:  # in the order of the chunks, whoever was first: same bits every time
        grad_maps[worlds] += private


def float32_array(tensor: Tensor) -> np.ndarray:
    """C-contiguous float32 view, or copy where there is no such view."""
    if tensor.dtype == torch.float32 and tensor.is_contiguous() and not tensor.requires_grad:
        return tensor.numpy()
    return tensor.detach().to(torch.float32).contiguous().numpy()
