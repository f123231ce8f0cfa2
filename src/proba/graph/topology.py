"""Algorithm 1 of the paper: similarity, spanning tree, neighbours; and the connected components."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

ROWS_AT_A_TIME = 256


def similarity(counts: csr_array) -> csr_array:
    """Match counts [N, N] scaled to [0, 1] (Algorithm 1, lines 3 and 4)."""
    scaled = counts.astype(np.float64)  # [N, N]
    scaled.data /= max(counts.max(), 1)
    return scaled


def spanning_tree(weights: csr_array) -> np.ndarray:
    """Parent of each node, -1 for the root, in the greedy maximum spanning tree of Algorithm 1.

    `weights` [N, N] is the symmetric similarity of one connected component. The root is the most connected
    node; each node remembers its best link into the tree, so the whole takes O(N^2) (Prim).
    """
    n = weights.shape[0]
    blocks = (weights[first : first + ROWS_AT_A_TIME].toarray() for first in range(0, n, ROWS_AT_A_TIME))
    root = int(np.concatenate([rows.sum(axis=1) for rows in blocks]).argmax())
    parent = np.full(n, -1, np.int64)  # [N]
    best_parent = np.full(n, root)  # [N], most similar node of the tree so far
    best = weights[[root]].toarray()[0].astype(np.float64)  # [N], the similarity to it
    outside = np.ones(n, bool)  # [N]
    outside[root] = False
    for _ in range(n - 1):
        node = int(np.where(outside, best, -np.inf).argmax())
        if best[node] <= 0:
            raise ValueError("spanning_tree needs a connected graph; split it with `components` first")
        parent[node], outside[node] = best_parent[node], False
        row = slice(weights.indptr[node], weights.indptr[node + 1])
        closer = weights.data[row] > best[weights.indices[row]]  # [K], of those that it is linked to
        near = weights.indices[row][closer]
        best_parent[near], best[near] = node, weights.data[row][closer]
    return parent


def augment(weights: csr_array, n_neig: int) -> np.ndarray:
    """Pairs [E, 2] (i < j, sorted) of each node and its n_neig - 1 most similar ones; zero is no link."""
    links = weights.tocoo()
    chosen = strongest_of_rows(links.row, links.col, links.data, n_neig - 1)  # [L]
    chosen = chosen[links.data[chosen] > 0]
    return unique_pairs(np.stack([links.row[chosen], links.col[chosen]], axis=1).astype(np.int64))


def strongest_of_rows(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Which entries [L] of a sparse matrix, given by three arrays [K], are among the `count` largest of their row; of
    equal ones those further left."""
    order = np.lexsort((columns, -values, rows))  # [K]
    row = rows[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)  # [K], within its row
    return order[rank < count]


def unique_pairs(pairs: np.ndarray) -> np.ndarray:
    """The same pairs [E, 2] once each, with i < j, sorted."""
    return np.unique(np.sort(pairs.reshape(-1, 2), axis=1), axis=0)


def components(counts: csr_array) -> list[np.ndarray]:
    """Connected components, singletons too: node indices ascending; most nodes first, then most matches."""
    n_components, label = connected_components(counts > 0, directed=False)
    degree = counts.sum(axis=1)  # [N]
    groups = [np.flatnonzero(label == k) for k in range(n_components)]
    return sorted(groups, key=lambda nodes: (-len(nodes), -int(degree[nodes].sum()), int(nodes[0])))
