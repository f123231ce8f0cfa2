"""Closed-form pose gradients against autograd through the tree."""

import pytest
import torch

from proba.geometry import Tree, se3
from proba.kernels.poses import PoseTree, move
from proba.solver.poses import pivot_gradient, pivot_twist

PARENT = [-1, 0, 0, 1, 3, 3]
EDGES = torch.tensor([[0, 1], [0, 2], [1, 3], [3, 4], [2, 5], [4, 5]])


def random_poses(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return se3.exp(0.6 * torch.randn(2, len(PARENT), 6, generator=generator, dtype=torch.float64))


def loss_of(parent_from_child: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    world = Tree(PARENT).compose(parent_from_child)
    poses = se3.inverse(world[:, EDGES[:, 1]]) @ world[:, EDGES[:, 0]]
    return ((poses - target)[..., :3, :] ** 2).sum()


def test_edge_gradient_reaches_every_relative_pose_as_autograd_says():
    tree, relative = PoseTree(Tree(PARENT), EDGES), random_poses(0)
    target = torch.randn(2, len(EDGES), 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    nudge = torch.zeros(2, len(PARENT), 6, dtype=torch.float64, requires_grad=True)
    loss_of(relative @ se3.exp(nudge), target).backward()

    poses = tree.edge_poses(relative)
    world = Tree(PARENT).compose(relative)
    torch.testing.assert_close(poses, se3.inverse(world[:, EDGES[:, 1]]) @ world[:, EDGES[:, 0]])
    grad = tree.gradient(2 * (poses - target)[..., :3, :], poses, relative)
    expected = nudge.grad.clone()
    expected[:, 0] = 0  # the root
    torch.testing.assert_close(grad, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1e-5, 1e-3, 0.5, 3.0])
def test_move_is_the_exponential_map(scale):
    poses = random_poses(4)
    twist = scale * torch.randn(2, len(PARENT), 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    expected = poses @ se3.exp(twist)
    move(poses, twist)
    torch.testing.assert_close(poses, expected, rtol=1e-12, atol=1e-12)


def test_pivot_gradient_is_the_derivative_along_pivot_rotations():
    relative, depth = random_poses(2), torch.rand(2, len(PARENT), dtype=torch.float64) + 0.5
    tan = torch.full((2, len(PARENT)), 0.5, dtype=torch.float64)
    target = torch.randn(2, len(EDGES), 4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    about = torch.zeros(2, len(PARENT), 3, dtype=torch.float64, requires_grad=True)
    step = torch.cat([torch.zeros(2, len(PARENT), 6, dtype=torch.float64), about], -1)
    loss_of(relative @ se3.exp(pivot_twist(step, depth, tan)), target).backward()

    nudge = torch.zeros(2, len(PARENT), 6, dtype=torch.float64, requires_grad=True)
    loss_of(relative @ se3.exp(nudge), target).backward()
    torch.testing.assert_close(pivot_gradient(nudge.grad, depth)[..., 6:], about.grad, rtol=1e-9, atol=1e-9)


def test_a_pivot_rotation_leaves_the_scene_point_where_it_is():
    depth = torch.tensor([[2.0]], dtype=torch.float64)
    step = torch.tensor([[[0, 0, 0, 0, 0, 0, 0.1, -0.2, 0.05]]], dtype=torch.float64)
    moved = se3.exp(pivot_twist(step, depth, torch.ones(1, 1, dtype=torch.float64)))
    point = torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(se3.transform(moved, point[None])[0, 0, 0], point, rtol=0, atol=1e-2)
