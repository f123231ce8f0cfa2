"""Matches made by other programs: COLMAP's database and hloc's sparse files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

from proba.errors import InputError
from proba.io.matches_h5 import HALF_PIXEL, h5_name, load_matches
from proba.matches import ImageInfo, Matches

MAX_IMAGES = 2147483647  # COLMAP's pair_id is image_id1 * this + image_id2
SQLITE_MAGIC = b"SQLite format 3\0"


def import_matches(path: Path, *, keypoints: Path | None = None, images: Path | None = None) -> Matches:
    """Read a COLMAP database, an hloc h5 (dense, or sparse with the file of its keypoints), or an npz."""
    if not path.is_file():
        raise InputError(f"There is no file {path}. Check the path.")
    with open(path, "rb") as file:
        is_database = file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    if is_database:
        return read_colmap_database(path)
    return read_hloc_sparse(path, keypoints) if keypoints else load_matches(path, images=images)


def read_colmap_database(path: Path) -> Matches:
    """Verified matches (two-view geometries) of a COLMAP database; raw matches if nothing was verified."""
    try:
        database = sqlite3.connect(f"file:{path.resolve()}?mode=ro", uri=True)
        try:
            return _read_database(database, path)
        finally:
            database.close()
    except (sqlite3.DatabaseError, ValueError, IndexError) as error:
        raise InputError(f"{path} is not a COLMAP database that can be read ({error}). Check the file.") from error


def _read_database(database: sqlite3.Connection, path: Path) -> Matches:
    rows = database.execute(
        "SELECT image_id, name, camera_id, width, height, params, prior_focal_length "
        "FROM images JOIN cameras USING (camera_id) ORDER BY name"
    ).fetchall()
    index = {row[0]: k for k, row in enumerate(rows)}
    matches = Matches(
        [
            ImageInfo(
                name=name,
                width=width,
                height=height,
                camera_key=f"camera {camera}",
                focal_px=float(np.frombuffer(params, np.float64)[0]) if known else None,
            )
            for _, name, camera, width, height, params, known in rows
        ]
    )
    points = {
        image: np.frombuffer(data, np.float32).reshape(count, columns)[:, :2]  # [K, 2], COLMAP's pixels are ours
        for image, count, columns, data in database.execute("SELECT image_id, rows, cols, data FROM keypoints")
        if data
    }
    for table in ("two_view_geometries", "matches"):
        for pair_id, count, data in database.execute(f"SELECT pair_id, rows, data FROM {table} WHERE rows > 0"):
            one, other = divmod(pair_id, MAX_IMAGES)
            chosen = np.frombuffer(data, np.uint32).reshape(count, 2)  # [M, 2]
            matches.add(index[one], index[other], points[one][chosen[:, 0]], points[other][chosen[:, 1]])
        if matches.pairs:
            return matches
    raise InputError(f"{path} holds no matches. Run COLMAP's matcher on it first.")


def read_hloc_sparse(path: Path, keypoints: Path) -> Matches:
    """hloc's sparse matches (`matches0`) with the keypoints of its feature file."""
    if not keypoints.is_file():
        raise InputError(f"There is no file {keypoints}. Check --keypoints.")
    try:
        with h5py.File(path, "r") as file, h5py.File(keypoints, "r") as features:
            images, points = _hloc_features(features, keypoints)
            index = {h5_name(image.name): k for k, image in enumerate(images)}
            matches = Matches(images)
            for one, group in file.items():
                for other, pair in group.items():
                    target = np.asarray(pair["matches0"], np.int64)  # [K], -1 where there is none
                    chosen = np.flatnonzero(target >= 0)
                    i, j = index[one], index[other]
                    scores = np.asarray(pair["matching_scores0"])[chosen] if "matching_scores0" in pair else None
                    matches.add(i, j, points[i][chosen], points[j][target[chosen]], scores)
    except (OSError, KeyError, IndexError, AttributeError) as error:
        raise InputError(
            f"{path} and {keypoints} are not hloc's sparse matches and their keypoints ({error}). Check both files."
        ) from error
    return matches


def _hloc_features(features: h5py.File, path: Path) -> tuple[list[ImageInfo], list[np.ndarray]]:
    images, points = [], []
    for name, group in _groups_with_keypoints(features):
        if "image_size" not in group:
            raise InputError(f"{path} does not tell image sizes. Extract the features again with a newer hloc.")
        width, height = (int(side) for side in group["image_size"][:])
        images.append(ImageInfo(name=name, width=width, height=height))
        points.append(np.asarray(group["keypoints"], np.float32)[:, :2] + HALF_PIXEL)  # [K, 2]
    return images, points


def _groups_with_keypoints(group: h5py.Group, prefix: str = "") -> Iterator[tuple[str, h5py.Group]]:
    for name, item in group.items():
        if isinstance(item, h5py.Group):
            if "keypoints" in item:
                yield prefix + name, item
            else:
                yield from _groups_with_keypoints(item, f"{prefix}{name}/")
