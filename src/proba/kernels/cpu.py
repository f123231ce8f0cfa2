"""The fused kernel on CPU threads: who evaluates which edges in which worlds, and where the results go."""

from __future__ import annotations

import math
from itertools import pairwise

import numba as nb
import numpy as np
import torch
from torch import Tensor

from proba.kernels.blocks import PITCH, ROWS, SUM_ROWS
from proba.kernels.edges import EDGE_COST, collect, run, split
from proba.kernels.math import f32
from proba.kernels.simd import WIDTH
from proba.objective.evaluation import EdgeEvaluation, Minibatch
from proba.objective.options import ObjectiveOptions
from proba.threads import pool

WORTH_A_THREAD = 32_768
"""Matches, counted once for each world, below which a thread costs more than it brings (about 0.1 ms to wake it)."""
MARGIN = 4096
"""Unused numbers around every buffer: a processor reads ahead of a loop, beyond its end, and so takes cache lines from
the thread that writes there (a second thread whose scratch memory followed that of the first was 12 % slower)."""


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
    at: Minibatch,
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
    worlds, images, side, _, channels = at.maps.shape
    num_edges = at.packed.num_edges
    assert channels == 2, f"maps [B, N, L+1, L+1, 2], got {tuple(at.maps.shape)}"
    assert at.start.shape == (num_edges,), f"start [E] with E = {num_edges}, got {tuple(at.start.shape)}"
    space = workspace or Workspace()
    buffers = (
        space.buffer("losses", 3, worlds, num_edges),
        space.buffer("grad_pose", worlds, num_edges, 3, 4),
        space.buffer("grad_tan", worlds, num_edges, 4),
        space.buffer("grad_maps", worlds, images, side, side, 2),
        space.buffer("grad_log_tan", worlds, images, 2),
    )
    results, outputs = [tensor for tensor, _ in buffers], tuple(array for _, array in buffers)
    maps, log_tan, poses, weight, level = float32_arrays(at)
    inputs = (
        *at.packed.arrays, at.start.numpy(), at.batch, maps, log_tan, np.exp(log_tan), poses, weight, level,
        f32(options.w_3d), f32(options.measure == "neutral"), f32(options.z_min),
    )  # fmt: skip
    edges, _, count = at.packed.arrays[:3]
    threads = threads or _worthwhile_threads(count, at.batch, worlds)
    _run_chunks(_borders(count, at.batch, worlds, threads), threads, inputs, outputs[:4], space)
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


def _borders(count: np.ndarray, batch: int, worlds: int, threads: int) -> list[int]:
    """Borders of the chunks that threads take in turn: single worlds, then as many equal parts of the rest as threads.

    A thread that the machine disturbs takes fewer worlds. The last parts are equal so that nobody waits on a quiet one.
    """
    single = (worlds - 1) // threads * threads if threads > 1 else 0
    return [world * len(count) for world in range(single)] + split(count, batch, worlds, single, threads).tolist()


def _run_chunks(
    borders: list[int],
    threads: int,
    inputs: tuple,
    outputs: tuple[np.ndarray, ...],
    space: Workspace,
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

    def work(own: tuple[np.ndarray, ...]) -> None:
        for job in queue:  # the next one that no thread has taken
            run(*job, *own)

    mine, *theirs = [
        (space.buffer(f"scratch {thread}", ROWS * PITCH)[1], space.buffer(f"lanes {thread}", WIDTH * SUM_ROWS)[1])
        for thread in range(min(threads, len(jobs)))
    ]
    others = [pool().submit(work, own) for own in theirs]
    work(mine)
    for other in others:
        other.result()
    for world, private in shared:  # in the order of the chunks, whoever was first: same bits every time
        grad_maps[world] += private


def float32_arrays(at: Minibatch) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Maps, log tangents, poses, edge weights [B, E] and outlier levels, finite, for a compiled function."""
    weight = np.broadcast_to(_float32_array(at.edge_weight), (len(at.maps), at.packed.num_edges))
    level = np.minimum(_float32_array(at.outlier_level), f32(1e30))
    maps, log_tan, poses = (_float32_array(tensor) for tensor in (at.maps, at.log_tan, at.j_from_i))
    return maps, log_tan, poses, np.ascontiguousarray(weight), level


def _float32_array(tensor: Tensor) -> np.ndarray:
    """C-contiguous float32 view, or copy where there is no such view."""
    if tensor.dtype == torch.float32 and tensor.is_contiguous() and not tensor.requires_grad:
        return tensor.numpy()
    return tensor.detach().to(torch.float32).contiguous().numpy()
