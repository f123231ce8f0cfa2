"""From pairwise matches to tracks: the observations of one scene point in several images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from proba.graph import ViewGraph
from proba.jit import cached_njit
from proba.matches import Matches
from proba.refine.block_matrix import images_in_common, place_of
from proba.refine.options import TrackOptions

KEYPOINT_STEP_PX = 1e-3
"""Keypoints of an image that agree to this step are one keypoint."""
_COORDINATE_BITS = 24
_STAR_ROUNDS = 8


@dataclass(frozen=True, eq=False)
class Tracks:
    """Observations sorted by track: those of track t are `offset[t]:offset[t + 1]`."""

    offset: np.ndarray  # [T + 1] int64
    image: np.ndarray  # [K] int64, local image index
    xy: np.ndarray  # [K, 2] float64, pixels

    @property
    def n_tracks(self) -> int:
        return len(self.offset) - 1

    @property
    def n_observations(self) -> int:
        return len(self.image)

    @property
    def length(self) -> np.ndarray:  # [T] int64
        return np.diff(self.offset)

    @property
    def track_of_observation(self) -> np.ndarray:  # [K] int64
        return np.repeat(np.arange(self.n_tracks), self.length)

    def take(self, chosen: np.ndarray) -> Tracks:
        """The tracks with indices `chosen` [S], in that order."""
        length = self.length[chosen]  # [S]
        offset = np.concatenate([[0], np.cumsum(length)])  # [S + 1]
        within = np.arange(offset[-1]) - np.repeat(offset[:-1], length)  # [K']
        source = np.repeat(self.offset[chosen], length) + within  # [K']
        return Tracks(offset, self.image[source], self.xy[source])


@dataclass(frozen=True, eq=False)
class _KeypointGraph:
    """Keypoints as nodes, matches as links."""

    image: np.ndarray  # [V] int64
    xy: np.ndarray  # [V, 2] float64
    link: np.ndarray  # [M, 2] int64, nodes
    score: np.ndarray  # [M] float32


def build_tracks(matches: Matches, graph: ViewGraph) -> Tracks:
    """Tracks of the matches on the graph's edges.

    Keypoints that repeat are joined over all pairs (connected components). Dense matches repeat only at the
    grid pixel they start from, so their components are stars around that anchor. A component that claims two
    places in one image is taken apart into the stars of its best connected keypoints.
    """
    keypoints = _keypoint_graph(matches, graph)
    track = np.full(len(keypoints.image), -1, np.int64)  # [V], -1: in no track
    n_tracks = 0
    link, score = keypoints.link, keypoints.score
    for _ in range(_STAR_ROUNDS):
        if not len(link):
            break
        label = _component_of(link, len(track))  # [V]
        ambiguous = _ambiguous_components(label, keypoints.image)  # [number of components] bool
        linked = np.zeros(len(track), bool)  # [V]
        linked[link] = True
        clean = linked & ~ambiguous[label]  # [V]
        track[clean] = n_tracks + label[clean]
        n_tracks += len(ambiguous)
        hard = ambiguous[label[link[:, 0]]]  # [M]
        link, score = link[hard], score[hard]
        if not len(link):
            break
        _claim_stars(track, n_tracks, label, keypoints.image, link, score)
        n_tracks += len(ambiguous)
        free = (track[link] < 0).all(axis=1)  # [M]
        link, score = link[free], score[free]
    return _collect(track, keypoints)


def select_tracks(
    tracks: Tracks, image_size_px: np.ndarray, max_tracks: int, seed: int = 0, options: TrackOptions | None = None
) -> Tracks:
    """At most `max_tracks` tracks that cover all pairs and all parts of the images; long ones first.

    `image_size_px` [N, 2] is (width, height). Three passes over the same order: until each image pair has a
    minimum of shared tracks, until each occupied cell of each image has one, then until the budget is spent.
    """
    options = options or TrackOptions()
    max_observations = options.observations * max_tracks
    if tracks.n_tracks <= max_tracks and tracks.n_observations <= max_observations:
        return tracks
    n_images = len(image_size_px)
    side = int(np.clip(np.sqrt(3.0 * max_tracks / n_images), *options.cells))  # cells along an image side
    cell = np.clip((tracks.xy / image_size_px[tracks.image] * side).astype(np.int64), 0, side - 1)  # [K, 2]
    cell_index = cell[:, 1] * side + cell[:, 0]  # [K]
    shuffled = np.random.default_rng(seed).permutation(tracks.n_tracks)  # [T]
    order = shuffled[np.argsort(-tracks.length[shuffled], kind="stable")]  # [T]
    pair_quota = int(np.clip(max_tracks // max(1, 2 * n_images), *options.pair_quota))
    chosen = _choose(
        order,
        tracks.offset,
        tracks.image,
        *images_in_common(tracks.offset, tracks.image, n_images),
        cell_index,
        n_images,
        side * side,
        pair_quota,
        max_tracks,
        max_observations,
    )
    return tracks.take(np.flatnonzero(chosen))


def _keypoint_graph(matches: Matches, graph: ViewGraph) -> _KeypointGraph:
    """Merge repeated keypoints of the graph's pairs into nodes."""
    images, points, scores = [], [], []
    for i, j in graph.edges:
        pair = matches.pairs.get((int(graph.images[i]), int(graph.images[j])))
        if pair is None or not len(pair.points_i):
            continue
        images.append(np.repeat([[i, j]], len(pair.points_i), axis=0))
        points.append(np.stack([pair.points_i, pair.points_j], axis=1))
        scores.append(pair.scores)
    if not images:
        empty = np.zeros(0, np.int64)
        return _KeypointGraph(empty, np.zeros((0, 2)), empty.reshape(0, 2), np.zeros(0, np.float32))
    image = np.concatenate(images).reshape(-1)  # [2 M]
    xy = np.concatenate(points).reshape(-1, 2).astype(np.float64)  # [2 M, 2]
    limit = 2**_COORDINATE_BITS
    # A margin lets matches lie a little outside of the image; huge images get a coarser step.
    step = max(KEYPOINT_STEP_PX, (xy.max() + 128) / limit)
    code = np.clip(np.round((xy + 64) / step), 0, limit - 1).astype(np.int64)  # [2 M, 2]
    key = (image * limit + code[:, 0]) * limit + code[:, 1]  # [2 M]
    _, first, node = np.unique(key, return_index=True, return_inverse=True)
    return _KeypointGraph(image[first], xy[first], node.reshape(-1, 2), np.concatenate(scores))


def _component_of(link: np.ndarray, n_nodes: int) -> np.ndarray:
    """Component label [V] of each node."""
    weights = np.ones(len(link), np.int8)
    adjacency = coo_matrix((weights, (link[:, 0], link[:, 1])), shape=(n_nodes, n_nodes))
    return connected_components(adjacency, directed=False)[1].astype(np.int64)


def _ambiguous_components(label: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Which components [C] bool have two keypoints in one image."""
    ambiguous = np.zeros(label.max() + 1, bool)
    key = label * (image.max() + 1) + image  # [V]
    order = np.argsort(key, kind="stable")
    repeated = order[1:][np.diff(key[order]) == 0]
    ambiguous[label[repeated]] = True
    return ambiguous


def _claim_stars(
    track: np.ndarray, base: int, label: np.ndarray, image: np.ndarray, link: np.ndarray, score: np.ndarray
) -> None:
    """In each component give the best connected node and its best match in each image a track, in place."""
    degree = np.bincount(link.reshape(-1), minlength=len(label))  # [V]
    nodes = np.unique(link)
    ranked = nodes[np.lexsort((nodes, -degree[nodes], label[nodes]))]
    centre_label, first = np.unique(label[ranked], return_index=True)
    centre_of = np.full(label.max() + 1, -1, np.int64)
    centre_of[centre_label] = ranked[first]

    directed = np.concatenate([link, link[:, ::-1]])  # [2 M, 2]
    both = np.concatenate([score, score])
    ray = directed[:, 0] == centre_of[label[directed[:, 0]]]  # [2 M], links that leave a centre
    tip, tip_score = directed[ray, 1], both[ray]
    ranked_tips = np.lexsort((tip, -tip_score, image[tip], label[tip]))
    key = (label[tip] * (image.max() + 1) + image[tip])[ranked_tips]
    best = tip[ranked_tips[np.concatenate([[True], np.diff(key) != 0])]]
    track[best] = base + label[best]
    track[ranked[first]] = base + centre_label


def _collect(track: np.ndarray, keypoints: _KeypointGraph) -> Tracks:
    """Nodes with a track label [V] as sorted arrays; labels with a single node are left out."""
    nodes = np.flatnonzero(track >= 0)
    if not len(nodes):
        return Tracks(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros((0, 2)))
    nodes = nodes[np.lexsort((keypoints.image[nodes], track[nodes]))]
    _, inverse, count = np.unique(track[nodes], return_inverse=True, return_counts=True)
    nodes = nodes[count[inverse] >= 2]
    length = count[count >= 2]
    offset = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)  # [T + 1]
    return Tracks(offset, keypoints.image[nodes], keypoints.xy[nodes])


@cached_njit()
def _choose(order, offset, image, start, column, cell, n_images, n_cells, pair_quota, max_tracks, max_observations):
    """Which tracks [T] bool to keep, see `select_tracks`; `start` and `column` are the pairs that share some."""
    chosen = np.zeros(len(offset) - 1, np.bool_)
    pair_count = np.zeros(len(column), np.int64)
    cell_count = np.zeros((n_images, n_cells), np.int64)
    n_tracks, n_observations = 0, 0
    for stage in range(3):
        for t in order:
            begin, end = offset[t], offset[t + 1]
            if n_tracks >= max_tracks:
                return chosen
            if chosen[t] or (stage > 0 and n_observations + end - begin > max_observations):
                continue
            wanted = stage == 2
            for a in range(begin, end):
                if stage == 1 and cell_count[image[a], cell[a]] == 0:
                    wanted = True
                if stage == 0:
                    for b in range(a + 1, end):
                        if pair_count[place_of(start, column, image[b], image[a])] < pair_quota:
                            wanted = True
            if not wanted:
                continue
            chosen[t] = True
            n_tracks += 1
            n_observations += end - begin
            for a in range(begin, end):
                cell_count[image[a], cell[a]] += 1
                for b in range(a + 1, end):
                    pair_count[place_of(start, column, image[b], image[a])] += 1  # images ascend within a track
    return chosen
