"""Level of detail: points in chunks of space, in random order within each, so that a far chunk can show its first ones.

The page decides for itself in the same way, see `wanted` in page.html.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CHUNK = 8192
"""Largest number of points in a chunk."""
COVER = 2.0
"""Points of a far chunk are drawn until they cover the disc that it takes on the screen this many times."""


@dataclass(frozen=True, eq=False)
class Chunks:
    """C chunks of some points."""

    order: np.ndarray  # [P] int, the points chunk by chunk
    start: np.ndarray  # [C + 1] int, where each chunk begins in the order
    low: np.ndarray  # [C, 3], corners of the box around each
    high: np.ndarray  # [C, 3]

    def first(self, share: float) -> np.ndarray:
        """Places in the order of the first points of every chunk."""
        within = np.arange(len(self.order)) - np.repeat(self.start[:-1], np.diff(self.start))  # [P]
        return np.flatnonzero(within < share * np.repeat(np.diff(self.start), np.diff(self.start)))

    def wanted(self, eye: np.ndarray, focal_px: float, point_px: float) -> np.ndarray:  # [C] float
        """Points of each chunk that are worth drawing for an eye [3]; infinite for one that the eye is in."""
        radius = np.linalg.norm(self.high - self.low, axis=1) / 2  # [C]
        distance = np.linalg.norm((self.low + self.high) / 2 - eye, axis=1) - radius
        with np.errstate(divide="ignore"):
            return COVER * np.pi * (radius * focal_px / distance.clip(0) / point_px) ** 2


def cut(xyz: np.ndarray, most: int | None = None) -> Chunks:
    """Points [P, 3], or a random part of them with at most `most`, in chunks of about equal numbers."""
    shuffled = np.random.default_rng(0).permutation(len(xyz))[:most]
    mixed = xyz[shuffled]
    parts = _halves(mixed, np.arange(len(mixed))) if len(mixed) else []
    corners = [(mixed[part].min(0), mixed[part].max(0)) for part in parts]
    low, high = np.array(corners, np.float64).reshape(-1, 2, 3).transpose(1, 0, 2)
    start = np.cumsum([0, *map(len, parts)])
    return Chunks(shuffled[np.concatenate([np.zeros(0, int), *parts])], start, low, high)


def _halves(xyz: np.ndarray, index: np.ndarray) -> list[np.ndarray]:
    """Ascending, and therefore random as the points are, indices of the leaves of a balanced k-d tree."""
    if len(index) <= CHUNK:
        return [np.sort(index)]
    mine, middle = xyz[index], len(index) // 2
    longest = np.argmax(mine.max(0) - mine.min(0))
    order = np.argpartition(mine[:, longest], middle)
    return _halves(xyz, index[order[:middle]]) + _halves(xyz, index[order[middle:]])
