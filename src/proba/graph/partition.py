"""Overlapping clusters of a view graph: parts that hang together, and share images with their neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.sparse.linalg import eigsh

from proba.errors import InputError

SMALL = 200
"""Graphs of fewer nodes are decomposed as dense matrices, which needs no iterations."""
_SHIFT = -1e-4  # just outside of the spectrum of the Laplacian, so that the system has a solution


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """When and how large sets are divided into clusters, which are solved one by one and joined."""

    count: int | Literal["auto", "off"] = "auto"
    """Clusters that a connected set of photos is divided into; auto: by the number of photos; off: never."""
    divided_from: int = 700
    """auto: sets of fewer photos are solved as a whole. Chosen by size alone; where a cold start of all ends to be
    better was not measured."""
    size: int = 80
    """auto: photos of a cluster on average, without those that it shares."""
    balance: float = 0.3
    """Each side of a cut has at least this share of the images: a cluster of few images is weak."""
    shared: int = 8
    """Images that a cluster lends to each neighbour, those with the most matches across the cut. A similarity of two
    clusters follows from three images; the others tell whether it is right."""
    neighbour: float = 0.1
    """Clusters are neighbours from this share on of the matches that one of them has with its strongest neighbour, and
    images are lent from this share on of the strongest one's; the few false pairs of look-alikes have fewer."""
    rotation_deg: float = 3.0
    """Clusters contradict each other where shared images say otherwise by more: what the adjustment of all still
    mends, and far more than cameras of right clusters err by (0.2 degrees in a synthetic city)."""
    scale: float = 0.15
    """The same for the logarithm of their scales."""
    place: float = 0.25
    """The same for the places of shared cameras, in median depths of the scene."""
    tries: int = 2
    """Times that a cluster is solved which others vote out; then its images are placed one by one."""

    def __post_init__(self) -> None:
        if isinstance(self.count, int) and self.count < 1:
            raise InputError(f"There must be at least 1 cluster, not {self.count}.")
        if self.size < 10 or self.shared < 3:
            raise ValueError("clusters need a size of at least 10 images and at least 3 shared ones")

    def count_for(self, n_images: int) -> int:
        """How many clusters a connected set of images is divided into; 1: it is solved as a whole."""
        if self.count == "off":
            return 1
        if self.count == "auto":
            return math.ceil(n_images / self.size) if n_images >= self.divided_from else 1
        return min(self.count, max(1, n_images // self.shared))


@dataclass(frozen=True, eq=False)
class Partition:
    """Clusters of the nodes of a graph."""

    home: np.ndarray  # [N] int, the cluster that each node belongs to
    members: list[np.ndarray]
    """Nodes of each cluster, ascending: its own and those that neighbours lend to it."""


def make_partition(counts: csr_array, n_clusters: int, options: ClusterOptions) -> Partition:
    """Clusters of a connected graph with symmetric match counts [N, N]."""
    weights = counts.astype(np.float64)
    weights.data = np.sqrt(weights.data)  # a thousand matches do not hold ten times as well as a hundred
    home = np.zeros(counts.shape[0], np.int64)  # [N]
    for cluster in range(1, n_clusters):
        largest = int(np.bincount(home).argmax())
        nodes = np.flatnonzero(home == largest)
        home[nodes[_half(weights[nodes][:, nodes], options.balance)]] = cluster
    members = [set(np.flatnonzero(home == cluster).tolist()) for cluster in range(n_clusters)]
    for one, other in _neighbours(counts, home, n_clusters, options.neighbour):
        for lender, borrower in ((one, other), (other, one)):
            members[borrower].update(_nearest(counts, home, lender, borrower, options))
    return Partition(home, [np.array(sorted(nodes), np.int64) for nodes in members])


def _half(weights: csr_array, balance: float) -> np.ndarray:  # [N] bool
    """One side of a normalised cut (Shi and Malik): where a sweep along the second eigenvector cuts least."""
    n = weights.shape[0]
    degree = np.maximum(weights.sum(axis=1), 1e-12)  # [N]
    order = np.argsort(_second_eigenvector(weights, degree), kind="stable")  # [N]
    place = np.argsort(order)  # [N]
    links = weights.tocoo()
    low, high = place[links.row], place[links.col]  # [L], both directions are there
    forward = low < high
    steps = np.zeros(n + 1)
    np.add.at(steps, low[forward] + 1, links.data[forward])
    np.add.at(steps, high[forward] + 1, -links.data[forward])
    cut = np.cumsum(steps)[: n + 1]  # [N + 1], weight across if the first k are one side
    volume = np.concatenate([[0], np.cumsum(degree[order])])  # [N + 1]
    first = max(1, math.ceil(balance * n))
    sides = np.arange(first, max(first + 1, n - first + 1))
    cost = cut[sides] * (1 / np.maximum(volume[sides], 1e-12) + 1 / np.maximum(volume[-1] - volume[sides], 1e-12))
    return place < sides[cost.argmin()]


def _second_eigenvector(weights: csr_array, degree: np.ndarray) -> np.ndarray:  # [N]
    """Of the generalised problem of the Laplacian; its sign is that of its largest entry."""
    n, root = len(degree), 1 / np.sqrt(degree)
    scaling = diags_array(root)
    laplacian = eye_array(n) - scaling @ weights @ scaling
    if n < SMALL:
        vectors = np.linalg.eigh(laplacian.toarray())[1][:, :2]
    else:
        start = np.random.default_rng(0).normal(size=n)
        values, vectors = eigsh(laplacian.tocsc(), k=2, sigma=_SHIFT, v0=start)
        vectors = vectors[:, np.argsort(values)]
    found = root * vectors[:, 1]
    return found * np.sign(found[np.abs(found).argmax()])


def _neighbours(counts: csr_array, home: np.ndarray, n_clusters: int, share: float) -> list[tuple[int, int]]:
    """Pairs of clusters with many matches across, and those that hold all together."""
    links = counts.tocoo()
    across = csr_array(
        (links.data.astype(np.float64), (home[links.row], home[links.col])), shape=(n_clusters, n_clusters)
    ).toarray()  # [C, C]
    np.fill_diagonal(across, 0)
    strongest = across.max(axis=1)  # [C]
    near = across >= share * np.minimum(strongest[:, None], strongest[None])
    near &= across > 0
    tree = minimum_spanning_tree(csr_array(np.where(across > 0, 1 / np.maximum(across, 1e-12), 0))).tocoo()
    near[tree.row, tree.col] = True
    near |= near.T
    return [(int(a), int(b)) for a, b in np.argwhere(np.triu(near, 1))]


def _nearest(counts: csr_array, home: np.ndarray, lender: int, borrower: int, options: ClusterOptions) -> list[int]:
    """The nodes of one cluster with the most matches with another."""
    mine, theirs = np.flatnonzero(home == lender), np.flatnonzero(home == borrower)
    matches = counts[mine][:, theirs].sum(axis=1)  # [M]
    best = np.argsort(-matches, kind="stable")[: options.shared]
    return mine[best[matches[best] > options.neighbour * matches.max()]].tolist()


def largest_group(linked: np.ndarray, weight: np.ndarray) -> np.ndarray:  # [C] bool
    """The connected group of nodes with the largest weight [C], by symmetric links [C, C] bool."""
    label = connected_components(csr_array(linked), directed=False)[1]
    return label == np.bincount(label, weight).argmax()
