"""Algorithm 1 of the paper: similarity, spanning tree, neighbours; and the connected components."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components


def similarity(counts: np.ndarray) -> np.ndarray:
    """Match counts [N, N] scaled to [0, 1] (Algorithm 1, lines 3 and 4)."""
    top = counts.max(initial=0)
    return counts / top if top > 0 else np.zeros(counts.shape)  # [N, N]


def spanning_tree(weights: np.ndarray) -> np.ndarray:
    """Parent of each node, -1 for the root, in the greedy maximum spanning tree of Algorithm 1.

    `weights` [N, N] is the symmetric similarity of one connected component. The root is the most connected
    node; each node remembers its best link into the tree, so the whole takes O(N^2) (Prim).
    """
    n = len(weights)
    root = int(weights.sum(axis=1).argmax())
    parent = np.full(n, -1, np.int64)  # [N]
    best_parent = np.full(n, root)  # [N], most similar node of the tree so far
    best = weights[root].astype(np.float64)  # [N], the similarity to it
    outside = np.ones(n, bool)  # [N]
    outside[root] = False
    for _ in range(n - 1):
        node = int(np.where(outside, best, -np.inf).argmax())
        if best[node] <= 0:
            raise ValueError("spanning_tree needs a connected graph; split it with `components` first")
        parent[node], outside[node] = best_parent[node], False
        closer = weights[node] > best  # [N]
        best_parent[closer], best[closer] = node, weights[node][closer]
    return parent


def augment(weights: np.ndarray, n_neig: int) -> np.ndarray:
    """Pairs [E, 2] (i < j, sorted) of each node and its n_neig - 1 most similar ones; zero is no link."""
    n = len(weights)
    keep = min(n_neig - 1, n - 1)
    off_diagonal = np.where(np.eye(n, dtype=bool), -np.inf, weights)  # [N, N]
    order = np.argsort(-off_diagonal, axis=1, kind="stable")[:, :keep]  # [N, K]
    source = np.repeat(np.arange(n), keep)  # [N * K]
    target = order.reshape(-1)  # [N * K]
    linked = weights[source, target] > 0
    return unique_pairs(np.stack([source[linked], target[linked]], axis=1))


def unique_pairs(pairs: np.ndarray) -> np.ndarray:
    """The same pairs [E, 2] once each, with i < j, sorted."""
    return np.unique(np.sort(pairs.reshape(-1, 2), axis=1), axis=0)


def components(counts: np.ndarray) -> list[np.ndarray]:
    """Connected components, singletons too: node indices ascending; most nodes first, then most matches."""
    n_components, label = connected_components(csr_matrix(counts > 0), directed=False)
    degree = counts.sum(axis=1)  # [N]
    groups = [np.flatnonzero(label == k) for k in range(n_components)]
    return sorted(groups, key=lambda nodes: (-len(nodes), -int(degree[nodes].sum()), int(nodes[0])))
