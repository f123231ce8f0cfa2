"""Controlled damage to matches, for the experiments on robustness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from proba.matches import ImageInfo, Matches, PairMatches


def with_noise(matches: Matches, ratio: float, sigma_px: float, seed: int) -> Matches:
    """Gaussian noise on the targets of a share of the matches of every pair (paper, appendix, robustness)."""
    rng = np.random.default_rng([seed, 1])

    def noisy(points: np.ndarray, image: ImageInfo) -> np.ndarray:  # [M, 2]
        return points + rng.normal(0, sigma_px, points.shape)

    return _disturbed(matches, ratio, rng, noisy)


def with_outliers(matches: Matches, share: float, seed: int) -> Matches:
    """A share of the matches of every pair has its target anywhere in the other image."""
    rng = np.random.default_rng([seed, 2])

    def anywhere(points: np.ndarray, image: ImageInfo) -> np.ndarray:  # [M, 2]
        return rng.uniform(0, [image.width, image.height], points.shape)

    return _disturbed(matches, share, rng, anywhere)


def _disturbed(
    matches: Matches, share: float, rng: np.random.Generator, change: Callable[[np.ndarray, ImageInfo], np.ndarray]
) -> Matches:
    pairs = {}
    for (i, j), pair in matches.pairs.items():
        chosen = rng.permutation(len(pair.scores))[: round(share * len(pair.scores))]
        target = pair.points_j.copy()  # [M, 2]
        target[chosen] = change(target[chosen], matches.images[j])
        pairs[i, j] = PairMatches(pair.points_i, target, pair.scores)
    return replace(matches, pairs=pairs)
