"""What every reader of matches checks, whatever the format, before anything else sees a file's content.

All of these raise ValueError with what is wrong; the reader adds which file it was and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proba.io.names import check_name
from proba.io.reading import MAX_SIDE_PX, real_number, whole_number
from proba.matches import ImageInfo, PairMatches

MAX_OUTSIDE = 1.0
"""Matches may lie outside their image by this share of its longest side; distortion and refinement move some there."""


def checked_image(
    *, name: object, width: object, height: object, camera_key: object = "", focal_px: object = None
) -> ImageInfo:
    """An image as a file describes it."""
    name = check_name(name)
    sides = [whole_number(side, f"a side of {name}", 1, MAX_SIDE_PX) for side in (width, height)]
    if not isinstance(camera_key, str):
        raise ValueError(f"the camera of {name} is {camera_key!r}"[:200])
    if focal_px is not None:
        focal_px = real_number(focal_px, f"the focal length of {name}")
        if not 0 < focal_px < 1e9:
            raise ValueError(f"the focal length of {name} is {focal_px:g} pixels")
    return ImageInfo(name=name, width=sides[0], height=sides[1], camera_key=camera_key, focal_px=focal_px)


def check_distinct(images: Sequence[ImageInfo]) -> None:
    """Two images of one name could not be told apart later."""
    seen = set()
    for image in images:
        if image.name in seen:
            raise ValueError(f"two images are called {image.name!r}")
        seen.add(image.name)


def checked_matches(points_i: np.ndarray, points_j: np.ndarray, scores: np.ndarray | None, what: str) -> PairMatches:
    """Points [M, 2] and scores [M] as float32; they need not be finite yet."""
    points_i, points_j = numbers(points_i, what), numbers(points_j, what)
    if not (points_i.ndim == 2 and points_i.shape[1] == 2 and points_i.shape == points_j.shape):
        raise ValueError(f"{what} has points of shapes {points_i.shape} and {points_j.shape}")
    scores = np.ones(len(points_i), np.float32) if scores is None else numbers(scores, what)
    if scores.shape != points_i.shape[:1]:
        raise ValueError(f"{what} has {len(points_i)} matches and scores of shape {scores.shape}")
    return PairMatches(points_i, points_j, scores)


def usable(pair: PairMatches, image_i: ImageInfo, image_j: ImageInfo) -> PairMatches:
    """Only the matches that are finite and not far outside their images."""
    good = np.isfinite(pair.scores)  # [M]
    for points, image in ((pair.points_i, image_i), (pair.points_j, image_j)):
        slack = MAX_OUTSIDE * max(image.width, image.height)
        with np.errstate(invalid="ignore"):  # NaN compares as False, which is what is wanted
            good &= ((points >= -slack) & (points <= np.array([image.width, image.height]) + slack)).all(axis=1)
    return pair if good.all() else PairMatches(*(column[good] for column in pair))


def numbers(values: np.ndarray, what: str) -> np.ndarray:  # float32
    """Real numbers as float32; text, dates, complex numbers and records are none."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{what} holds {array.dtype} where it should hold numbers")
    with np.errstate(over="ignore"):  # infinities are sorted out with the others
        return array.astype(np.float32)
