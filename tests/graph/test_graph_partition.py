"""Clusters of a view graph: all images once at home, neighbours share images, false pairs share none."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from proba.errors import InputError
from proba.graph import ClusterOptions, make_partition


def ring_counts(n: int, reach: int = 3, false_pair: tuple[int, int] | None = None) -> csr_array:
    """Match counts of images along a ring, each with its neighbours."""
    counts = np.zeros((n, n), np.int64)
    for k in range(n):
        for step in range(1, reach + 1):
            other = (k + step) % n
            counts[k, other] = counts[other, k] = 400 // step
    if false_pair is not None:
        counts[false_pair] = counts[false_pair[::-1]] = 60
    return csr_array(counts)


@pytest.mark.parametrize(("n", "clusters"), [(60, 2), (120, 4), (400, 5)])
def test_every_image_has_a_home_and_clusters_hang_together(n, clusters):
    counts = ring_counts(n)
    partition = make_partition(counts, clusters, ClusterOptions())
    sizes = np.bincount(partition.home)
    assert len(sizes) == clusters and sizes.min() > 0.4 * n / clusters
    for cluster, nodes in enumerate(partition.members):
        assert set(np.flatnonzero(partition.home == cluster)) <= set(nodes)
        assert connected_components(counts[nodes][:, nodes])[0] == 1


def test_neighbours_share_images_and_the_clusters_form_the_ring():
    partition = make_partition(ring_counts(240), 4, ClusterOptions())
    shared = [[len(np.intersect1d(a, b)) for b in partition.members] for a in partition.members]
    counts = np.sort((np.array(shared) >= 6).sum(axis=1) - 1)
    assert counts.tolist() == [2, 2, 2, 2]


def test_a_single_false_pair_makes_no_neighbours():
    partition = make_partition(ring_counts(240, false_pair=(0, 120)), 4, ClusterOptions())
    assert not any({0, 120} <= set(nodes.tolist()) for nodes in partition.members)


def test_the_same_clusters_every_time():
    one, other = (make_partition(ring_counts(300), 4, ClusterOptions()) for _ in range(2))
    assert np.array_equal(one.home, other.home)


@pytest.mark.parametrize(
    ("count", "images", "expected"),
    [("auto", 100, 1), ("off", 10_000, 1), (3, 100, 3), ("auto", 10_000, 125), (9, 20, 2)],
)
def test_how_many(count, images, expected):
    assert ClusterOptions(count=count).count_for(images) == expected


def test_no_clusters_are_refused():
    with pytest.raises(InputError, match="at least 1 cluster"):
        ClusterOptions(count=0)
