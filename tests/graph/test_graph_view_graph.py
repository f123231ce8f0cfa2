"""View graphs of whole match sets."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from proba.geometry import Tree
from proba.graph import GraphOptions, ViewGraph, build_view_graphs
from proba.matches import ImageInfo, Matches


def matches_with_counts(n: int, counts: dict[tuple[int, int], int]) -> Matches:
    matches = Matches([ImageInfo(name=f"{k}.jpg", width=640, height=480) for k in range(n)])
    for (i, j), count in counts.items():
        matches.add(i, j, np.zeros((count, 2)), np.zeros((count, 2)))
    return matches


def assert_consistent(graph: ViewGraph) -> None:
    """What every user of a view graph relies on."""
    tree = Tree(graph.parent)  # raises if it is no tree
    assert tree.root == graph.root and graph.parent[graph.root] == -1
    assert (np.diff(graph.images) > 0).all()
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()
    assert graph.edges.tolist() == sorted(graph.edges.tolist())
    assert len({tuple(edge) for edge in graph.edges}) == graph.n_edges
    assert graph.is_tree.sum() == graph.n_images - 1
    for i, j in graph.edges[graph.is_tree]:
        assert graph.parent[i] == j or graph.parent[j] == i
    assert graph.initial_weight.dtype == np.float32
    assert (graph.similarity > 0).all() and graph.similarity.max() == 1


def test_two_components_and_an_isolated_image():
    matches = matches_with_counts(6, {(0, 5): 100, (1, 2): 50, (2, 4): 60, (1, 4): 40, (3, 4): 0})
    graphs, isolated = build_view_graphs(matches, GraphOptions())
    assert [graph.images.tolist() for graph in graphs] == [[1, 2, 4], [0, 5]]
    assert isolated == [3]
    for graph in graphs:
        assert_consistent(graph)
    assert graphs[0].edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert graphs[0].root == 1
    assert graphs[0].is_tree.tolist() == [True, False, True]


def test_initial_weights_follow_the_options():
    matches = matches_with_counts(3, {(0, 1): 100, (1, 2): 64, (0, 2): 36})
    (graph,), _ = build_view_graphs(matches)
    np.testing.assert_allclose(graph.initial_weight, [1.0, 0.3 * 0.6, 0.8], rtol=1e-6)
    paper = GraphOptions(n_neig=20, weight_power=1.0, aux_factor=None)
    (graph,), _ = build_view_graphs(matches, paper)
    np.testing.assert_allclose(graph.initial_weight, [1.0, 0.36 / 20, 0.64], rtol=1e-6)


def test_weak_pairs_are_dropped_unless_the_tree_needs_them():
    matches = matches_with_counts(4, {(0, 1): 100, (1, 2): 100, (0, 2): 29, (2, 3): 5, (1, 3): 4})
    (graph,), isolated = build_view_graphs(matches, GraphOptions(min_matches=30))
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert not isolated


pair_counts = st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda p: p[0] < p[1]), st.integers(0, 60)
)


@given(counts=pair_counts, n_neig=st.integers(2, 12), min_matches=st.integers(1, 70))
def test_no_option_ever_splits_or_loses_images(counts, n_neig, min_matches):
    matches = matches_with_counts(10, counts)
    graphs, isolated = build_view_graphs(matches, GraphOptions(n_neig=n_neig, min_matches=min_matches))
    loose, _ = build_view_graphs(matches, GraphOptions(n_neig=20, min_matches=1))
    assert [g.images.tolist() for g in graphs] == [g.images.tolist() for g in loose]
    assert sorted([*isolated, *(k for g in graphs for k in g.images.tolist())]) == list(range(10))
    for graph in graphs:
        assert_consistent(graph)
        i, j = graph.images[graph.edges[~graph.is_tree]].T
        assert (matches.counts()[i, j] >= min_matches).all()


def test_a_thousand_images_in_a_row():
    n = 1200
    counts = {(i, i + d): 200 // d for i in range(n) for d in (1, 2, 3) if i + d < n}
    (graph,), _ = build_view_graphs(matches_with_counts(n, counts))
    assert_consistent(graph)
    assert graph.n_edges == len(counts)


def test_no_matches_at_all():
    graphs, isolated = build_view_graphs(matches_with_counts(3, {}))
    assert graphs == [] and isolated == [0, 1, 2]


@pytest.mark.parametrize("wrong", [{"n_neig": 1}, {"min_matches": 0}])
def test_meaningless_options_are_refused(wrong):
    with pytest.raises(ValueError, match="at least"):
        GraphOptions(**wrong)
