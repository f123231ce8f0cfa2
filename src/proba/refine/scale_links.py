"""Whether the scale of images is held by the others, and which ones ran away.

Two pairs of images that have one image in common lie at the same scale where all three see the same points, or where
the third pair closes the triangle. Images that hang on the others without that can grow as they like: all rays meet,
and false matches may even pull them away. Where they have done so, they are not placed.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from proba.refine.agreement import PairAgreement
from proba.refine.bundle import Bundle, observed_depths
from proba.refine.options import ScaleOptions


def held_in_scale(
    bundle: Bundle, placed: np.ndarray, pairs: PairAgreement, options: ScaleOptions
) -> np.ndarray:  # [N] bool
    """The `placed` images [N] bool without groups that ran away from the one with most points, and what hangs on them.

    Images that share few points with every other one are not judged.
    """
    points = _points_of(bundle, placed)
    i, j = pairs.pairs.T  # [E] each
    asked = pairs.pairs[placed[i] & placed[j]]
    shared = [np.intersect1d(points[a][0], points[b][0], assume_unique=True) for a, b in asked.tolist()]
    enough = np.array([len(common) >= options.least_points for common in shared], bool)
    ends, shared = asked[enough], [common for common, kept in zip(shared, enough.tolist(), strict=True) if kept]
    if not len(ends):
        return placed
    group = _groups(ends, shared, bundle.n_images, options.least_common)
    main = int(np.bincount(group, [len(common) for common in shared]).argmax())
    joints = _sound_joints(ends, shared, group, points, options.most_ratio)
    held_groups = _label(joints, group.max() + 1)
    kept, judged = np.zeros((2, bundle.n_images), bool)
    judged[ends] = True
    kept[ends[held_groups[group] == held_groups[main]]] = True
    return placed & (kept | ~judged)


def _points_of(bundle: Bundle, placed: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each image the points that it sees, ascending, and their log depths."""
    tracks, depth = bundle.tracks, observed_depths(bundle)
    seen = np.flatnonzero(bundle.alive & placed[tracks.image] & (depth > 0))
    order = seen[np.argsort(tracks.image[seen], kind="stable")]  # tracks ascend, so their points do
    begin = np.searchsorted(tracks.image[order], np.arange(1, bundle.n_images))
    point, log_depth = tracks.track_of_observation[order], np.log(np.maximum(depth[order], 1e-12))
    return list(zip(np.split(point, begin), np.split(log_depth, begin), strict=True))


def _groups(ends: np.ndarray, shared: list[np.ndarray], n: int, least: int) -> np.ndarray:
    """The group [E] of pairs of one scale that each pair [E, 2] belongs to."""
    links = []
    of_image: list[list[int]] = [[] for _ in range(n)]
    number = {(int(a), int(b)): e for e, (a, b) in enumerate(ends)}
    for e, (a, b) in enumerate(ends.tolist()):
        of_image[a].append(e)
        of_image[b].append(e)
    for mine in of_image:
        for e, other in combinations(mine, 2):
            a, b = sorted(set(ends[e].tolist()) ^ set(ends[other].tolist()))
            closed = (a, b) in number or (b, a) in number
            if closed or len(np.intersect1d(shared[e], shared[other], assume_unique=True)) >= least:
                links.append((e, other))
    return _label(np.array(links, np.int64).reshape(-1, 2), len(ends))


def _sound_joints(
    ends: np.ndarray,
    shared: list[np.ndarray],
    group: np.ndarray,
    points: list[tuple[np.ndarray, np.ndarray]],
    most_ratio: float,
) -> np.ndarray:  # [J, 2]
    """Groups that have an image in common which sees what it shares with either at about the same depth."""
    depths: dict[int, dict[int, list[np.ndarray]]] = {}
    for e, pair in enumerate(ends.tolist()):
        for image in pair:
            point, log_depth = points[image]
            mine = depths.setdefault(image, {}).setdefault(int(group[e]), [])
            mine.append(log_depth[np.searchsorted(point, shared[e])])
    joints = []
    for of_groups in depths.values():
        median = {own: float(np.median(np.concatenate(parts))) for own, parts in of_groups.items()}
        joints += [(a, b) for a, b in combinations(median, 2) if abs(median[a] - median[b]) < np.log(most_ratio)]
    return np.array(joints, np.int64).reshape(-1, 2)


def _label(links: np.ndarray, n: int) -> np.ndarray:  # [n]
    graph = csr_array((np.ones(len(links), bool), (links[:, 0], links[:, 1])), shape=(n, n))
    return connected_components(graph, directed=False)[1]
