"""A camera that stands still while its subject turns: the background matches in place, and says nothing of the subject.

On a turntable before a room there are two motions, and the room, which covers more of the picture, wins every pair: the
camera seems never to have moved. Matches that stay in place in most pairs give it away. They and their features are
left out then, so that only the subject remains. Photos that were all taken from one place look the same at first, but
nothing is left of them; there the matches stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from proba.geometry.camera import UNIT_SIDE_PX
from proba.matches import ImageInfo, PairMatches, symmetric_counts
from proba.matching.matcher import Features
from proba.matching.pairs import Pair


@dataclass(frozen=True, kw_only=True)
class BackgroundOptions:
    """When matches are those of a background that stands still with the camera."""

    enabled: bool = True
    """Off: whatever moves least wins, as in other programs."""
    in_place_px: float = 1.5
    """A match that moves by less stays in place, pixels of a 1024 pixel image; as exact as a keypoint is."""
    min_matches: int = 15
    """A pair is held by the background if this many of its verified matches stay in place ..."""
    min_share: float = 0.5
    """... and this share of them."""
    pairs_share: float = 0.5
    """There is such a background where it holds this share of the verified pairs: distant ones too, not only photos
    that are nearly the same."""
    min_joined: float = 0.5
    """What moves is the subject if it joins this share of the photos; otherwise nothing is left out."""


def in_place(pair: PairMatches, one: ImageInfo, other: ImageInfo, options: BackgroundOptions) -> np.ndarray:  # [M] bool
    """Which matches stay where they are; none in photos of different sizes."""
    if (one.width, one.height) != (other.width, other.height):
        return np.zeros(len(pair.scores), bool)
    return np.hypot(*(pair.points_j - pair.points_i).T) < _bound_px(one, options)


def holds_pair(still: np.ndarray, options: BackgroundOptions) -> bool:
    """Whether the background holds a pair of whose matches `still` [M] bool stay in place."""
    return bool(still.sum() >= max(options.min_matches, options.min_share * len(still)))


def background_points(
    pairs: Mapping[Pair, PairMatches], images: list[ImageInfo], options: BackgroundOptions
) -> dict[int, cKDTree]:
    """Places of the background in each photo that has some."""
    found: dict[int, list[np.ndarray]] = {}
    for (i, j), pair in pairs.items():
        still = in_place(pair, images[i], images[j], options)  # [M]
        if still.any():
            found.setdefault(i, []).append(pair.points_i[still])
            found.setdefault(j, []).append(pair.points_j[still])
    return {image: cKDTree(np.concatenate(points)) for image, points in found.items()}


def without_background(
    features: Features, places: cKDTree | None, image: ImageInfo, options: BackgroundOptions
) -> Features:
    """The features of a photo that are not at places of the background."""
    if places is None:
        return features
    points = features["points"]  # [K, 2]
    distance, _ = places.query(points, distance_upper_bound=_bound_px(image, options))
    free = np.isinf(distance)  # [K]
    return {name: values[free] if len(values) == len(points) else values for name, values in features.items()}


def joins_subject(counts: Mapping[Pair, int], n_images: int, options: BackgroundOptions) -> bool:
    """Whether the pairs that are left join enough of the photos to be those of a subject."""
    label = connected_components(symmetric_counts(counts, n_images), directed=False)[1]  # [N]
    return bool(np.bincount(label).max() >= max(3.0, options.min_joined * n_images))


def _bound_px(image: ImageInfo, options: BackgroundOptions) -> float:
    return options.in_place_px * max(1.0, 2 * image.half_side_px / UNIT_SIDE_PX)
