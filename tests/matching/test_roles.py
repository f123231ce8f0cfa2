"""One matcher for the view graph, another for the matches on its edges."""

from dataclasses import replace

import numpy as np
import pytest
from textures import save, true_places, two_plane_views

from proba.errors import InputError
from proba.graph import GraphOptions, build_view_graphs
from proba.io.images import Pixels
from proba.io.matches_h5 import load_matches, save_matches
from proba.matches import ImageInfo, PairMatches
from proba.matching import MatcherEntry, MatchOptions, make_matcher, match_folder
from proba.matching.densify import Densifier
from proba.matching.guided import GROWING
from proba.matching.matcher import _entries
from proba.matching.roles import agree, graph_edges, graph_file
from proba.matching.sift import Sift, SiftOptions
from proba.matching.verify import verify
from proba.report.matching import matching_facts
from proba.synthetic import make_scene, scene_matches
from proba.synthetic.render import render


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos")
    for k, view in enumerate(two_plane_views(5)):
        save(path / f"{k}.png", view)
    return path


@pytest.fixture
def dense(monkeypatch):
    """A matcher for the edges: SIFT with fewer features. It notes what it is asked, and may lie or say nothing."""

    class Dense(Sift):
        asked = 0
        says = "all"

        def settings(self):
            return {**super().settings(), "matcher": "dense", "says": Dense.says}

        def match(self, one, other):
            Dense.asked += 1
            found = super().match(one, other)
            if Dense.says == "nothing":
                return PairMatches(*(column[:0] for column in found))
            if Dense.says == "shifted":  # obeys an epipolar geometry, but another one
                return found._replace(points_j=found.points_j + np.float32([90, 0]))
            return found

    monkeypatch.setitem(
        _entries, "dense", MatcherEntry(summary="", make=lambda _: Dense(SiftOptions(features=600)), missing=str)
    )
    return Dense


def test_tree_and_weights_come_from_one_matcher_and_the_matches_from_the_other(folder, tmp_path, dense):
    options = MatchOptions(matcher="dense", graph_matcher="sift", graph_neighbours=2)
    summary = match_folder(folder, tmp_path / "m.h5", options)
    plain = match_folder(folder, tmp_path / "sift.h5", MatchOptions(matcher="sift"))
    sift, found = load_matches(tmp_path / "sift.h5"), load_matches(tmp_path / "m.h5")
    edges = graph_edges(sift, 2)
    assert sorted(found.pairs) == edges and len(edges) < plain.pairs_tried == summary.graph_pairs
    assert dense.asked == summary.pairs_tried == len(edges)
    assert found.graph_counts == sift.pair_counts()
    assert all(len(found.pairs[pair].scores) < len(sift.pairs[pair].scores) for pair in edges)
    (graph,), _ = build_view_graphs(found, GraphOptions(n_neig=2))
    (expected,), _ = build_view_graphs(sift, GraphOptions(n_neig=2))
    np.testing.assert_array_equal(graph.edges, expected.edges)
    np.testing.assert_array_equal(graph.is_tree, expected.is_tree)
    np.testing.assert_array_equal(graph.initial_weight, expected.initial_weight)
    facts = matching_facts(tmp_path / "m.h5")
    assert facts is not None and facts["graph_matcher"] == "sift" and facts["matchers"] == ["dense"]


def test_what_was_done_is_not_done_again(folder, tmp_path, dense):
    options = MatchOptions(matcher="dense", graph_matcher="sift")
    first = match_folder(folder, tmp_path / "m.h5", options)
    before = dense.asked
    assert match_folder(folder, tmp_path / "m.h5", options, resume=True) == first
    assert dense.asked == before
    save_matches(tmp_path / "copy.h5", load_matches(tmp_path / "m.h5"))
    assert load_matches(tmp_path / "copy.h5").graph_counts == load_matches(tmp_path / "m.h5").graph_counts


@pytest.mark.parametrize("says", ["nothing", "shifted"])
def test_edges_keep_the_graphs_matches_where_the_other_matcher_fails(folder, tmp_path, dense, says):
    dense.says = says
    summary = match_folder(folder, tmp_path / "m.h5", MatchOptions(matcher="dense", graph_matcher="sift"))
    graph, found = load_matches(graph_file(tmp_path / "m.h5")), load_matches(tmp_path / "m.h5")
    assert summary.pairs_kept == len(found.pairs) > 0
    for pair, matches in found.pairs.items():
        np.testing.assert_array_equal(matches.points_j, graph.pairs[pair].points_j)


def test_agreement_is_about_places():
    image = ImageInfo(name="", width=1024, height=768)
    points = np.random.default_rng(0).uniform(0, 700, (400, 2)).astype(np.float32)
    some = PairMatches(points, points + 20, np.ones(400, np.float32))
    assert agree(some, PairMatches(*(column[::7] for column in some)), image, image)
    assert not agree(some, some._replace(points_j=points + 120), image, image)
    assert not agree(PairMatches(*(column[:0] for column in some)), some, image, image)
    half = some._replace(points_j=np.where(np.arange(400)[:, None] < 120, points + 200, points + 20))
    assert agree(some, half, image, image)


def test_guided_makes_its_own_graph_and_covers_more_of_it(folder, tmp_path):
    plain = match_folder(folder, tmp_path / "plain.h5", MatchOptions(matcher="sift"))
    options = MatchOptions(matcher="guided", graph_matcher="sift")
    summary = match_folder(folder, tmp_path / "guided.h5", options)
    assert summary.matches > 2 * plain.matches and summary.pairs_kept == plain.pairs_kept
    with pytest.raises(InputError, match="guided needs a matches file"):
        make_matcher("guided")


def test_grown_matches_are_right_and_more_than_one_round_finds():
    scene = make_scene("room", n_images=24)
    exact = scene_matches(scene, noise_px=0.0, grid=16)
    i, j = max(exact.pairs, key=lambda pair: len(exact.pairs[pair].scores))
    photos = [Pixels(rgb=render(scene, k), mask=None, width=scene.width, height=scene.height) for k in (i, j)]
    sift = Sift(SiftOptions(features=400))
    known = verify(sift.match(*map(sift.extract, photos)), *(exact.images[k] for k in (i, j))).matches
    counts = []
    for rounds in (1, 12):
        densifier = Densifier(replace(GROWING, rounds=rounds))
        found = densifier.densify(known, *map(densifier.extract, photos))
        error = np.linalg.norm(found.points_j - true_places(scene, i, j, found.points_i), axis=1)
        assert np.nanmedian(error) < 0.15 and np.mean(error < 1) > 0.93
        counts.append(len(found.scores))
    assert counts[1] > 1.5 * counts[0] > 0


def test_unknown_matchers_for_the_graph_are_refused(folder, tmp_path):
    with pytest.raises(InputError, match="no matcher 'none'"):
        match_folder(folder, tmp_path / "m.h5", MatchOptions(matcher="sift", graph_matcher="none"))
    with pytest.raises(InputError, match="at least 2"):
        match_folder(folder, tmp_path / "m.h5", MatchOptions(graph_matcher="sift", graph_neighbours=1))
