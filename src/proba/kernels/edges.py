"""The fused kernel: loss and all gradients of every edge in one pass over the matches.

A window of matches is walked in blocks: 1. find the map cells, 2. gather the four cells around each point, 3. loss and
gradients of each match, 4. sums over the block, 5. scatter the map gradients. Every step does a vector at once.
Steps 1, 2 and 5 serve a group of four worlds together, whose maps are interleaved for that. Between the steps and
within their loops, what the next edge will need is fetched into the second-level cache, little by little: a processor
keeps few requests to memory open at a time, and a burst of them holds up the loads of the steps.
"""

from __future__ import annotations

import numba as nb
import numpy as np

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

EDGE_COST = 16
"""What an edge costs beside its matches, in matches."""
WORK_IN_GROUP, WORK_ALONE = 5, 8
"""What a match costs in a world of a group and in a single world, relative to each other."""

part = nb.njit(fastmath=True, forceinline=True, nogil=True, error_model="numpy")


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


@part
def _sample(s, cells, n, source, from_i, from_j, stride, together):
    """Log depth and log variance of the points of a block, in all worlds of the group."""
    if together == GROUP:
        blocks.gather_group(s, cells, CELL_I, n, source, from_i, stride, PLACE_I, LOG_DEPTH_I)
        blocks.gather_group(s, cells, CELL_J, n, source, from_j, stride, PLACE_J, LOG_DEPTH_J)
    else:
        blocks.gather(s, cells, CELL_I, n, source, from_i, stride, PLACE_I, LOG_DEPTH_I)
        blocks.gather(s, cells, CELL_J, n, source, from_j, stride, PLACE_J, LOG_DEPTH_J)


@part
def _scatter(s, cells, n, scale, target, to_i, to_j, stride, together):
    """The adjoint of `_sample`, with the edge's weight in each world."""
    if together == GROUP:
        blocks.scatter_group(s, cells, CELL_I, n, scale, target, to_i, stride, PLACE_I, GRAD_DEPTH_I)
        blocks.scatter_group(s, cells, CELL_J, n, scale, target, to_j, stride, PLACE_J, GRAD_DEPTH_J)
    else:
        blocks.scatter(s, cells, CELL_I, n, scale, target, to_i, stride, PLACE_I, GRAD_DEPTH_I)
        blocks.scatter(s, cells, CELL_J, n, scale, target, to_j, stride, PLACE_J, GRAD_DEPTH_J)


@part
def _tangents(tan, b, n):
    return tan[b, n, 0], tan[b, n, 1]


@part
def _block_in_world(
    s, n, b, w, e, i, j, log_tan, tan, poses, outlier_level, w_3d, measure, z_min, to,
    source, map_ahead, target, grad_ahead, rest,
):  # fmt: skip
    """Loss, gradients and sums of a block's n matches in world b, the group's w-th.

    In passing, the maps (`source`) and map gradients (`target`) of the next edge are fetched: 4 n numbers of each, one
    cache line an iteration, and the `rest` at once.
    """
    own = w * NEXT_WORLD
    grad_i, grad_j = own + GRAD_DEPTH_I, own + GRAD_DEPTH_J
    tan_i, tan_j = _tangents(tan, b, i), _tangents(tan, b, j)
    log_tan_i, log_tan_j = log_tan[b, i, 0] + log_tan[b, i, 1], log_tan[b, j, 0] + log_tan[b, j, 1]
    rotation, translation, transposed, inverse = blocks.both_ways(poses, b, e)
    blocks.exponentiate(s, own, n)
    blocks.transform(s, n, rotation, tan_i, translation, PLACE_I, DEPTH_I, POINT_G, z_min, source, map_ahead)
    blocks.reproject(s, n, POINT_G, PRECISION_I, PLACE_J, tan_j, FORCE_G, grad_i, z_min, source, map_ahead + n)
    blocks.transform(s, n, transposed, tan_j, inverse, PLACE_J, DEPTH_J, POINT_H, z_min, source, map_ahead + 2 * n)
    blocks.reproject(s, n, POINT_H, PRECISION_J, PLACE_I, tan_i, FORCE_H, grad_j, z_min, source, map_ahead + 3 * n)
    blocks.fetch(source, map_ahead + 4 * n, rest)
    blocks.overlap(s, own, n, tan_j, w_3d, measure)
    blocks.total(s, own, n, log_tan_i, log_tan_j, w_3d, measure)
    blocks.judge(s, own, n, outlier_level[b], to)
    blocks.sum_moments(s, own, n, FORCE_G, DEPTH_I, PLACE_I, to, SUM_G, target, grad_ahead)
    blocks.sum_moments(s, own, n, FORCE_H, DEPTH_J, PLACE_J, to, SUM_H, target, grad_ahead + n)
    blocks.sum_forces(
        s, own, n, FORCE_G, translation, grad_i, PLACE_J, to, SUM_G, SUM_OJ, SUM_FRONT_J, target, grad_ahead + 2 * n
    )
    blocks.sum_forces(
        s, own, n, FORCE_H, inverse, grad_j, PLACE_I, to, SUM_H, SUM_OI, SUM_FRONT_I, target, grad_ahead + 3 * n
    )
    blocks.fetch(target, grad_ahead + 4 * n, rest)


@part
def _finish(lanes, sums, b, e, i, j, tan, poses, size, weight, measure, losses, grad_pose, grad_tan):
    """Losses and gradients of an edge in world b from the sums of its lanes."""
    rotation, translation, _, _ = blocks.both_ways(poses, b, e)
    blocks.collapse(lanes, sums, _tangents(tan, b, i), _tangents(tan, b, j))
    blocks.finish(b, e, sums, rotation, translation, size, weight, measure, losses, grad_pose, grad_tan)


@part
def _walk(
    e, first_world, together, edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch, side,
    log_tan, tan, poses, outlier_level, w_3d, measure, z_min,
    source, source_base, target, target_base, s, cells, scale, lanes,
):  # fmt: skip
    """Blocks of the window of edge e in a group of worlds; their sums are added to `lanes`."""
    i, j, size = np.int64(edges[e, 0]), np.int64(edges[e, 1]), min(batch, count[e])
    extent_i, extent_j = (extent[i, 0], extent[i, 1]), (extent[j, 0], extent[j, 1])
    cell, stride, image_floats = 2 * together, 2 * together * side, 2 * together * side * side
    from_i, from_j = source_base + i * image_floats, source_base + j * image_floats
    to_i, to_j = target_base + i * image_floats, target_base + j * image_floats
    following = min(e + 1, len(edges) - 1)
    next_begin, next_size = offset[following] + start[following], min(batch, count[following] - start[following])
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
        _sample(s, cells, n, source, from_i, from_j, stride, together)
        for coordinate in (x_i, y_i, x_j, y_j):
            blocks.fetch(coordinate, next_begin + next_share[0], next_share[1] - next_share[0])
        for w in range(together):
            first_part, last_part = (done - n) * together + n * w, (done - n) * together + n * (w + 1)
            ahead = next_map + image_floats * first_part // (size * together)
            rest = next_map + image_floats * last_part // (size * together) - ahead - 4 * n
            _block_in_world(
                s, n, first_world + w, w, e, i, j, log_tan, tan, poses, outlier_level, w_3d, measure, z_min, lanes[w],
                source, source_base + ahead, target, target_base + ahead, rest,
            )  # fmt: skip
        _scatter(s, cells, n, scale, target, to_i, to_j, stride, together)


@cached_njit(fastmath=True, nogil=True, error_model="numpy")
def run(
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
        size = max(min(batch, count[e]), 1)
        for w in range(together):
            scale[w] = edge_weight[first_world + w, e] / f32(size)
        lanes[:together] = ZERO
        _walk(
            e, first_world, together, edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch, side,
            log_tan, tan, poses, outlier_level, w_3d, measure, z_min,
            source, source_base, target, target_base, s, cells, scale, lanes,
        )  # fmt: skip
        i, j = np.int64(edges[e, 0]), np.int64(edges[e, 1])
        for w in range(together):
            b = first_world + w
            _finish(
                lanes[w], sums, b, e, i, j, tan, poses, size, edge_weight[b, e], measure, losses, grad_pose, grad_tan
            )
        if together == GROUP and (task == last - 1 or e == num_edges - 1):
            if shared:
                _separate(group_grad.view(np.float64), _pairs(grad_maps), first_world)
            else:
                _separate(group_grad.view(np.float64), _pairs(private), 0)


@cached_njit(nogil=True)
def split(count, batch, groups, first_group, chunks):
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
