"""Pose chains along a tree: composition, subtree sums, and the gradient of the relative poses."""

import math

import numpy as np
import pytest
import torch

from proba.geometry import Tree, se3
from proba.geometry.tree import node_gradient


def random_parents(n: int, seed: int, reach: int = 4) -> np.ndarray:
    """A random tree whose node labels do not follow the order of the tree; small `reach` makes it deep."""
    rng = np.random.default_rng(seed)
    label = rng.permutation(n)
    parent = np.full(n, -1)
    for k in range(1, n):
        parent[label[k]] = label[rng.integers(max(0, k - reach), k)]
    return parent


def random_poses(*shape: int, seed: int, size: float = 0.5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return se3.exp(size * torch.randn(*shape, 6, dtype=torch.float64, generator=generator))


def compose_one_by_one(parent: np.ndarray, parent_from_child: torch.Tensor) -> torch.Tensor:
    def pose(k: int) -> torch.Tensor:
        if parent[k] < 0:
            return torch.eye(4, dtype=parent_from_child.dtype).expand(parent_from_child.shape[0], 4, 4)
        return pose(parent[k]) @ parent_from_child[:, k]

    return torch.stack([pose(k) for k in range(len(parent))], dim=1)


@pytest.mark.parametrize(("n", "seed"), [(1, 0), (2, 0), (3, 1), (4, 2), (9, 3), (40, 4)])
def test_compose_is_the_product_along_the_path(n, seed):
    parent = random_parents(n, seed)
    poses = random_poses(2, n, seed=seed)
    torch.testing.assert_close(Tree(parent).compose(poses), compose_one_by_one(parent, poses))


def test_the_root_is_the_world_whatever_its_own_entry():
    parent = random_parents(7, 0)
    tree = Tree(parent)
    world_from_cam = tree.compose(random_poses(1, 7, seed=1))
    torch.testing.assert_close(world_from_cam[0, tree.root], torch.eye(4, dtype=torch.float64))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 33])
def test_subtree_sum_adds_every_descendant_once(n):
    parent = random_parents(n, seed=n)
    x = torch.randn(2, n, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    expected = torch.zeros_like(x)
    for k in range(n):
        ancestor = k
        while ancestor >= 0:
            expected[:, ancestor] += x[:, k]
            ancestor = parent[ancestor]
    torch.testing.assert_close(Tree(parent).subtree_sum(x), expected)


def test_subtree_sum_is_deterministic():
    tree, x = Tree(random_parents(200, 5)), torch.randn(3, 200, 6)
    assert all(torch.equal(tree.subtree_sum(x), tree.subtree_sum(x)) for _ in range(5))


@pytest.mark.parametrize(("n", "seed"), [(2, 0), (5, 1), (30, 2)])
def test_node_gradient_agrees_with_autograd_through_compose(n, seed):
    parent = random_parents(n, seed)
    tree = Tree(parent)
    parent_from_child = random_poses(2, n, seed=seed)
    target = torch.randn(2, n, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    # A nonlinear function of all absolute poses.
    loss = lambda world_from_cam: (world_from_cam * target).sum(dim=(-1, -2)).sin().sum()

    relative_step = torch.zeros(2, n, 6, dtype=torch.float64, requires_grad=True)
    loss(tree.compose(parent_from_child @ se3.exp(relative_step))).backward()
    absolute_step = torch.zeros(2, n, 6, dtype=torch.float64, requires_grad=True)
    world_from_cam = tree.compose(parent_from_child)
    loss(world_from_cam @ se3.exp(absolute_step)).backward()

    gradient = node_gradient(tree, world_from_cam, absolute_step.grad)
    assert not gradient[:, tree.root].any()
    torch.testing.assert_close(gradient, relative_step.grad)


def test_a_chain_a_thousand_deep():
    n = 1001
    tree = Tree(np.arange(n) - 1)
    assert tree.depth.max() == n - 1
    step = torch.tensor([0.0, 0.0, 0.01, 0.0, 2 * math.pi / 1000, 0.0], dtype=torch.float64)
    world_from_cam = tree.compose(se3.exp(step).expand(1, n, 4, 4))
    # A thousand equal steps of a thousandth of a turn close the circle.
    torch.testing.assert_close(world_from_cam[0, -1], torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-10)
    torch.testing.assert_close(world_from_cam[0, 250], se3.exp(250 * step), rtol=0, atol=1e-10)

    grad = torch.randn(1, n, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected, carried = torch.zeros_like(grad), torch.zeros(6, dtype=torch.float64)
    for k in range(n - 1, 0, -1):  # leaf to root: what acts on k acts on its parent through one adjoint
        carried = carried + grad[0, k]
        expected[0, k] = carried
        carried = se3.coadjoint(se3.exp(-step), carried)
    torch.testing.assert_close(node_gradient(tree, world_from_cam, grad), expected, rtol=0, atol=1e-9)


def test_number_of_steps_grows_with_the_logarithm_of_the_depth():
    assert len(Tree(np.arange(1025) - 1)._jumps) == 11
    assert len(Tree(np.minimum(np.arange(1025) - 1, 0))._jumps) == 1


@pytest.mark.parametrize("root_entry", [-1, 2])
def test_the_root_may_be_its_own_parent(root_entry):
    tree = Tree([2, 0, root_entry])
    assert tree.root == 2
    assert tree.depth.tolist() == [1, 2, 0]


@pytest.mark.parametrize(("parent", "message"), [([-1, -1], "one root"), ([-1, 2, 1], "cycle"), ([1, 0], "one root")])
def test_what_is_no_tree_is_refused(parent, message):
    with pytest.raises(ValueError, match=message):
        Tree(parent)
