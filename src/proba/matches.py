"""Pairwise matches: what every matcher produces and all that the solver needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array


@dataclass(frozen=True, kw_only=True)
class KnownLens:
    """A lens that is known beforehand, in COLMAP's parameters (`proba.geometry.camera.MODELS`) and original pixels."""

    model: str
    params: tuple[float, ...]
    sigma: tuple[float, ...]
    """Standard deviation of each parameter; 0: it is held, infinite: it is a start alone."""
    assumed: bool = False
    """Whether nobody told it: a guess that one world starts from, which the refinement may leave."""


@dataclass(frozen=True, kw_only=True)
class ImageInfo:
    """What is known of an image without opening it."""

    name: str
    """Path relative to the image folder, with forward slashes."""
    width: int
    """Pixels, of the original image."""
    height: int
    """Pixels, of the original image."""
    camera_key: str = ""
    """Images with equal size and equal key were taken by one camera (from EXIF; empty: not known)."""
    focal_px: float | None = None
    """Focal length known beforehand (EXIF, calibration), in original pixels."""
    lens: KnownLens | None = None
    """The whole lens, if it is known beforehand; it is not written to files of matches."""

    @property
    def stored(self) -> dict[str, str | int | float | None]:
        """What files of matches say of it, by the names of the fields."""
        return {name: value for name, value in vars(self).items() if name != "lens"}

    @property
    def camera(self) -> tuple[str, int, int]:
        """What images of one camera have in common."""
        return self.camera_key, self.width, self.height

    @property
    def half_side_px(self) -> float:
        """Half the longest side: the unit of normalised image coordinates."""
        return max(self.width, self.height) / 2


class PairMatches(NamedTuple):
    """Matches of one image pair, in original pixels, first pixel centre at (0.5, 0.5)."""

    points_i: np.ndarray  # [M, 2] float32
    points_j: np.ndarray  # [M, 2] float32
    scores: np.ndarray  # [M] float32, larger is better


@dataclass
class Matches:
    """All images of a set and the matches of their pairs."""

    images: list[ImageInfo]
    pairs: dict[tuple[int, int], PairMatches] = field(default_factory=dict)
    """Keyed by image indices (i, j) with i < j."""
    graph_counts: dict[tuple[int, int], int] | None = None
    """How many matches another matcher, the one for the view graph, has found for each pair; None: there was none, and
    the matches themselves are counted."""

    def __repr__(self) -> str:
        total = sum(len(pair.scores) for pair in self.pairs.values())
        return f"Matches(images={len(self.images)}, pairs={len(self.pairs)}, matches={total})"

    def add(self, i: int, j: int, points_i: np.ndarray, points_j: np.ndarray, scores: np.ndarray | None = None):
        """Append matches to a pair, in whichever order it is named."""
        if i == j:
            raise ValueError(f"an image cannot be matched with itself: {self.images[i].name}")
        if i > j:
            i, j, points_i, points_j = j, i, points_j, points_i
        new = PairMatches(
            np.asarray(points_i, np.float32).reshape(-1, 2),
            np.asarray(points_j, np.float32).reshape(-1, 2),
            np.ones(len(points_i), np.float32) if scores is None else np.asarray(scores, np.float32).reshape(-1),
        )
        if (i, j) in self.pairs:
            new = PairMatches(*(np.concatenate(two) for two in zip(self.pairs[i, j], new, strict=True)))
        self.pairs[i, j] = new

    def counts(self) -> np.ndarray:
        """Number of matches of every pair, symmetric, [N, N] int."""
        return self.sparse_counts().toarray()

    def sparse_counts(self) -> csr_array:
        """The same for large sets: only the pairs that have matches are in memory."""
        return symmetric_counts(self.pair_counts(), len(self.images))

    def pair_counts(self) -> dict[tuple[int, int], int]:
        """Number of matches of the pairs that have some."""
        return {pair: len(points.scores) for pair, points in self.pairs.items() if len(points.scores)}

    def similarity_counts(self) -> csr_array:
        """What the view graph is made from [N, N]: counts of the matcher for the graph, where pairs have matches."""
        if self.graph_counts is None:
            return self.sparse_counts()
        count = {
            pair: self.graph_counts[pair]
            for pair, points in self.pairs.items()
            if len(points.scores) and self.graph_counts.get(pair)
        }
        return symmetric_counts(count, len(self.images))


def symmetric_counts(count: Mapping[tuple[int, int], int], n_images: int) -> csr_array:
    """Counts of pairs (i, j), i < j, as a sparse symmetric matrix [N, N] int."""
    i, j = np.array(list(count), np.int64).reshape(-1, 2).T  # [E] each
    values = np.fromiter(count.values(), np.int64, len(count))  # [E]
    ends = np.concatenate([i, j]), np.concatenate([j, i])
    found = csr_array((np.concatenate([values, values]), ends), shape=(n_images, n_images))
    found.sort_indices()
    return found
