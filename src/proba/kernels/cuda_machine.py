"""The solver's iteration on an NVIDIA GPU: state, optimiser and poses stay there. Imported on demand.

The kernels are the formulas of `adamw`, `maps` and `poses`, compiled once more, with a thread a number, edge, or node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proba.geometry import Tree
from proba.kernels import adamw, cuda_launch, maps, poses
from proba.kernels.cuda import Evaluator
from proba.kernels.cuda_launch import HOME, Adder, cuda, launch, spread
from proba.kernels.math import f32

ITERATIONS_AHEAD = 50
"""Iterations whose minibatches are drawn and brought to the GPU at once: otherwise it would wait in each for a few
kilobytes."""

_chain, _edge_pose, _pull_on_i, _pull_on_j, _pass_up, _push, _covector = (
    cuda.jit(device=True)(formula.py_func)
    for formula in (
        poses.chain,
        poses.edge_pose,
        poses.pull_on_i,
        poses.pull_on_j,
        poses.pass_up,
        poses.push,
        poses.covector,
    )
)


def _direction(grad, first, second, beta1, beta2, correct1, correct2, eps, one):
    for k in range(cuda.grid(1), len(grad), cuda.gridsize(1)):
        first[k], second[k], grad[k] = adamw.step(
            grad[k], first[k], second[k], beta1, beta2, correct1, correct2, eps, one
        )


def _step_maps(cells, direction, depth_rate, variance_rate, decay, is_depth):
    """[B, N, L+1, (L+1) C] both, is_depth [L C]: the padding is left alone."""
    images, rows, numbers = cells.shape[1], cells.shape[2] - 1, len(is_depth)
    for task in range(cuda.grid(1), cells.shape[0] * images * rows * numbers, cuda.gridsize(1)):
        b, n, y, k = _place(task, images, rows, numbers)
        rate = depth_rate if is_depth[k] > 0 else variance_rate
        cells[b, n, y, k] = maps.stepped(cells[b, n, y, k], rate, direction[b, n, y, k], decay)


def _gauge_maps(cells, off, scale_power, low, high):
    """[B, N, L+1, (L+1) C], and off [B]: the mean log-depth of each world."""
    images, rows, numbers = cells.shape[1], cells.shape[2] - 1, len(low)
    for task in range(cuda.grid(1), cells.shape[0] * images * rows * numbers, cuda.gridsize(1)):
        b, n, y, k = _place(task, images, rows, numbers)
        cells[b, n, y, k] = maps.gauged(cells[b, n, y, k], scale_power[k], off[b], low[k], high[k])


@cuda.jit(device=True)
def _place(task, images, rows, numbers):
    above, k = task // numbers, task % numbers
    return above // (rows * images), (above // rows) % images, above % rows, k


def _compose(parent_from_child, order, parent, level, world_from_cam):
    """Block b: [B, N, 4, 4] of world b. Nodes of `order` [N] from level[d] to level[d + 1] are d below the root."""
    b, thread = cuda.blockIdx.x, cuda.threadIdx.x
    if thread < 16:
        row, column = thread // 4, thread % 4
        world_from_cam[b, order[0], row, column] = 1.0 if row == column else 0.0
    cuda.syncthreads()
    for depth in range(1, len(level) - 1):
        for at in range(level[depth] + thread, level[depth + 1], cuda.blockDim.x):
            k = order[at]
            _chain(world_from_cam[b, parent[k]], parent_from_child[b, k], world_from_cam[b, k])
        cuda.syncthreads()


def _edge_poses(world_from_cam, edges, out):
    """A thread an edge and world, to out [B, E, 4, 4]."""
    count = len(edges)
    for task in range(cuda.grid(1), len(out) * count, cuda.gridsize(1)):
        b, e = task // count, task % count
        _edge_pose(world_from_cam[b, edges[e, 0]], world_from_cam[b, edges[e, 1]], out[b, e])


def _camera_gradient(grad_pose, j_from_i, ends, start, out):
    """A thread a node and world, to out [B, N, 6]: its edges' ends are ends[start[n]:start[n + 1]], 2 e or 2 e + 1."""
    images = out.shape[1]
    for task in range(cuda.grid(1), len(out) * images, cuda.gridsize(1)):
        b, n = task // images, task % images
        for k in range(6):
            out[b, n, k] = 0
        for at in range(start[n], start[n + 1]):
            e, is_j = ends[at] // 2, ends[at] % 2
            if is_j:
                _pull_on_j(j_from_i[b, e], grad_pose[b, e], out[b, n])
            else:
                _pull_on_i(j_from_i[b, e], grad_pose[b, e], out[b, n])


def _sum_to_root(parent_from_child, order, level, child, first_child, grad):
    """Block b: gradients [B, N, 6] of world b, the deepest first; each node takes those of its children."""
    b, thread = cuda.blockIdx.x, cuda.threadIdx.x
    for back in range(2, len(level)):
        depth = len(level) - 1 - back
        for at in range(level[depth] + thread, level[depth + 1], cuda.blockDim.x):
            k = order[at]
            for c in range(first_child[k], first_child[k + 1]):
                _pass_up(parent_from_child[b, child[c]], grad[b, child[c]], grad[b, k])
        cuda.syncthreads()
    if thread < 6:
        grad[b, order[0], thread] = 0


def _move(pose, twist):
    for n in range(cuda.grid(1), len(pose), cuda.gridsize(1)):
        _push(pose[n], twist[n])


def _twist_gradient(twist, grad, out):
    for n in range(cuda.grid(1), len(twist), cuda.gridsize(1)):
        _covector(twist[n], grad[n], out[n])


KERNELS: tuple[Callable[..., None], ...] = (
    _direction,
    _step_maps,
    _gauge_maps,
    _compose,
    _edge_poses,
    _camera_gradient,
    _sum_to_root,
    _move,
    _twist_gradient,
)


class Gpu:
    """`proba.kernels.Machine` with numba-cuda, on the memory of torch's tensors."""

    home = HOME
    ahead = ITERATIONS_AHEAD

    def __init__(self) -> None:
        self.evaluate = Evaluator()
        self._kernels = {f.__name__: cuda.jit(f) for f in KERNELS}
        self._of_row: dict[tuple[int, int], tuple[Tensor, ...]] = {}

    def direction(self, grad: Tensor, first: Tensor, second: Tensor, *, beta1: float, beta2: float, count: int) -> None:
        kind = np.float32 if grad.dtype == torch.float32 else np.float64
        flat = (grad.view(-1), first.view(-1), second.view(-1))
        spread(self._kernels["_direction"], grad.numel(), *flat, *adamw.constants(kind, beta1, beta2, count))

    def move_maps(
        self,
        cells: Tensor,
        direction: Tensor,
        *,
        depth_rate: float,
        variance_rate: float,
        decay: float,
        gauge: bool = True,
    ) -> Tensor:
        worlds, images, side, _, channels = cells.shape
        is_depth, scale_power, low, high = self._rows(side - 1, channels)
        flat = cells.view(worlds, images, side, side * channels)
        rates = (f32(depth_rate), f32(variance_rate), f32(decay))
        step = direction.contiguous().view(flat.shape)
        size = worlds * images * (side - 1) * len(is_depth)
        spread(self._kernels["_step_maps"], size, flat, step, *rates, is_depth)
        mean = cells[:, :, :-1, :-1, 0].double().mean((1, 2, 3))  # [B]
        shift = mean if gauge else torch.zeros_like(mean)
        spread(self._kernels["_gauge_maps"], size, flat, shift.float(), scale_power, low, high)
        return shift

    def _rows(self, cells: int, channels: int) -> tuple[Tensor, ...]:
        if (cells, channels) not in self._of_row:
            self._of_row[cells, channels] = tuple(torch.tensor(row).to(HOME) for row in maps.of_row(cells, channels))
        return self._of_row[cells, channels]

    def pose_tree(self, tree: Tree, edges: Tensor) -> GpuPoseTree:
        return GpuPoseTree(tree, edges, self._kernels)

    def move(self, parent_from_child: Tensor, twist: Tensor) -> None:
        flat = parent_from_child.view(-1, 4, 4)
        spread(self._kernels["_move"], len(flat), flat, twist.contiguous().view(-1, 6))

    def twist_gradient(self, twist: Tensor, grad: Tensor) -> Tensor:
        out = torch.empty_like(grad)
        flat = (twist.contiguous().view(-1, 6), grad.contiguous().view(-1, 6), out.view(-1, 6))
        spread(self._kernels["_twist_gradient"], len(flat[0]), *flat)
        return out

    def adder(self, index: Tensor, count: int) -> Callable[[Tensor], Tensor]:
        return Adder(index, count)


class GpuPoseTree:
    """As `poses.PoseTree`; a block of threads walks the tree of a world, level by level."""

    def __init__(self, tree: Tree, edges: Tensor, kernels: dict[str, Any]) -> None:
        order = np.argsort(tree.depth, kind="stable")  # [N], the root first
        parent = tree.parent.cpu().numpy()  # [N]
        level = np.searchsorted(tree.depth[order], np.arange(int(tree.depth.max()) + 2))
        below = order[:0:-1]  # all but the root, in the order in which a processor adds them up
        of_parent = np.argsort(parent[below], kind="stable")
        ends = np.argsort(edges.cpu().numpy().reshape(-1), kind="stable")  # [2 E], by node, then by edge
        nodes = np.arange(len(order) + 1)
        self.order, self.parent, self.level = _to_home(order, parent, level)
        self.child, self.first_child = _to_home(below[of_parent], np.searchsorted(parent[below][of_parent], nodes))
        self.ends, self.start = _to_home(ends, np.searchsorted(np.sort(edges.cpu().numpy().reshape(-1)), nodes))
        self.edges = edges.long().contiguous().to(HOME)
        self._kernels = kernels

    def edge_poses(self, parent_from_child: Tensor) -> Tensor:
        parent_from_child = parent_from_child.contiguous()
        worlds = len(parent_from_child)
        out = parent_from_child.new_empty(worlds, len(self.edges), 4, 4)
        world_from_cam = torch.empty_like(parent_from_child)
        walk = (parent_from_child, self.order, self.parent, self.level, world_from_cam)
        launch(self._kernels["_compose"], worlds, cuda_launch.THREADS, *walk)
        spread(self._kernels["_edge_poses"], worlds * len(self.edges), world_from_cam, self.edges, out)
        return out

    def gradient(self, grad_pose: Tensor, j_from_i: Tensor, parent_from_child: Tensor) -> Tensor:
        parent_from_child = parent_from_child.contiguous()
        worlds, images = parent_from_child.shape[:2]
        out = parent_from_child.new_empty(worlds, images, 6)
        of_edges = (grad_pose.contiguous(), j_from_i.contiguous(), self.ends, self.start)
        spread(self._kernels["_camera_gradient"], worlds * images, *of_edges, out)
        walk = (parent_from_child, self.order, self.level, self.child, self.first_child, out)
        launch(self._kernels["_sum_to_root"], worlds, cuda_launch.THREADS, *walk)
        return out


def _to_home(*tables: np.ndarray) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(np.ascontiguousarray(table, np.int64)).to(HOME) for table in tables)
