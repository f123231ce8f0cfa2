"""What the solver's loop asks of a device. The loop's state are tensors at the machine's `home`, and stay there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from proba.geometry import Tree
from proba.kernels import adamw, maps, poses
from proba.kernels.cpu import Workspace, evaluate
from proba.objective.evaluation import EdgeEvaluation, Minibatch
from proba.objective.options import ObjectiveOptions


class Machine(Protocol):
    """All heavy work of an iteration, on tensors at `home`. The rest are a few small operations of torch."""

    home: torch.device
    ahead: int
    """Iterations whose minibatches are drawn, and brought to the device, at once."""

    def evaluate(self, at: Minibatch, options: ObjectiveOptions | None = None) -> EdgeEvaluation:
        """As `proba.objective.evaluate`, in float32; a result is valid until the next call."""

    def direction(self, grad: Tensor, first: Tensor, second: Tensor, *, beta1: float, beta2: float, count: int) -> None:
        """As `adamw.direction`."""

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
        """As `maps.move_maps`; returns what was subtracted, [B] float64."""

    def pose_tree(self, tree: Tree, edges: Tensor) -> Any:
        """As `poses.PoseTree`."""

    def move(self, parent_from_child: Tensor, twist: Tensor) -> None:
        """As `poses.move`."""

    def twist_gradient(self, twist: Tensor, grad: Tensor) -> Tensor:
        """As `poses.twist_gradient`."""

    def adder(self, index: Tensor, count: int) -> Callable[[Tensor], Tensor]:
        """A function that adds up the rows of its argument [B, M, ...] to [B, count, ...] by their index [M]."""


class Processor:
    """Compiled loops over numpy views of the tensors: nothing is copied."""

    home = torch.device("cpu")
    ahead = 1

    def __init__(self) -> None:
        self._space = Workspace()

    def evaluate(self, at: Minibatch, options: ObjectiveOptions | None = None) -> EdgeEvaluation:
        return evaluate(at, options, workspace=self._space)

    def direction(self, grad: Tensor, first: Tensor, second: Tensor, *, beta1: float, beta2: float, count: int) -> None:
        adamw.direction(grad.numpy(), first.numpy(), second.numpy(), beta1=beta1, beta2=beta2, count=count)

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
        shift = maps.move_maps(
            cells.numpy(),
            direction.numpy(),
            depth_rate=depth_rate,
            variance_rate=variance_rate,
            decay=decay,
            gauge=gauge,
        )
        return torch.from_numpy(shift)

    def pose_tree(self, tree: Tree, edges: Tensor) -> poses.PoseTree:
        return poses.PoseTree(tree, edges)

    def move(self, parent_from_child: Tensor, twist: Tensor) -> None:
        poses.move(parent_from_child, twist)

    def twist_gradient(self, twist: Tensor, grad: Tensor) -> Tensor:
        return poses.twist_gradient(twist, grad)

    def adder(self, index: Tensor, count: int) -> Callable[[Tensor], Tensor]:
        def add(rows: Tensor) -> Tensor:
            return rows.new_zeros(len(rows), count, *rows.shape[2:]).index_add_(1, index, rows)

        return add
