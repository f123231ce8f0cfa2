"""COLMAP fed with the dense matches that ProBA gets: the baseline of the paper (COLMAP + DKM, COLMAP + RoMa).

COLMAP needs tracks: keypoints that repeat from pair to pair. As in detector-free Structure-from-Motion (He et al., CVPR
2024) all matched points of an image within a cell become one keypoint, and the pairs are verified again with these.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pycolmap

from proba.bench.colmap import START_FOCAL, map_colmap
from proba.bench.photo_sets import PhotoSet
from proba.evaluation import evaluate
from proba.geometry.camera import UNIT_SIDE_PX
from proba.matches import ImageInfo, Matches

CELL_PX = 4.0
"""Side of a cell in an image of 1024 px."""


def run_colmap_dense(
    photos: PhotoSet, seed: int, mapper: Any, matches: Matches, cache: Path, *, camera_model: str, shared: bool
) -> dict:
    """One mapping of dense matches, as a row like those of COLMAP with SIFT."""
    images = photos.images(cache)
    with tempfile.TemporaryDirectory() as folder:
        begin, database = time.perf_counter(), Path(folder) / "dense.db"
        dense_database(matches, images, database, camera_model=camera_model, shared=shared)
        before = {"tracks": time.perf_counter() - begin}
        models, seconds = map_colmap(images, database, mapper, seed=seed)
    return {**evaluate(models, photos.truth()), "seconds": {**before, **seconds}}


def dense_database(
    matches: Matches, images: Path, database: Path, *, camera_model: str, shared: bool, cell_px: float = CELL_PX
) -> None:
    """Write keypoints, matches and verified pairs of dense matches to a new COLMAP database."""
    mode = pycolmap.CameraMode.SINGLE if shared else pycolmap.CameraMode.PER_IMAGE
    reader = pycolmap.ImageReaderOptions(camera_model=camera_model, default_focal_length_factor=START_FOCAL)
    names = [image.name for image in matches.images]
    pycolmap.Database.open(database).close()  # makes it
    pycolmap.import_images(database, images, camera_mode=mode, image_names=names, options=reader)
    keypoints, pairs = quantised(matches, cell_px)
    with pycolmap.Database.open(database) as file:
        number = {image.name: image.image_id for image in file.read_all_images()}
        for name, points in zip(names, keypoints, strict=True):
            file.write_keypoints(number[name], points)
        for (i, j), index in pairs.items():
            file.write_matches(number[names[i]], number[names[j]], index)
    listed = database.with_suffix(".pairs.txt")
    listed.write_text("".join(f"{names[i]} {names[j]}\n" for i, j in pairs), "utf-8")
    pycolmap.verify_matches(database, listed)


def quantised(matches: Matches, cell_px: float = CELL_PX) -> tuple[list[np.ndarray], dict[tuple[int, int], np.ndarray]]:
    """Keypoints [K, 2] of every image, and for each pair the numbers [M, 2] of its keypoints that match.

    A keypoint is the mean, weighted by scores, of all matched points within its cell. Of several matches of a keypoint
    in one pair the one with the best score stays.
    """
    cells: list[list[np.ndarray]] = [[] for _ in matches.images]  # of each image, the cells [M] of its pairs in turn
    points: list[list[np.ndarray]] = [[] for _ in matches.images]
    for (i, j), pair in matches.pairs.items():
        for image, places in ((i, pair.points_i), (j, pair.points_j)):
            cells[image].append(_cells(places, matches.images[image], cell_px))
            points[image].append(np.column_stack([places, pair.scores]))
    merged = [_merge(*both) for both in zip(cells, points, strict=True)]
    used = [0] * len(merged)
    pairs = {}
    for (i, j), pair in matches.pairs.items():
        ends = []
        for image in (i, j):
            ends.append(merged[image][1][used[image] : used[image] + len(pair.scores)])  # [M]
            used[image] += len(pair.scores)
        pairs[i, j] = _one_to_one(np.column_stack(ends), pair.scores)
    return [keypoints for keypoints, _ in merged], pairs


def _cells(points: np.ndarray, image: ImageInfo, cell_px: float) -> np.ndarray:  # [M]
    side_px = cell_px * max(1.0, 2 * image.half_side_px / UNIT_SIDE_PX)
    column, row = np.floor(points / side_px).astype(np.int64).T
    return row * int(image.width / side_px + 2) + column


def _merge(cells: Sequence[np.ndarray], points: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Keypoints [K, 2] float32, and the number [M] of the keypoint that each point, with its score, belongs to."""
    if not cells:
        return np.zeros((0, 2), np.float32), np.zeros(0, np.int64)
    _, number = np.unique(np.concatenate(cells), return_inverse=True)  # [M]
    every = np.concatenate(points).astype(np.float64)  # [M, 3]
    weight = every[:, 2].clip(1e-6)  # [M]
    total = np.bincount(number, weight)  # [K]
    means = [np.bincount(number, weight * every[:, axis]) / total for axis in (0, 1)]
    return np.stack(means, axis=1).astype(np.float32), number


def _one_to_one(ends: np.ndarray, scores: np.ndarray) -> np.ndarray:  # [K, 2] uint32
    """The matches [M, 2] of which each end occurs once, best scores first."""
    ends = ends[np.argsort(-scores, kind="stable")]
    for side in (0, 1):
        ends = ends[np.sort(np.unique(ends[:, side], return_index=True)[1])]
    return ends.astype(np.uint32)
