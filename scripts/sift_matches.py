"""Verified SIFT matches of a folder of images, as a matches file: a baseline that needs only OpenCV.

python scripts/sift_matches.py IMAGES --out matches.h5
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from proba.errors import InputError, ProbaError
from proba.io.matches_h5 import IMAGE_SUFFIXES, save_matches
from proba.matches import ImageInfo, Matches

FEATURES = 8000
CONTRAST_THRESHOLD = 0.01  # a quarter of OpenCV's default: plain walls keep some features
RATIO = 0.85
EPIPOLAR_PX = 1.5
MIN_INLIERS = 15  # fewer agree on a fundamental matrix by chance


def extract(path: Path, features: int) -> tuple[ImageInfo, np.ndarray, np.ndarray]:
    """Size, keypoints [K, 2] (first pixel centre at (0.5, 0.5)) and root-SIFT descriptors [K, 128]."""
    image = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION)
    if image is None:
        raise InputError(f"{path} cannot be read as an image. Remove it from the folder.")
    sift = cv2.SIFT_create(nfeatures=features, contrastThreshold=CONTRAST_THRESHOLD)
    keypoints, descriptors = sift.detectAndCompute(image, None)
    info = ImageInfo(name=path.name, width=image.shape[1], height=image.shape[0])
    if descriptors is None:
        return info, np.zeros((0, 2), np.float32), np.zeros((0, 128), np.float32)
    points = cv2.KeyPoint_convert(keypoints) + np.float32(0.5)  # OpenCV counts from the pixel centre
    return (
        info,
        points,
        np.sqrt(descriptors / (descriptors.sum(axis=1, keepdims=True) + 1e-9)).astype(np.float32),
    )


def mutual_nearest(one: np.ndarray, other: np.ndarray, ratio: float) -> np.ndarray:  # [M, 2] int
    """Pairs of unit descriptors [K, 128] that are each other's nearest, and clearly nearer than the second."""
    if len(one) < 2 or len(other) < 2:
        return np.zeros((0, 2), int)
    similarity = one @ other.T  # [K, L]
    forward, backward = similarity.argmax(axis=1), similarity.argmax(axis=0)
    k = np.flatnonzero(backward[forward] == np.arange(len(one)))
    best = similarity[k, forward[k]]
    similarity[k, forward[k]] = -1
    second = similarity[k].max(axis=1)
    distance, next_distance = (np.sqrt(np.maximum(2 - 2 * s, 0)) for s in (best, second))
    keep = distance < ratio * next_distance
    return np.stack([k[keep], forward[k[keep]]], axis=1)


def verify(points_i: np.ndarray, points_j: np.ndarray) -> np.ndarray:  # [M] bool
    """Which matches agree with one fundamental matrix."""
    if len(points_i) < MIN_INLIERS:
        return np.zeros(len(points_i), bool)
    cv2.setRNGSeed(0)
    _, mask = cv2.findFundamentalMat(points_i, points_j, cv2.USAC_MAGSAC, EPIPOLAR_PX, 0.9999, 10000)
    return np.zeros(len(points_i), bool) if mask is None else mask.ravel().astype(bool)


def match_folder(folder: Path, features: int) -> Matches:
    """All pairs of a folder."""
    paths = sorted(p for p in folder.glob("*") if p.suffix.lower() in IMAGE_SUFFIXES)
    if len(paths) < 2:
        raise InputError(f"{folder} has {len(paths)} images; at least two are needed. Check the path.")
    images, points, descriptors = zip(*(extract(p, features) for p in tqdm(paths, "features")), strict=True)
    matches = Matches(images=list(images))
    for i, j in tqdm(list(itertools.combinations(range(len(paths)), 2)), "pairs"):
        index = mutual_nearest(descriptors[i], descriptors[j], RATIO)
        points_i, points_j = points[i][index[:, 0]], points[j][index[:, 1]]
        good = verify(points_i, points_j)
        # A keypoint with two orientations has two descriptors, and may be matched by both.
        both = np.unique(np.hstack([points_i[good], points_j[good]]), axis=0)  # [M, 4]
        if len(both) >= MIN_INLIERS:
            matches.add(i, j, both[:, :2], both[:, 2:])
    return matches


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("images", type=Path, help="folder of images")
    parser.add_argument("--out", type=Path, required=True, help="h5 file to write")
    parser.add_argument("--features", type=int, default=FEATURES, help="at most this many an image")
    arguments = parser.parse_args()
    try:
        matches = match_folder(arguments.images, arguments.features)
    except ProbaError as error:
        print(error)
        return 2
    save_matches(arguments.out, matches)
    total = sum(len(pair.points_i) for pair in matches.pairs.values())
    print(f"{arguments.out}: {len(matches.images)} images, {len(matches.pairs)} pairs, {total} matches")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
