"""The view graph: which images are compared, and the tree that carries their poses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from proba.graph.options import GraphOptions
from proba.graph.topology import augment, components, similarity, spanning_tree, unique_pairs
from proba.matches import Matches


@dataclass(frozen=True, eq=False)
class ViewGraph:
    """One connected piece of an image set. All indices but `images` are local, 0..N-1."""

    images: np.ndarray  # [N] int, index into Matches.images, ascending
    root: int  # the camera that is the world
    parent: np.ndarray  # [N] int, -1 for the root
    edges: np.ndarray  # [E, 2] int, i < j, sorted
    is_tree: np.ndarray  # [E] bool
    similarity: np.ndarray  # [E] float32, in (0, 1]
    initial_weight: np.ndarray  # [E] float32, W^(0)

    @property
    def n_images(self) -> int:
        return len(self.images)

    @property
    def n_edges(self) -> int:
        return len(self.edges)


def build_view_graphs(matches: Matches, options: GraphOptions | None = None) -> tuple[list[ViewGraph], list[int]]:
    """One view graph for each connected piece, largest first, and the images that match no other image."""
    counts = matches.similarity_counts()  # [N, N]
    groups = components(counts)
    graphs = [
        _build_component(nodes, counts[nodes][:, nodes], options or GraphOptions())
        for nodes in groups
        if len(nodes) > 1
    ]
    return graphs, sorted(int(nodes[0]) for nodes in groups if len(nodes) == 1)


def _build_component(nodes: np.ndarray, counts: csr_array, options: GraphOptions) -> ViewGraph:
    """The view graph of one connected component with match counts [N, N]."""
    weights = similarity(counts)  # [N, N]
    # The tree sees every pair, however weak, so that min_matches can never split a component.
    parent = spanning_tree(weights)  # [N]
    root = int(np.flatnonzero(parent < 0)[0])
    children = np.flatnonzero(parent >= 0)
    tree_edges = unique_pairs(np.stack([children, parent[children]], axis=1))  # [N - 1, 2]
    strong = weights.multiply(counts >= options.min_matches).tocsr()  # [N, N]
    edges = unique_pairs(np.concatenate([tree_edges, augment(strong, options.n_neig)]))  # [E, 2]

    i, j = edges.T
    is_tree = (parent[i] == j) | (parent[j] == i)  # [E]
    aux_factor = 1 / options.n_neig if options.aux_factor is None else options.aux_factor
    alike = np.asarray(weights[i, j]).reshape(-1)  # [E]
    initial_weight = alike**options.weight_power * np.where(is_tree, 1.0, aux_factor)  # [E]
    return ViewGraph(
        images=nodes,
        root=root,
        parent=parent,
        edges=edges,
        is_tree=is_tree,
        similarity=alike.astype(np.float32),
        initial_weight=initial_weight.astype(np.float32),
    )
