"""SIFT: no weights, sub-pixel keypoints that repeat from pair to pair."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from proba.io.images import Pixels
from proba.matches import PairMatches
from proba.matching.matcher import Features
from proba.matching.nearest import codes, distance_ratio, mutual_nearest
from proba.matching.verify import VerifyOptions


@dataclass(frozen=True, kw_only=True)
class SiftOptions:
    """Settings of SIFT."""

    max_side_px: int = 1600
    """Larger photos are reduced; positions stay sub-pixel and descriptors lose their noisiest octave."""
    features: int = 8000
    """At most this many in an image, strongest first."""
    contrast_threshold: float = 0.01
    """A quarter of OpenCV's default: plain walls keep some features."""
    ratio: float = 0.86
    """The nearest descriptor must be this much nearer than the second; verification removes what slips through."""


SELECTIVE = SiftOptions(ratio=0.8)
SELECTIVE_BOUNDS = VerifyOptions(min_share=0.3)
"""For pairs that nothing else joins to the rest. Where views differ much, most of what passes the looser ratio is
wrong, and the right ones are too small a share."""


class Sift:
    """OpenCV's detector; root-SIFT descriptors; mutual nearest neighbours."""

    keep_features = True
    preview = 2000  # largest first: they are the most repeatable

    def __init__(self, options: SiftOptions | None = None, bounds: VerifyOptions | None = None):
        self.options = options or SiftOptions()
        self.bounds = bounds or VerifyOptions()
        self.max_side_px = self.options.max_side_px

    def settings(self) -> dict[str, Any]:
        return {"matcher": "sift", "detector": "opencv", **asdict(self.options)}

    def extract(self, pixels: Pixels) -> Features:
        points, descriptors = _detect(pixels.grey, self.options)  # [K, 2] center0, [K, 128]
        points = pixels.to_original(points)
        seen = pixels.visible(points)  # [K]
        return {"points": points[seen], "descriptors": _root(descriptors[seen])}

    def match(self, one: Features, other: Features) -> PairMatches:
        near = mutual_nearest(one["descriptors"], other["descriptors"])
        ratio = distance_ratio(near.best, near.second)  # [M]
        keep = ratio < self.options.ratio
        points_i = one["points"][near.rows[keep]]  # [M, 2]
        points_j = other["points"][near.columns[keep]]  # [M, 2]
        # A keypoint with two orientations has two descriptors, and may be matched by both.
        _, first = np.unique(np.hstack([points_i, points_j]), axis=0, return_index=True)
        return PairMatches(points_i[first], points_j[first], 1 - ratio[keep][first])


def _detect(grey: np.ndarray, options: SiftOptions) -> tuple[np.ndarray, np.ndarray]:
    import cv2

    # Without precise upscaling every keypoint is a quarter of a pixel too far right and down.
    sift = cv2.SIFT_create(  # type: ignore[attr-defined]
        nfeatures=options.features, contrastThreshold=options.contrast_threshold, enable_precise_upscale=True
    )
    keypoints, descriptors = sift.detectAndCompute(grey, None)
    if descriptors is None:
        return np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32)
    # OpenCV counts from the centre of the first pixel.
    places = cv2.KeyPoint_convert(keypoints)  # type: ignore[attr-defined]
    largest = np.argsort([-keypoint.size for keypoint in keypoints], kind="stable")[: options.features]
    return places[largest], descriptors[largest]


def _root(descriptors: np.ndarray) -> np.ndarray:  # [K, 128] uint8
    """Root-SIFT (Hellinger kernel): unit vectors."""
    return codes(np.sqrt(descriptors / (descriptors.sum(axis=1, keepdims=True) + np.float32(1e-9))))
