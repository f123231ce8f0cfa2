"""Do pairs agree with each other? A point that goes from i over j to k must arrive where it goes directly.

Needs no intrinsics. A pair that shows two different parts of a scene that look alike (repeated windows) can satisfy an
epipolar geometry of its own, but its matches contradict the detour over a third image that sees both parts. Where whole
groups of images are confused (front and back of a temple), the detours agree with each other and nothing is found.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from proba.geometry.camera import UNIT_SIDE_PX
from proba.matches import ImageInfo, Matches
from proba.matching.pairs import Pair

TREES_HELD = 2000  # search trees in memory, some 60 kB each


@dataclass(frozen=True, kw_only=True)
class TripletOptions:
    """When a pair contradicts the others. Lengths in pixels of an image whose longest side has 1024."""

    same_px: float = 2.0
    """Keypoints of one image within this distance are taken for one point."""
    cycle_px: float = 8.0
    """A detour that arrives within this distance of the direct match agrees with it."""
    min_cycles: int = 15
    """Pairs with fewer detours are not judged."""
    min_agreement: float = 0.25
    """Pairs of which a smaller share of the detours agree are dropped."""
    isolated_below: int = 120
    """Pairs with fewer matches are dropped as well if hardly a detour meets one of them, though ..."""
    isolated_thirds: int = 3
    """... at least this number of third images match both images, and ..."""
    isolated_joined: int = 2
    """... both images have at least this number of pairs with enough detours."""
    max_thirds: int = 12
    """Third images that judge a pair at most: those with most matches."""


@dataclass(frozen=True)
class Cycles:
    """What a triplet says."""

    triplet: tuple[int, int, int]
    agreeing: int
    total: int


def triplet_cycles(matches: Matches, options: TripletOptions | None = None) -> list[Cycles]:
    """Detours of all triangles of the match graph."""
    options = options or TripletOptions()

    @lru_cache(maxsize=TREES_HELD)
    def tree(pair: Pair) -> cKDTree:
        return cKDTree(matches.pairs[pair].points_i)

    def near(pair: Pair, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which match of a pair starts at each of the points [M, 2] of its first image [M], if one does [M]."""
        bound = options.same_px * _scale(matches.images[pair[0]])
        distance, index = tree(pair).query(points, distance_upper_bound=bound)
        return np.where(np.isfinite(distance), index, 0), np.isfinite(distance)

    found = []
    for i, j, k in _triangles(matches.sparse_counts(), options.max_thirds):
        direct, first, second = matches.pairs[i, k], matches.pairs[i, j], matches.pairs[j, k]
        onward, continues = near((j, k), first.points_j)  # [M]
        straight, starts = near((i, k), first.points_i)  # [M]
        both = continues & starts
        gap = second.points_j[onward[both]] - direct.points_j[straight[both]]  # [C, 2]
        bound = options.cycle_px * _scale(matches.images[k])
        found.append(Cycles((i, j, k), int((np.hypot(*gap.T) < bound).sum()), len(gap)))
    return found


def false_pairs(matches: Matches, options: TripletOptions | None = None) -> set[Pair]:
    """Pairs that third images contradict, or that they should confirm and do not."""
    options = options or TripletOptions()
    found = triplet_cycles(matches, options)
    return set(contradicted_pairs(found, options)) | isolated_pairs(matches, found, options)


def isolated_pairs(matches: Matches, found: list[Cycles], options: TripletOptions) -> set[Pair]:
    """Weak pairs of well joined images whose points nobody else sees."""
    judged = _agreement(found, options.min_cycles)
    joined = Counter(image for pair in judged for image in pair)
    thirds = Counter(pair for cycles in found for pair in itertools.combinations(cycles.triplet, 2))
    return {
        pair
        for pair, points in matches.pairs.items()
        if pair not in judged
        and len(points.scores) < options.isolated_below
        and thirds[pair] >= options.isolated_thirds
        and min(joined[image] for image in pair) >= options.isolated_joined
    }


def contradicted_pairs(found: list[Cycles], options: TripletOptions) -> dict[Pair, float]:
    """Pairs whose detours mostly disagree, with the share that agrees; the worst first.

    A false pair spoils all triangles it is in, so pairs are taken out one by one, and their triangles with them.
    """
    open_cycles = found
    dropped: dict[Pair, float] = {}
    while True:
        agreement = _agreement(open_cycles, options.min_cycles)
        worst = min(agreement, key=lambda pair: (agreement[pair], pair), default=None)
        if worst is None or agreement[worst] >= options.min_agreement:
            return dropped
        dropped[worst] = agreement[worst]
        open_cycles = [cycles for cycles in open_cycles if not set(worst) <= set(cycles.triplet)]


def _scale(image: ImageInfo) -> float:
    """Bounds are meant for 1024 pixels and grow with larger images."""
    return max(1.0, 2 * image.half_side_px / UNIT_SIDE_PX)


def _agreement(found: list[Cycles], min_cycles: int) -> dict[Pair, float]:
    """Of each pair with enough detours, the share that agrees."""
    agreeing: Counter[Pair] = Counter()
    total: Counter[Pair] = Counter()
    for cycles in found:
        for pair in itertools.combinations(cycles.triplet, 2):
            agreeing[pair] += cycles.agreeing
            total[pair] += cycles.total
    return {pair: agreeing[pair] / count for pair, count in total.items() if count >= min_cycles}


def _triangles(counts: csr_array, max_thirds: int) -> list[tuple[int, int, int]]:
    """Triangles i < j < k of the match graph; of each pair those whose weaker other side is strongest."""
    chosen: set[tuple[int, int, int]] = set()
    rows = [slice(*ends) for ends in itertools.pairwise(counts.indptr)]  # of each image, in the sparse matrix
    for i, j in zip(*counts.nonzero(), strict=True):
        if i > j:
            continue
        both, of_i, of_j = np.intersect1d(counts.indices[rows[i]], counts.indices[rows[j]], True, True)
        support = np.minimum(counts.data[rows[i]][of_i], counts.data[rows[j]][of_j])  # [K]
        for k in both[np.argsort(-support, kind="stable")[:max_thirds]]:
            a, b, c = sorted((int(i), int(j), int(k)))
            chosen.add((a, b, c))
    return sorted(chosen)
