"""Poses chained along a tree in O(log depth) batched steps, and the gradients back down the tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from proba.geometry import se3


class Tree:
    """A rooted tree over N cameras, with the jump tables of pointer doubling."""

    def __init__(self, parent: Sequence[int] | np.ndarray | Tensor, device: torch.device | str | None = None):
        """`parent` [N] holds the parent of each node; the root's is -1 or itself."""
        table = np.array(parent.cpu() if isinstance(parent, Tensor) else parent, np.int64)  # [N]
        nodes = np.arange(len(table))
        roots = np.flatnonzero((table < 0) | (table == nodes))
        if len(roots) != 1:
            raise ValueError(f"a tree has one root, this parent table has {len(roots)}")
        self.root = int(roots[0])
        self.n_nodes = len(table)
        table[self.root] = self.root
        self.depth = _depths(table, self.root)  # [N] numpy int, edges between a node and the root
        self.parent = torch.as_tensor(table, device=device)  # [N], the root's is itself

        # jumps[s][k] is the ancestor 2^s edges above k, or the root where there is none.
        self._jumps: list[Tensor] = []
        # (nodes with an ancestor 2^s edges above, that ancestor): the root must not take part in sums.
        self._sources_and_targets: list[tuple[Tensor, Tensor]] = []
        stride, jump = 1, table
        while stride <= self.depth.max():
            deep = np.flatnonzero(self.depth >= stride)
            self._jumps.append(torch.as_tensor(jump, device=device))
            pair = (torch.as_tensor(deep, device=device), torch.as_tensor(jump[deep], device=device))
            self._sources_and_targets.append(pair)
            stride, jump = 2 * stride, jump[jump]

    def compose(self, parent_from_child: Tensor) -> Tensor:
        """world_from_cam [..., N, 4, 4] from parent_from_child [..., N, 4, 4] in ceil(log2(depth)) steps.

        T_ri of the paper's kinematic chain. The root is the world: its own entry is taken as the identity.
        """
        is_root = torch.arange(self.n_nodes, device=parent_from_child.device) == self.root  # [N]
        eye = torch.eye(4, dtype=parent_from_child.dtype, device=parent_from_child.device)
        ancestor_from_node = torch.where(is_root[:, None, None], eye, parent_from_child)  # [..., N, 4, 4]
        for jump in self._jumps[: _n_doublings(int(self.depth.max()))]:
            ancestor_from_node = ancestor_from_node.index_select(-3, jump) @ ancestor_from_node
        return ancestor_from_node

    def subtree_sum(self, x: Tensor) -> Tensor:
        """For each node the sum of x [..., N, D] over its subtree, itself included.

        The transpose of the forward recursion. Deterministic on a CPU; on a GPU only under
        `torch.use_deterministic_algorithms(True)`, as index_add is.
        """
        for source, target in self._sources_and_targets:
            x = x.index_add(-2, target, x.index_select(-2, source))
        return x


def node_gradient(tree: Tree, world_from_cam: Tensor, grad: Tensor) -> Tensor:
    """Gradients of the tree's relative poses from those of the absolute poses, [..., N, 6].

    `grad` [..., N, 6] is with respect to world_from_cam[k] exp(e_k), each absolute pose by itself; the result
    is with respect to parent_from_child[k] exp(e_k), which moves the whole subtree of k. Zero for the root.
    """
    at_root = se3.coadjoint(se3.inverse(world_from_cam), grad)  # [..., N, 6], all in the frame of the root
    total = se3.coadjoint(world_from_cam, tree.subtree_sum(at_root))  # [..., N, 6]
    is_root = torch.arange(tree.n_nodes, device=grad.device) == tree.root  # [N]
    return total.masked_fill(is_root[:, None], 0.0)


def _n_doublings(max_depth: int) -> int:
    """ceil(log2(max_depth)) steps reach the root; sums need one more where its own term counts."""
    return int(np.ceil(np.log2(max_depth))) if max_depth > 1 else 0


def _depths(parent: np.ndarray, root: int) -> np.ndarray:
    """Number of edges [N] between each node and the root, which is its own parent."""
    depth = np.where(np.arange(len(parent)) == root, 0, 1)  # [N]
    jump = parent
    for _ in range(max(1, len(parent).bit_length())):
        depth = depth + depth[jump]
        jump = jump[jump]
    if (jump != root).any():
        raise ValueError("this parent table has a cycle")
    return depth
