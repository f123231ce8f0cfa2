"""What can be measured on a finished reconstruction: residuals of images and pairs, parallax, weak links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from proba.geometry.camera import UNIT_SIDE_PX
from proba.geometry.epipolar import epipolar_lines, in_front, sampson
from proba.matches import Matches, PairMatches
from proba.reconstruction import Edge, Reconstruction
from proba.refine.agreement import group_without_contradictions, symmetric_weights
from proba.refine.options import AgreementOptions

TRIANGLE = 3
MAX_VOTES = 300
AGREE_PX = 3.0
"""A match agrees with the reconstruction within this epipolar distance, in pixels of an image of 1024 px."""


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """What can be measured on one image."""

    name: str
    observations: int
    """Number of points it sees."""
    median_px: float | None
    """Median reprojection error; None: it sees nothing."""
    parallax_deg: float | None
    """Median angle under which other images see the same points; None: it sees nothing."""
    side_px: int
    """Longest side of the photo."""


@dataclass(frozen=True, kw_only=True)
class PairFacts(Edge):
    """What can be measured on one pair of images."""

    median_px: float | None
    """Median epipolar distance of its matches; None: infinite."""
    agreeing: int
    """Number of matches within 3 px of an image of 1024 px."""

    @property
    def explained_part(self) -> float:
        """Explained matches as a part of the explainable ones."""
        return min(self.explained / max(self.explainable, 1e-9), 1.0)

    @property
    def votes(self) -> float:
        """How much the pair counts among others: more than a few hundred matches say nothing new about it."""
        return self.explainable * min(self.matches, MAX_VOTES)


def observation_errors(reconstruction: Reconstruction) -> np.ndarray:
    """Reprojection error [K] of every observation, original pixels; infinite behind the camera."""
    points = reconstruction.points
    errors = np.full(len(points.obs_image), np.inf)
    for n, mine in enumerate(points.seen_by(len(reconstruction))):
        offset = reconstruction.project(n, points.xyz[points.obs_point[mine]]) - points.obs_xy[mine]  # [k, 2]
        errors[mine] = np.nan_to_num(np.linalg.norm(offset, axis=1), nan=np.inf)
    return errors


def point_angles_deg(reconstruction: Reconstruction) -> np.ndarray:
    """Angle [P] between the first and the most different ray to each point: how well its depth is held."""
    points = reconstruction.points
    ray = points.xyz[points.obs_point] - reconstruction.centres[points.obs_image]  # [K, 3]
    ray /= np.maximum(np.linalg.norm(ray, axis=1, keepdims=True), 1e-12)
    first = np.zeros((len(points.xyz), 3))
    first[points.obs_point[::-1]] = ray[::-1]
    widest = np.zeros(len(points.xyz))
    np.maximum.at(widest, points.obs_point, np.linalg.norm(ray - first[points.obs_point], axis=1))
    return np.degrees(2 * np.arcsin(np.clip(widest / 2, 0, 1)))


def image_facts(reconstruction: Reconstruction) -> list[ImageFacts]:
    """The facts of every image, in the order of the reconstruction."""
    points = reconstruction.points
    errors, angles = observation_errors(reconstruction), point_angles_deg(reconstruction)
    out = []
    for n, mine in enumerate(points.seen_by(len(reconstruction))):
        seen = len(mine) > 0
        out.append(
            ImageFacts(
                name=reconstruction.image_names[n],
                observations=len(mine),
                median_px=float(np.median(errors[mine])) if seen else None,
                parallax_deg=float(np.median(angles[points.obs_point[mine]])) if seen else None,
                side_px=max(reconstruction.camera(n).width, reconstruction.camera(n).height),
            )
        )
    return out


def match_errors(reconstruction: Reconstruction, i: int, j: int, pair: PairMatches) -> np.ndarray:
    """Epipolar (Sampson) distance [M] of the matches of images i and j, original pixels; infinite where a ray pair
    meets behind a camera."""
    ray_i, ray_j = reconstruction.camera(i).rays(pair.points_i), reconstruction.camera(j).rays(pair.points_j)  # [M, 3]
    j_from_i = reconstruction.cam_from_world[j] @ np.linalg.inv(reconstruction.cam_from_world[i])
    distance = sampson(ray_j, *epipolar_lines(ray_i, ray_j, j_from_i))  # [M]
    focal_px = np.sqrt(reconstruction.camera(i).focal_px[0] * reconstruction.camera(j).focal_px[0])
    return np.where(in_front(ray_i, ray_j, j_from_i), focal_px * distance, np.inf)


def pair_facts(matches: Matches, reconstruction: Reconstruction) -> list[PairFacts]:
    """The facts of every edge, in the order of the reconstruction."""
    index = {info.name: k for k, info in enumerate(matches.images)}
    place = {name: k for k, name in enumerate(reconstruction.image_names)}
    out = []
    for edge in reconstruction.edges:
        i, j = place[edge.i], place[edge.j]
        pair = pair_of(matches, index[edge.i], index[edge.j])
        errors = match_errors(reconstruction, i, j, pair)  # [M]
        median = float(np.median(errors)) if len(errors) else float("inf")
        agreeing = int((errors < AGREE_PX * unit_px(reconstruction, i, j)).sum())
        out.append(PairFacts(**vars(edge), median_px=median if np.isfinite(median) else None, agreeing=agreeing))
    return out


def unit_px(reconstruction: Reconstruction, i: int, j: int) -> float:
    """Size of a pixel of a 1024 px image in original pixels, mean of two images."""
    sides = [max(reconstruction.camera(k).width, reconstruction.camera(k).height) for k in (i, j)]
    return float(np.mean(sides)) / UNIT_SIDE_PX


def pair_of(matches: Matches, i: int, j: int) -> PairMatches:
    """The matches of two images, points of i first."""
    if i < j:
        return matches.pairs[i, j]
    pair = matches.pairs[j, i]
    return PairMatches(pair.points_j, pair.points_i, pair.scores)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A group of images, and what speaks for and against its place among the others."""

    pairs: int
    """Pairs across with agreeing matches."""
    agreeing: int
    """Matches across that agree with the reconstruction."""
    contradicting: float
    """Share of the matches across that two-view geometry can explain but the reconstruction does not."""
    names: list[str] = field(repr=False)
    """All images."""
    side: np.ndarray = field(repr=False)  # a view of what all cuts share
    """One side, as numbers of images."""

    @property
    def group(self) -> list[str]:
        """The smaller side."""
        members = np.sort(self.side)
        if 2 * len(members) > len(self.names):
            members = np.setdiff1d(np.arange(len(self.names)), members)
        return [self.names[k] for k in members]

    @property
    def others(self) -> int:
        """Number of images on the larger side."""
        return max(len(self.side), len(self.names) - len(self.side))


def cuts(names: list[str], edges: list[PairFacts]) -> list[Cut]:
    """Every image alone, and the two sides of every edge of the maximum spanning tree.

    Among the latter are all bridges: an edge without which the graph falls apart is in every spanning tree.
    """
    index = {name: k for k, name in enumerate(names)}
    ends = np.array([[index[edge.i], index[edge.j]] for edge in edges], np.int64).reshape(-1, 2)  # [E, 2]
    agreeing = np.array([edge.agreeing for edge in edges], np.int64)  # [E]
    weight = np.array([edge.votes for edge in edges])  # [E]
    against = weight * (1 - np.array([edge.explained_part for edge in edges]))  # [E]
    order, reached, parent, ranges = _branches(len(names), ends, agreeing)

    def cut_of(across: np.ndarray, begin: int, end: int) -> Cut:
        return Cut(
            pairs=int((agreeing[across] > 0).sum()),
            agreeing=int(agreeing[across].sum()),
            contradicting=float(against[across].sum() / max(weight[across].sum(), 1e-9)),
            names=names,
            side=order[begin:end],
        )

    alone = _incident(len(names), ends)
    branches = {k: cut_of(across, *ranges[k]) for k, across in _across_branches(alone, reached, parent) if k in ranges}
    found = [cut_of(alone[k], begin, begin + 1) for k, begin in enumerate(np.argsort(order).tolist())]
    return found + [branches[k] for k in reached.tolist() if k in branches]


def _incident(n: int, ends: np.ndarray) -> list[np.ndarray]:
    """The edges of each image, ascending."""
    owner, edge = ends.T.reshape(-1), np.tile(np.arange(len(ends)), 2)
    order = np.lexsort((edge, owner))
    return np.split(edge[order], np.searchsorted(owner[order], np.arange(1, n)))


def _across_branches(
    alone: list[np.ndarray], reached: np.ndarray, parent: np.ndarray
) -> Iterator[tuple[int, np.ndarray]]:
    """The edges, ascending, between the branch of the spanning tree at each image and all others.

    They are found from the leaves on: an edge of two parts of a branch is within it. What this takes are the sizes of
    the cuts, not all edges for each.
    """
    parts = {k: [alone[k]] for k in reached.tolist()}
    for k in reached[:0:-1].tolist():
        edge, times = np.unique(np.concatenate(parts.pop(k)), return_counts=True)
        across = edge[times == 1]
        parts[int(parent[k])].append(across)
        yield k, across


def trusted_part(names: list[str], edges: list[PairFacts]) -> list[str]:
    """The largest group of images without contradictions, by the rule with which the refinement finds its core.

    Three of many are none: that their pairs agree is a single triangle, and one of so many agrees by chance.
    """
    index, options = {name: k for k, name in enumerate(names)}, AgreementOptions()
    ends = np.array([[index[edge.i], index[edge.j]] for edge in edges], np.int64).reshape(-1, 2)  # [E, 2]
    votes = np.array([edge.votes for edge in edges])  # [E]
    usable = votes >= options.min_inliers
    broken = usable & (np.array([edge.explained_part for edge in edges]) < options.broken_below)
    bad, good = (symmetric_weights(ends, votes * chosen, len(names)) for chosen in (broken, usable & ~broken))
    chosen = group_without_contradictions(bad, good, options.max_broken)
    if chosen.sum() <= TRIANGLE and 2 * chosen.sum() < len(names):
        return []
    return [name for name, taken in zip(names, chosen.tolist(), strict=True) if taken]


def explained_share(edges: list[PairFacts]) -> float:
    """Explained matches as a part of the explainable ones, over all pairs."""
    weight = np.array([edge.votes for edge in edges])  # [E]
    explained = np.array([edge.explained_part for edge in edges])  # [E]
    return float((weight * explained).sum() / max(weight.sum(), 1e-9))


def _branches(
    n: int, ends: np.ndarray, agreeing: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, tuple[int, int]]]:
    """The images [N] in an order in which every branch of the spanning tree is a range, so that N sides take no more
    memory than one; the images of the tree, the root first; the parent of each [N]; the ranges of two or more images by
    the first image of their branch.
    """
    # Costs fall with the count and stay above zero, which a sparse matrix takes for "no edge".
    cost = csr_matrix((1 / (1.0 + agreeing), (ends[:, 0], ends[:, 1])), (n, n))
    reached, parent = breadth_first_order(minimum_spanning_tree(cost), 0, directed=False)
    size = np.ones(n, np.int64)  # of an image and all that hang on it
    for k in reached[:0:-1]:
        size[parent[k]] += size[k]
    begin, free = np.zeros(n, np.int64), np.ones(n, np.int64)  # where a branch begins, and its next free place
    for k in reached[1:]:
        begin[k] = free[parent[k]]
        free[parent[k]] += size[k]
        free[k] = begin[k] + 1
    apart = np.setdiff1d(np.arange(n), reached)
    begin[apart] = len(reached) + np.arange(len(apart))
    ranges = {int(k): (int(begin[k]), int(begin[k] + size[k])) for k in reached[1:] if size[k] > 1}
    return np.argsort(begin), reached, parent, ranges
