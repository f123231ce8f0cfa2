"""The fused kernel: loss and all gradients of every edge in one pass over the matches.

A window of matches is walked in blocks: 1. find the map cells, 2. gather the four cells around each point, 3. loss and
gradients of each match, 4. sums over the block, 5. scatter the map gradients. Every step does a vector at once.
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
from proba.kernels.math import ONE, THREE_HALVES, ZERO, f32
from proba.kernels.simd import WIDTH

EDGE_COST = 16
"""What an edge costs beside its matches, in matches."""
part = nb.njit(fastmath=True, forceinline=True, nogil=True, error_model="numpy")


@part
def _tangents(tan, b, n):
    return tan[b, n, 0], tan[b, n, 1]


@part
def _block(
    s, n, b, e, i, j, log_tan, tan, poses, outlier_level, w_3d, measure, z_min, to
):  # fmt: skip
    """Loss, gradients and sums of a block's n matches in world b."""
    tan_i, tan_j = _tangents(tan, b, i), _tangents(tan, b, j)
    log_tan_i, log_tan_j = log_tan[b, i, 0] + log_tan[b, i, 1], log_tan[b, j, 0] + log_tan[b, j, 1]
    rotation, translation, transposed, inverse = blocks.both_ways(poses, b, e)
    blocks.exponentiate(s, n)
    blocks.transform(s, n, rotation, tan_i, translation, PLACE_I, DEPTH_I, POINT_G, z_min)
    blocks.reproject(s, n, POINT_G, PRECISION_I, PLACE_J, tan_j, FORCE_G, GRAD_DEPTH_I, z_min)
    blocks.transform(s, n, transposed, tan_j, inverse, PLACE_J, DEPTH_J, POINT_H, z_min)
    blocks.reproject(s, n, POINT_H, PRECISION_J, PLACE_I, tan_i, FORCE_H, GRAD_DEPTH_J, z_min)
    blocks.overlap(s, n, tan_j, w_3d, measure)
    blocks.total(s, n, log_tan_i, log_tan_j, w_3d, measure)
    blocks.judge(s, n, outlier_level[b], to)
    blocks.sum_moments(s, n, FORCE_G, DEPTH_I, PLACE_I, to, SUM_G)
    blocks.sum_moments(s, n, FORCE_H, DEPTH_J, PLACE_J, to, SUM_H)
    blocks.sum_forces(s, n, FORCE_G, translation, GRAD_DEPTH_I, PLACE_J, to, SUM_G, SUM_OJ, SUM_FRONT_J)
    blocks.sum_forces(s, n, FORCE_H, inverse, GRAD_DEPTH_J, PLACE_I, to, SUM_H, SUM_OI, SUM_FRONT_I)


@part
def _walk(
    b, e, edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch, side,
    log_tan, tan, poses, outlier_level, w_3d, measure, z_min, scale,
    source, source_base, target, target_base, s, cells, lanes,
):  # fmt: skip
    """Blocks of the window of edge e in world b; their sums are added to `lanes`."""
    i, j, size = np.int64(edges[e, 0]), np.int64(edges[e, 1]), min(batch, count[e])
    extent_i, extent_j = (extent[i, 0], extent[i, 1]), (extent[j, 0], extent[j, 1])
    stride, image_floats = 2 * side, 2 * side * side
    from_i, from_j = source_base + i * image_floats, source_base + j * image_floats
    to_i, to_j = target_base + i * image_floats, target_base + j * image_floats
    done = 0
    while done < size:
        begin = (start[e] + done) % count[e]
        n = min(BLOCK, size - done, count[e] - begin)  # a block ends where the window wraps around
        at = offset[e] + begin
        done += n
        blocks.locate(x_i, y_i, at, n, s, PLACE_I, cells, CELL_I, extent_i, side)
        blocks.locate(x_j, y_j, at, n, s, PLACE_J, cells, CELL_J, extent_j, side)
        blocks.gather(s, cells, CELL_I, n, source, from_i, stride, PLACE_I, LOG_DEPTH_I)
        blocks.gather(s, cells, CELL_J, n, source, from_j, stride, PLACE_J, LOG_DEPTH_J)
        _block(s, n, b, e, i, j, log_tan, tan, poses, outlier_level, w_3d, measure, z_min, lanes)
        blocks.scatter(s, cells, CELL_I, n, scale, target, to_i, stride, PLACE_I, GRAD_DEPTH_I)
        blocks.scatter(s, cells, CELL_J, n, scale, target, to_j, stride, PLACE_J, GRAD_DEPTH_J)


@cached_njit(fastmath=True, nogil=True, error_model="numpy")
def run(
    first, last, edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch,
    maps, log_tan, tan, poses, edge_weight, outlier_level, w_3d, neutral, z_min, owns_first,
    losses, grad_pose, grad_tan, grad_maps, private, s, lanes,
):  # fmt: skip
    """Evaluate the tasks first..last of the list (world 0 edge 0, world 0 edge 1, ...).

    Map gradients of the first world go to `private` if an earlier task of that world belongs to someone else.
    """
    num_edges, num_images, side = len(edges), maps.shape[1], maps.shape[2]
    world_floats = 2 * num_images * side * side
    flat_maps, flat_grad, flat_private = maps.reshape(-1), grad_maps.reshape(-1), private.reshape(-1)
    target, target_base = flat_grad, 0
    cells, sums = np.zeros(2 * PITCH, np.int32), np.empty(SUM_ROWS, np.float32)
    measure = THREE_HALVES * neutral * w_3d
    s[ONES : ONES + WIDTH] = ONE
    for task in range(first, last):
        b, e = task // num_edges, task % num_edges
        if task == first or e == 0:
            shared = owns_first or b > first // num_edges
            target, target_base = (flat_grad, b * world_floats) if shared else (flat_private, 0)
            target[target_base : target_base + world_floats] = ZERO
        size, weight = max(min(batch, count[e]), 1), edge_weight[b, e]
        lanes[:] = ZERO
        _walk(
            b, e, edges, offset, count, x_i, y_i, x_j, y_j, extent, start, batch, side,
            log_tan, tan, poses, outlier_level, w_3d, measure, z_min, weight / f32(size),
            flat_maps, b * world_floats, target, target_base, s, cells, lanes,
        )  # fmt: skip
        i, j = np.int64(edges[e, 0]), np.int64(edges[e, 1])
        rotation, translation, _, _ = blocks.both_ways(poses, b, e)
        blocks.collapse(lanes, sums, _tangents(tan, b, i), _tangents(tan, b, j))
        blocks.finish(b, e, sums, rotation, translation, size, weight, measure, losses, grad_pose, grad_tan)


@cached_njit(nogil=True)
def split(count, batch, worlds, first_world, chunks):
    """Borders [chunks + 1] of the tasks from a world on so that every chunk has about the same work."""
    num_edges, of_world = len(count), np.int64(0)
    for e in range(num_edges):
        of_world += min(batch, count[e]) + EDGE_COST
    total = of_world * (worlds - first_world)
    borders = np.full(chunks + 1, worlds * num_edges)
    task, seen = first_world * num_edges, 0
    for c in range(chunks):
        while seen < total * c // chunks:
            seen += min(batch, count[task % num_edges]) + EDGE_COST
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
