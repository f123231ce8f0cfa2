"""The numbers of the report against scenes and graphs whose numbers are known."""

import networkx
import numpy as np
import pytest

from proba.matches import PairMatches
from proba.report.facts import (
    PairFacts,
    cuts,
    explained_share,
    image_facts,
    match_errors,
    pair_facts,
    pair_of,
    trusted_part,
)


def edge(i, j, agreeing, explained=1.0):
    return PairFacts(
        i=i,
        j=j,
        matches=agreeing,
        weight=1.0,
        explainable=1.0,
        explained=explained,
        median_px=None if agreeing == 0 else 1.0,
        agreeing=agreeing,
    )


def clusters():
    """Two triangles of images joined by one edge."""
    names = list("abcdef")
    edges = [edge(*pair, 200) for pair in ("ab", "bc", "ac", "de", "ef", "df")]
    return names, [*edges, edge("c", "d", 40)]


def test_true_poses_leave_the_noise(finished):
    for image in image_facts(finished.rec):
        # The length of two independent coordinates of standard deviation 0.3 px has the median 0.3 sqrt(2 ln 2).
        assert image.median_px == pytest.approx(0.3 * 1.177, rel=0.2)
        assert image.observations > 100 and image.parallax_deg > 5
    finished.result()
    for found in pair_facts(finished.matches, finished.rec):
        assert found.median_px < 0.5
        assert found.agreeing == found.matches


def test_a_shifted_camera_shows_in_its_pairs_only(finished):
    moved = finished.rec.image_names[3]
    finished.rec.cam_from_world[3, 0, 3] += 0.5
    finished.result()
    for found in pair_facts(finished.matches, finished.rec):
        involved = moved in (found.i, found.j)
        assert (found.median_px is None or found.median_px > 2) == involved


def test_residuals_do_not_depend_on_the_order_of_a_pair(finished):
    (i, j), pair = next(iter(finished.matches.pairs.items()))
    there, back = (
        match_errors(finished.rec, i, j, pair),
        match_errors(finished.rec, j, i, pair_of(finished.matches, j, i)),
    )
    assert np.allclose(there, back)


def test_points_behind_a_camera_never_agree(finished):
    (i, j), pair = next(iter(finished.matches.pairs.items()))
    mirrored = finished.rec.cam_from_world[j] @ np.linalg.inv(finished.rec.cam_from_world[i])
    mirrored[:3, 3] *= -1  # the same epipolar lines, the scene behind
    finished.rec.cam_from_world[j] = mirrored @ finished.rec.cam_from_world[i]
    assert np.isinf(match_errors(finished.rec, i, j, pair)).mean() > 0.95


def test_an_image_without_observations_has_no_residual(finished):
    points = finished.rec.points
    keep = points.obs_image != 0
    points.obs_point, points.obs_image, points.obs_xy = (
        values[keep] for values in (points.obs_point, points.obs_image, points.obs_xy)
    )
    first = image_facts(finished.rec)[0]
    assert first.observations == 0 and first.median_px is None and first.parallax_deg is None


def test_a_pair_without_matches_has_no_residual(finished):
    name = next(iter(finished.matches.pairs))
    finished.result()
    none = np.zeros((0, 2), np.float32)
    finished.matches.pairs[name] = PairMatches(none, none, np.zeros(0, np.float32))
    assert pair_facts(finished.matches, finished.rec)[0].median_px is None


def test_a_bridge_is_found():
    names, edges = clusters()
    weakest = min(cuts(names, edges), key=lambda cut: cut.agreeing)
    assert weakest.agreeing == 40 and weakest.pairs == 1
    assert set(weakest.group) in ({"a", "b", "c"}, {"d", "e", "f"}) and weakest.others == 3


def test_the_part_that_can_be_trusted_has_no_contradictions():
    names, edges = clusters()
    assert trusted_part(names, edges) == names
    wrong = [edge(pair.i, pair.j, 200, explained=0.1) if pair.i + pair.j in ("de", "df") else pair for pair in edges]
    assert trusted_part(names, wrong) == ["a", "b", "c"]
    # With more images a single triangle that agrees may be chance.
    more = [edge(one, other, 200, explained=0.1) for one, other in ("ag", "dg", "bh", "eh")]
    assert trusted_part([*names, "g", "h"], wrong + more) == []


def test_every_image_alone_is_a_cut():
    names, edges = clusters()
    alone = {cut.group[0]: cut.agreeing for cut in cuts(names, edges) if len(cut.group) == 1}
    assert alone == {"a": 400, "b": 400, "c": 440, "d": 440, "e": 400, "f": 400}


def test_contradictions_across_a_cut():
    names, edges = clusters()
    edges[-1] = edge("c", "d", 40, explained=0.25)
    worst = max(cuts(names, edges), key=lambda cut: cut.contradicting)
    assert worst.contradicting == pytest.approx(0.75) and len(worst.group) == 3
    # All but three quarters of one pair's 40 matches agree; a pair counts for its matches.
    assert explained_share(edges) == pytest.approx(1 - 30 / 1240)


def test_the_cuts_of_a_graph_at_random_are_the_branches_of_its_spanning_tree():
    rng = np.random.default_rng(3)
    names = [f"{k:02d}" for k in range(20)]
    graph = networkx.Graph()
    pairs = {(k, int(rng.integers(k))) for k in range(1, 18)} | {tuple(rng.choice(18, 2, False)) for _ in range(30)}
    for i, j in pairs:  # 18 and 19 have no pair at all
        graph.add_edge(names[i], names[j], agreeing=int(rng.integers(1, 10**6)))
    edges = [edge(i, j, data["agreeing"], rng.uniform()) for i, j, data in graph.edges(data=True)]
    tree = networkx.maximum_spanning_tree(graph, "agreeing")
    sides = [{name} for name in names]
    for i, j in list(tree.edges):
        tree.remove_edge(i, j)
        halves = [set(networkx.node_connected_component(tree, end)) for end in (i, j)]
        sides += [half for half in halves if names[0] not in half]
        tree.add_edge(i, j)

    def expected(side):
        across = [e for e in edges if (e.i in side) != (e.j in side)]
        against = sum(e.votes * (1 - e.explained_part) for e in across) / max(sum(e.votes for e in across), 1e-9)
        return len(across), sum(e.agreeing for e in across), pytest.approx(against)

    found = cuts(names, edges)
    assert {frozenset(cut.group) for cut in found} == {
        frozenset(side if 2 * len(side) <= 20 else set(names) - side) for side in sides
    }
    for cut in found:
        assert (cut.pairs, cut.agreeing, cut.contradicting) == expected(set(cut.group))
        assert cut.others == 20 - len(cut.group) and cut.group == sorted(cut.group)
