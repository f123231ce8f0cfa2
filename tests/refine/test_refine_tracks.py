"""Tracks: merging, splitting, and the choice of a covering subset."""

from __future__ import annotations

import numpy as np

from proba.graph import GraphOptions, ViewGraph, build_view_graphs
from proba.matches import ImageInfo, Matches
from proba.refine.tracks import Tracks, build_tracks, select_tracks


def set_of(pairs: dict[tuple[int, int], list[tuple[tuple[float, float], tuple[float, float]]]], n: int) -> Matches:
    matches = Matches(images=[ImageInfo(name=f"{k}.png", width=100, height=80) for k in range(n)])
    for (i, j), points in pairs.items():
        a, b = np.array(points, np.float32).transpose(1, 0, 2)
        matches.add(i, j, a, b)
    return matches


def graph_of(matches: Matches) -> ViewGraph:
    return build_view_graphs(matches, GraphOptions(min_matches=1))[0][0]


def as_sets(tracks: Tracks) -> list[set[tuple[int, float, float]]]:
    rows = [(int(i), round(float(x), 2), round(float(y), 2)) for i, (x, y) in zip(tracks.image, tracks.xy, strict=True)]
    return [set(rows[a:b]) for a, b in zip(tracks.offset[:-1], tracks.offset[1:], strict=True)]


def test_repeated_keypoints_become_one_track() -> None:
    matches = set_of({(0, 1): [((5, 5), (6, 6))], (1, 2): [((6.0001, 6), (7, 7))], (0, 2): [((20, 20), (30, 30))]}, 3)
    found = as_sets(build_tracks(matches, graph_of(matches)))
    assert {(0, 5.0, 5.0), (1, 6.0, 6.0), (2, 7.0, 7.0)} in found
    assert {(0, 20.0, 20.0), (2, 30.0, 30.0)} in found
    assert len(found) == 2


def test_two_places_in_one_image_are_split_not_dropped() -> None:
    # Keypoint (6, 6) of image 1 is matched with two places of image 0; image 2 and 3 agree with it.
    matches = set_of(
        {
            (0, 1): [((5, 5), (6, 6)), ((50, 50), (6, 6))],
            (1, 2): [((6, 6), (7, 7))],
            (1, 3): [((6, 6), (8, 8))],
            (0, 2): [((50, 50), (60, 60))],
        },
        4,
    )
    tracks = build_tracks(matches, graph_of(matches))
    for begin, end in zip(tracks.offset[:-1], tracks.offset[1:], strict=True):
        assert len(set(tracks.image[begin:end])) == end - begin >= 2
    longest = max(as_sets(tracks), key=len)
    assert {(1, 6.0, 6.0), (2, 7.0, 7.0), (3, 8.0, 8.0)} <= longest
    assert len(longest) == 4


def test_dense_grids_give_stars_around_the_anchor() -> None:
    anchors = [(10.0 + 5 * k, 20.0) for k in range(6)]
    pairs = {(0, j): [(a, (a[0] + j + 0.123 * j, a[1] + 0.37 * j)) for a in anchors] for j in (1, 2, 3)}
    matches = set_of(pairs, 4)
    tracks = build_tracks(matches, graph_of(matches))
    assert tracks.n_tracks == 6
    assert (tracks.length == 4).all()


def random_tracks(n_tracks: int, n_images: int, seed: int = 0) -> Tracks:
    rng = np.random.default_rng(seed)
    images = [np.sort(rng.choice(n_images, rng.integers(2, 6), replace=False)) for _ in range(n_tracks)]
    offset = np.concatenate([[0], np.cumsum([len(i) for i in images])])
    image = np.concatenate(images)
    return Tracks(offset, image, rng.uniform(0, 1, (len(image), 2)) * [100, 80])


def test_selection_keeps_the_budget_and_covers_every_pair() -> None:
    tracks = random_tracks(5000, 6)
    chosen = select_tracks(tracks, np.tile([100, 80], (6, 1)), 400)
    assert chosen.n_tracks <= 400
    shared = np.zeros((6, 6), int)
    for a, b in zip(chosen.offset[:-1], chosen.offset[1:], strict=True):
        shared[np.ix_(chosen.image[a:b], chosen.image[a:b])] += 1
    assert (shared[np.triu_indices(6, 1)] >= 15).all()
    assert chosen.length.mean() > tracks.length.mean()


def test_selection_is_seeded() -> None:
    tracks = random_tracks(2000, 5)
    size = np.tile([100, 80], (5, 1))
    same = [select_tracks(tracks, size, 300, seed=3).xy for _ in range(2)]
    assert np.array_equal(*same)
    other = select_tracks(tracks, size, 300, seed=4).xy
    assert same[0].shape != other.shape or not np.array_equal(same[0], other)
