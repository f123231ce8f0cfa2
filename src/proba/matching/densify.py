"""From verified matches to a denser field: interpolate, then let the images decide.

Each cell of a 64 x 64 grid has one anchor, its most textured pixel. It is a property of the image, the same for all
pairs, so that what is found for it in several images makes one track. Neighbouring matches predict where an anchor is
in the other image and how its surroundings are bent (local affine map); grey values give the place to a fraction of a
pixel; the way back must return to the anchor. Both directions are kept.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from proba.io.images import Pixels
from proba.matches import PairMatches
from proba.matching.matcher import Features, empty_matches
from proba.matching.verify import VerifyOptions
from proba.subpixel import SubpixelOptions, refine_places, smoothed

MIN_GAIN = 0.01  # a round that adds a smaller share of what there is was the last


@dataclass(frozen=True, kw_only=True)
class DensifyOptions:
    """How matches are densified; lengths in pixels of the photo reduced to `max_side_px`."""

    max_side_px: int = 1024
    grid: int = 64
    """Cells a side (the paper's)."""
    rounds: int = 1
    """What was found guides the search for the rest, this many times at most."""
    neighbours: int = 10
    """Matches that an affine map is fitted to."""
    reach_px: float = 24.0
    """Anchors whose nearest match is farther away are left out."""
    max_misfit_px: float = 2.0
    """Root mean square of the fit: beyond it the neighbours lie on different surfaces."""
    cycle_px: float = 1.0
    """Largest distance after going there and back (the paper has 5 px for matches that are not refined)."""
    subpixel: SubpixelOptions = field(default_factory=SubpixelOptions)


class _Found(NamedTuple):
    """Anchors that were found, and which were not."""

    start: np.ndarray  # [K, 2]
    end: np.ndarray  # [K, 2]
    score: np.ndarray  # [K]
    left: np.ndarray  # [A - K] numbers of anchors


class Densifier:
    """Works on photos as a matcher does: `extract` finds the anchors of one, `densify` the matches of two."""

    keep_features = False
    preview = 0
    bounds = VerifyOptions(min_share=0.5)

    def __init__(self, options: DensifyOptions | None = None):
        self.options = options or DensifyOptions()
        self.max_side_px = self.options.max_side_px

    def settings(self) -> dict[str, Any]:
        return {"matcher": "densify", **asdict(self.options)}

    def extract(self, pixels: Pixels) -> Features:
        """Smoothed luminance, the most textured visible pixel of each cell, and the scale to original pixels."""
        import cv2

        options, grey = self.options, pixels.grey
        texture = cv2.cornerMinEigenVal(grey, 2 * options.subpixel.radius + 1)  # [h, w]
        if pixels.mask is not None:
            texture = np.where(pixels.mask, texture, 0)
        height, width = grey.shape
        row, column = np.divmod(np.arange(height * width), width)  # [h * w]
        cell = row * options.grid // height * options.grid + column * options.grid // width  # [h * w]
        order = np.lexsort((-texture.reshape(-1), cell))
        best = order[np.concatenate([[True], np.diff(cell[order]) != 0])]  # [A]
        best = best[texture.reshape(-1)[best] > 0]
        points = np.stack([column[best], row[best]], axis=1).astype(np.float32)
        return {"grey": smoothed(grey), "points": points, "scale": pixels.scale}

    def densify(self, pair: PairMatches, one: Features, other: Features) -> PairMatches:
        """Matches of the anchors of both images, in original pixels, not verified; scores are correlations."""
        if len(pair.scores) < self.options.neighbours:
            return empty_matches()
        given = pair.points_i / one["scale"] - 0.5, pair.points_j / other["scale"] - 0.5  # [M, 2]
        left, back_left = np.arange(len(one["points"])), np.arange(len(other["points"]))  # [A] anchors without a match
        support, found = given, [np.zeros((0, 5))]
        for _ in range(self.options.rounds):
            there = self._one_way(*support, one, other, left)
            back = self._one_way(*support[::-1], other, one, back_left)
            new = [(there.start, there.end, there.score), (back.end, back.start, back.score)]
            found += [np.column_stack(columns) for columns in new]  # [K, 5] i, j, score
            left, back_left = there.left, back.left
            if len(there.score) + len(back.score) < MIN_GAIN * sum(map(len, found)):
                break
            every = np.concatenate(found)  # [K, 5]
            support = np.concatenate([given[0], every[:, :2]]), np.concatenate([given[1], every[:, 2:4]])
        every = np.concatenate(found)  # [K, 5]
        return PairMatches(
            ((every[:, :2] + 0.5) * one["scale"]).astype(np.float32),
            ((every[:, 2:4] + 0.5) * other["scale"]).astype(np.float32),
            every[:, 4].astype(np.float32),
        )

    def _one_way(
        self, support_i: np.ndarray, support_j: np.ndarray, one: Features, other: Features, anchors: np.ndarray
    ) -> _Found:
        """Look for some anchors [A] of `one` in `other`."""
        start, options = one["points"][anchors], self.options.subpixel
        predicted, affine, sound = local_affine(support_i, support_j, start, self.options)
        start, predicted, affine, tried = start[sound], predicted[sound], affine[sound], anchors[sound]
        there = refine_places(one["grey"], other["grey"], start, predicted, affine, options)
        back = refine_places(other["grey"], one["grey"], there.points_j, start, np.linalg.inv(affine), options)
        returned = np.linalg.norm(back.points_j - start, axis=1) < self.options.cycle_px
        keep = there.good & returned & (back.correlation >= options.min_correlation)
        left = np.setdiff1d(anchors, tried[keep], assume_unique=True)
        return _Found(start[keep], there.points_j[keep], there.correlation[keep], left)


def local_affine(
    support_i: np.ndarray, support_j: np.ndarray, points: np.ndarray, options: DensifyOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where `points` [A, 2] come to [A, 2], the local map [A, 2, 2], and where both can be trusted [A]."""
    distance, index = cKDTree(support_i).query(points, k=options.neighbours)  # [A, K]
    weight = np.exp(-0.5 * (distance / options.reach_px) ** 2)  # [A, K]
    total = weight.sum(axis=1, keepdims=True) + 1e-12
    weight = weight / total
    from_i, to_j = support_i[index], support_j[index]  # [A, K, 2]
    centre_i = np.einsum("ak,akd->ad", weight, from_i)
    centre_j = np.einsum("ak,akd->ad", weight, to_j)
    offset_i, offset_j = from_i - centre_i[:, None], to_j - centre_j[:, None]
    # A little of the whole pair's similarity where the neighbours lie on a line.
    spread = np.einsum("ak,akd,ake->ade", weight, offset_i, offset_i) + 4.0 * np.eye(2)  # [A, 2, 2]
    mixed = np.einsum("ak,akd,ake->ade", weight, offset_j, offset_i) + 4.0 * _similarity(support_i, support_j)
    affine = mixed @ np.linalg.inv(spread)  # [A, 2, 2]
    misfit = offset_j - np.einsum("ade,ake->akd", affine, offset_i)  # [A, K, 2]
    rms = np.sqrt(np.einsum("ak,akd,akd->a", weight, misfit, misfit))
    singular = np.linalg.svd(affine, compute_uv=False)  # [A, 2]
    sound = (distance[:, 0] < options.reach_px) & (rms < options.max_misfit_px)
    sound &= (singular[:, 0] < 3) & (singular[:, 1] > 1 / 3) & (np.linalg.det(affine) > 0)
    return centre_j + np.einsum("ade,ae->ad", affine, points - centre_i), affine, sound


def _similarity(points_i: np.ndarray, points_j: np.ndarray) -> np.ndarray:  # [2, 2]
    """Rotation and scale that take one set of points best to the other."""
    a, b = points_i - points_i.mean(axis=0), points_j - points_j.mean(axis=0)
    cosine, sine = (a * b).sum(), (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum()
    return np.array([[cosine, -sine], [sine, cosine]]) / ((a * a).sum() + 1e-9)
