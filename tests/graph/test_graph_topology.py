"""Algorithm 1 of the paper on small graphs, against its literal form and scipy."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree

from proba.graph import augment, components, similarity, spanning_tree


def random_counts(n: int, seed: int, density: float = 1.0) -> np.ndarray:
    """Symmetric match counts [N, N]; a path through all nodes keeps them connected."""
    rng = np.random.default_rng(seed)
    counts = np.triu(rng.permutation(n * n).reshape(n, n) + 1, 1) * (rng.random((n, n)) < density)
    path = rng.permutation(n)
    for a, b in pairwise(path):
        counts[min(a, b), max(a, b)] = max(counts[min(a, b), max(a, b)], 1)
    return counts + counts.T


def literal_algorithm_1(S: np.ndarray) -> np.ndarray:
    """Lines 5 to 12 as printed, O(N^3)."""
    n = len(S)
    root = int(S.sum(axis=1).argmax())
    parent, processed = np.full(n, -1), [root]
    while len(processed) < n:
        rest = [i for i in range(n) if i not in processed]
        u, v = max(((i, j) for i in rest for j in processed), key=lambda pair: S[pair])
        parent[u] = v
        processed.append(u)
    return parent


def test_similarity_is_scaled_to_one():
    S = similarity(csr_array(random_counts(5, 0))).toarray()
    assert S.max() == 1 and S.min() == 0
    np.testing.assert_array_equal(S, S.T)
    assert similarity(csr_array((3, 3), dtype=int)).nnz == 0


@given(n=st.integers(2, 12), seed=st.integers(0, 1000))
def test_spanning_tree_is_the_one_of_algorithm_1(n, seed):
    S = similarity(csr_array(random_counts(n, seed)))
    np.testing.assert_array_equal(spanning_tree(S), literal_algorithm_1(S.toarray()))


@given(n=st.integers(2, 30), seed=st.integers(0, 1000), density=st.floats(0.1, 1))
def test_spanning_tree_has_the_largest_total_similarity(n, seed, density):
    counts = random_counts(n, seed, density)
    parent = spanning_tree(csr_array(counts))
    children = np.flatnonzero(parent >= 0)
    assert len(children) == n - 1
    largest = -minimum_spanning_tree(-counts.astype(float)).sum()
    assert counts[children, parent[children]].sum() == largest


def test_the_root_is_the_most_connected_node():
    counts = np.zeros((4, 4), int)
    for leaf in (0, 1, 3):
        counts[leaf, 2] = counts[2, leaf] = 10
    np.testing.assert_array_equal(spanning_tree(csr_array(counts)), [2, 2, -1, 2])


def test_a_graph_in_pieces_has_no_spanning_tree():
    counts = np.zeros((4, 4), int)
    counts[0, 1] = counts[1, 0] = counts[2, 3] = counts[3, 2] = 5
    with pytest.raises(ValueError, match="connected"):
        spanning_tree(csr_array(counts))


@given(n=st.integers(2, 15), seed=st.integers(0, 1000), n_neig=st.integers(2, 20))
def test_augment_joins_each_node_to_its_most_similar_ones(n, seed, n_neig):
    counts = random_counts(n, seed, density=0.7)
    expected = set()
    for i in range(n):
        for j in np.argsort(-counts[i], kind="stable")[: n_neig - 1]:
            if counts[i, j] > 0:
                expected.add((min(i, j), max(i, j)))
    assert augment(csr_array(counts), n_neig).tolist() == sorted(map(list, expected))


def test_components_come_largest_first_then_by_matches():
    counts = np.zeros((8, 8), int)
    for i, j, count in [(0, 1, 10), (2, 3, 99), (4, 6, 1), (6, 7, 1)]:
        counts[i, j] = counts[j, i] = count
    assert [nodes.tolist() for nodes in components(csr_array(counts))] == [[4, 6, 7], [2, 3], [0, 1], [5]]
