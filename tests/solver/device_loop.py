"""The loop on a pretended device, run by test_solver_device.py in a process of its own.

Torch's fake tensors know where they are, but hold no numbers: an operation that mixes devices, or a number that the
host asks for, is an error.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from proba import kernels
from proba.graph import GraphOptions, build_view_graphs
from proba.objective import EdgeEvaluation
from proba.solver import Solver, SolverOptions, make_problem
from proba.synthetic import make_scene, scene_matches

_setup_privateuseone_for_python_backend("pretended")
GPU = torch.device("pretended", 0)
VARIANTS: tuple[dict[str, Any], ...] = ({}, {"pose_steps": "twist"}, {"mirror": "off", "square_pixels": False})


class Pretended:
    """A machine whose results have the right shape, kind and place, and no content."""

    home, ahead = GPU, 5

    def evaluate(self, at, options=None):
        worlds, edges = at.edge_weight.shape
        assert {t.device for t in (at.start, at.maps, at.log_tan, at.j_from_i, at.packed.x_i)} == {GPU}
        loss = torch.empty(3, worlds, edges, device=GPU)
        return EdgeEvaluation(
            edge_loss=loss[0],
            inlier_share=loss[1],
            inlier_loss=loss[2],
            grad_pose=torch.empty(worlds, edges, 3, 4, device=GPU),
            grad_maps=torch.empty_like(at.maps),
            grad_log_tan=torch.empty_like(at.log_tan),
        )

    def direction(self, grad, first, second, **settings):
        assert grad.device == first.device == second.device == GPU

    def move_maps(self, cells, direction, **settings):
        assert cells.device == direction.device == GPU
        return torch.empty(len(cells), dtype=torch.float64, device=GPU)

    def pose_tree(self, tree, edges):
        self.edges = len(edges)
        return self

    def edge_poses(self, parent_from_child):
        return parent_from_child.new_empty(len(parent_from_child), self.edges, 4, 4)

    def gradient(self, grad_pose, j_from_i, parent_from_child):
        assert grad_pose.device == j_from_i.device == GPU
        return parent_from_child.new_empty(*parent_from_child.shape[:2], 6)

    def move(self, parent_from_child, twist):
        assert parent_from_child.device == twist.device == GPU

    def twist_gradient(self, twist, grad):
        return torch.empty_like(grad)

    def adder(self, index, count):
        return lambda rows: rows.new_empty(len(rows), count, *rows.shape[2:])


@contextmanager
def pretending() -> Iterator[list[torch.device]]:
    """Counts the calls of `Tensor.to` that change the place; what has numbers becomes a fake on the way."""
    moves, to = [], torch.Tensor.to

    def counted(tensor, *arguments, **keywords):
        if arguments and isinstance(arguments[0], torch.device) and arguments[0] != tensor.device:
            moves.append(arguments[0])
            if not isinstance(tensor, FakeTensor):
                tensor = mode.from_tensor(tensor)
            tensor.constant = None  # fakes made of numbers keep them, and would move them too
        return to(tensor, *arguments, **keywords)

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        torch.Tensor.to = counted
        try:
            yield moves
        finally:
            torch.Tensor.to = to


def transfers_of_ten_iterations(change: dict[str, Any]) -> int:
    scene = make_scene("object", n_images=4, seed=0, fov_deg=55.0)
    matches = scene_matches(scene, grid=8, min_matches=4)
    graph = build_view_graphs(matches, GraphOptions(min_matches=4))[0][0]
    options = replace(SolverOptions(iterations=30, two_view_world=False, weights_from=0.0), **change)
    problem = make_problem(matches, graph, options)
    assert len(problem.matches.arrays)  # while numpy can still have them
    with pretending() as moves:
        solver = Solver(problem, options)
        solver.step()
        moves.clear()
        for _ in range(10):
            solver.step()
    assert solver.matches.x_i.device == GPU
    assert {tensor.device for name, tensor in solver.worlds.arrays().items() if tensor.ndim} == {GPU}
    return len(moves)


def main() -> None:
    kernels.machine = lambda device: Pretended()
    for change in VARIANTS:
        print(change, "transfers:", transfers_of_ten_iterations(change))


if __name__ == "__main__":
    sys.exit(main())
