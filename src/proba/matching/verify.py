"""Geometric verification: which matches of a pair agree on one epipolar geometry, and whether that can be chance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import poselib

from proba.geometry.camera import UNIT_SIDE_PX
from proba.geometry.epipolar import sampson
from proba.matches import ImageInfo, PairMatches

SAMPLE = 7  # matches that determine a fundamental matrix
HOMOGRAPHY_SAMPLES = 1000
Kind = Literal["general", "planar", "none"]


@dataclass(frozen=True, kw_only=True)
class VerifyOptions:
    """When a pair is kept."""

    epipolar_px: float = 1.5
    """Largest distance from the epipolar line, in an image whose longest side has 1024 pixels; grows with the image."""
    wide: float = 4.0
    """Photos of different cameras (size or EXIF) keep matches up to this multiple of the distance, if `wide_from` are
    nearer. What is cut off at a pair's own geometry pulls the result towards it, with its errors."""
    wide_from: int = 100
    """In weaker pairs wrong matches are too large a share of what is farther away."""
    min_inliers: int = 15
    """Fewer matches carry no relative pose worth having."""
    min_share: float = 0.25
    """Share of the matches of the pair that must agree."""
    max_log10_chance: float = -6.0
    """Logarithm of the number of fundamental matrices as well supported that random matches would give."""
    cell_px: float = 0.0
    """Matches within such a cell count once against chance (pixels of a 1024 pixel image); 0: each counts."""
    planar_share: float = 0.85
    """A pair is flagged as planar (or turned in place) if one homography explains this share of its inliers."""
    iterations: int = 3000
    """Most samples that are drawn, from the matches of the highest scores first (PROSAC)."""
    min_iterations: int = 100
    """Samples that are drawn in any case."""
    confidence: float = 0.999
    """Sampling ends when a sample without wrong matches was drawn with this probability."""
    seed: int = 0
    """Seed of the samples."""


SEMI_DENSE = VerifyOptions(wide=1.0, cell_px=16.0, max_log10_chance=-10.0)
"""For matches on a grid: neighbours err together, so they are no independent witnesses. With XFeat, eth3d_pipes keeps
45 true and no false pairs (47 and 8 with the bounds for keypoints), dino_sparse 34 and 0 (38 and 25)."""

PREVIEW = VerifyOptions(min_inliers=8, min_share=0.0, max_log10_chance=2.0, iterations=1000)
"""Loose bounds for a first look. With the 2,000 largest SIFT features, 53 % of the pairs of dtu_scan24 (every third
image) and 36 % of castle_p19 fail them, at a fifteenth of the time; among them are none of those that a full match
verifies with 100 matches and more, and 1 to 4 % of all verified ones."""


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A pair after verification."""

    matches: PairMatches
    """The matches that agree; empty if the pair is refused."""
    kind: Kind
    """planar: one plane, or a camera that only turned, explains it; its baseline is not to be trusted alone."""
    log10_chance: float
    """How surprising the agreement is; lower is better."""


def verify(pair: PairMatches, one: ImageInfo, other: ImageInfo, options: VerifyOptions | None = None) -> Verified:
    """Keep the matches that agree with one fundamental matrix, if they are too many for chance."""
    options = options or VerifyOptions()
    refused = Verified(matches=PairMatches(*(column[:0] for column in pair)), kind="none", log10_chance=math.inf)
    total = len(pair.points_i)
    if total < options.min_inliers:
        return refused
    best_first = np.argsort(-pair.scores, kind="stable")
    pair = PairMatches(*(column[best_first] for column in pair))
    side_px = max(one.half_side_px, other.half_side_px) * 2
    epipolar_px = options.epipolar_px * max(1.0, side_px / UNIT_SIDE_PX)
    fundamental, inlier = _fundamental(pair, epipolar_px, options)  # [3, 3], [M]
    count = int(inlier.sum())
    cell_px = options.cell_px * max(1.0, side_px / UNIT_SIDE_PX)
    chance = log10_chance(*_witnesses(pair, inlier, cell_px), _chance_of_one(other, epipolar_px))
    if count < options.min_inliers or count < options.min_share * total or chance > options.max_log10_chance:
        return refused
    if count >= options.wide_from and one.camera != other.camera:
        inlier = _sampson_px(fundamental, pair) < options.wide * epipolar_px  # [M]
    kept = PairMatches(*(column[inlier] for column in pair))
    flat = _homography_inliers(kept, 2 * epipolar_px, options)
    kind: Kind = "planar" if flat >= options.planar_share * len(kept.scores) else "general"
    return Verified(matches=kept, kind=kind, log10_chance=chance)


def log10_chance(total: int, inliers: int, chance_of_one: float) -> float:
    """Expected number of models with as many inliers among random matches (a-contrario RANSAC, Moisan and Stival)."""
    if inliers <= SAMPLE:
        return math.inf
    log_ways = _log_choose(total, inliers) + _log_choose(inliers, SAMPLE) + math.log(max(1, total - SAMPLE))
    return (log_ways + (inliers - SAMPLE) * math.log(chance_of_one)) / math.log(10)


def _witnesses(pair: PairMatches, inlier: np.ndarray, cell_px: float) -> tuple[int, int]:
    """How many matches, and inliers, there are if those of one cell count once."""
    if cell_px <= 0:
        return len(inlier), int(inlier.sum())
    cells_i, cells_j = (np.floor(points / cell_px).astype(np.int64) for points in (pair.points_i, pair.points_j))
    agreeing = min(len(np.unique(cells[inlier], axis=0)) for cells in (cells_i, cells_j))
    return max(agreeing, len(np.unique(cells_i, axis=0))), agreeing


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def _chance_of_one(image: ImageInfo, epipolar_px: float) -> float:
    """Probability that a random point of the image lies as near to a given line: at most its longest strip."""
    strip = 2 * epipolar_px * math.hypot(image.width, image.height)
    return min(0.5, strip / (image.width * image.height))


def _sampling(options: VerifyOptions, iterations: int) -> dict[str, float]:
    """How poselib draws its samples."""
    return {
        "max_iterations": iterations,
        "min_iterations": options.min_iterations,
        "success_prob": options.confidence,
        "dyn_num_trials_mult": 1.0,
        "seed": options.seed,
    }


def _sampson_px(fundamental: np.ndarray, pair: PairMatches) -> np.ndarray:  # [M]
    one, other = (np.column_stack([p, np.ones(len(p))]) for p in (pair.points_i, pair.points_j))  # [M, 3]
    return sampson(other, other @ fundamental, one @ fundamental.T)


def _fundamental(pair: PairMatches, epipolar_px: float, options: VerifyOptions) -> tuple[np.ndarray, np.ndarray]:
    """The matrix [3, 3] and its inliers [M] bool, of matches in the order of their scores."""
    matrix, report = poselib.estimate_fundamental(
        pair.points_i.astype(np.float64),
        pair.points_j.astype(np.float64),
        {
            "max_epipolar_error": epipolar_px,
            "progressive_sampling": bool(pair.scores[0] > pair.scores[-1]),
            **_sampling(options, options.iterations),
        },
        {},
    )
    return np.asarray(matrix), np.asarray(report["inliers"], bool)


def _homography_inliers(pair: PairMatches, error_px: float, options: VerifyOptions) -> int:
    _, report = poselib.estimate_homography(
        pair.points_i.astype(np.float64),
        pair.points_j.astype(np.float64),
        {"max_reproj_error": error_px, **_sampling(options, HOMOGRAPHY_SAMPLES)},
        {},
    )
    return int(np.sum(report["inliers"]))
