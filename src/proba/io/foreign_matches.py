"""Matches made by other programs: COLMAP's database and hloc's sparse files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np

from proba.errors import InputError
from proba.io.matches_checks import check_distinct, checked_image, checked_matches, numbers, usable
from proba.io.matches_h5 import HALF_PIXEL, h5_name, load_matches, own_items, read_dataset
from proba.io.reading import Allowance, reading, whole_number, whole_numbers
from proba.matches import ImageInfo, Matches, PairMatches

MAX_IMAGES = 2147483647  # COLMAP's pair_id is image_id1 * this + image_id2
MAX_FOLDERS = 32  # groups of a file may hold each other
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
    # A log beside it holds what COLMAP has not yet moved into the file; without one nothing may be made beside it.
    mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    with (
        reading(path, "a COLMAP database that can be read", "Check the file, or make it again with COLMAP."),
        closing(sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True)) as database,
    ):
        return _read_database(database, path)


def _read_database(database: sqlite3.Connection, path: Path) -> Matches:
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for name in ("cameras", "images", "keypoints", "two_view_geometries", "matches"):
        if name not in tables:  # a view of that name could compute for ever
            raise ValueError(f"it has no table {name}")
    images, index = _database_images(database)
    points = _database_keypoints(database)
    matches = Matches(images)
    for table in ("two_view_geometries", "matches"):
        for pair_id, count, data in database.execute(f"SELECT pair_id, rows, data FROM {table} WHERE rows > 0"):
            one, other = divmod(whole_number(pair_id, "pair_id", 0, 1 << 63), MAX_IMAGES)
            for image in (one, other):
                if image not in index or image not in points:
                    raise ValueError(f"it has matches of image {image}, but not that image or its keypoints")
            if one == other:
                raise ValueError(f"it has matches of image {one} with itself")
            chosen = _blob(data, np.uint32, count, 2, table)  # [M, 2]
            pair = checked_matches(points[one][chosen[:, 0]], points[other][chosen[:, 1]], None, table)
            i, j = index[one], index[other]
            matches.add(i, j, *usable(pair, images[i], images[j]))
        if matches.pairs:
            return matches
    raise InputError(f"{path} holds no matches. Run COLMAP's matcher on it first.")


def _database_images(database: sqlite3.Connection) -> tuple[list[ImageInfo], dict[int, int]]:
    """The images by name, and where each id is among them."""
    rows = database.execute(
        "SELECT image_id, name, camera_id, width, height, params, prior_focal_length "
        "FROM images JOIN cameras USING (camera_id) ORDER BY name"
    ).fetchall()
    images = [
        checked_image(
            name=name,
            width=width,
            height=height,
            camera_key=f"camera {camera}",
            focal_px=float(np.frombuffer(params, "<f8")[0]) if known else None,
        )
        for _, name, camera, width, height, params, known in rows
    ]
    check_distinct(images)
    return images, {row[0]: k for k, row in enumerate(rows)}


def _database_keypoints(database: sqlite3.Connection) -> dict[int, np.ndarray]:
    """Keypoints [K, 2] of each image id; COLMAP's pixels are ours."""
    rows = database.execute("SELECT image_id, rows, cols, data FROM keypoints")
    return {
        image: _blob(data, np.float32, count, whole_number(columns, "cols", 2, 64), "keypoints")[:, :2]
        for image, count, columns, data in rows
        if data
    }


def _blob(data: object, kind: type, count: object, columns: int, what: str) -> np.ndarray:  # [count, columns]
    if not isinstance(data, bytes):
        raise ValueError(f"{what} holds {type(data).__name__} where it should hold bytes")
    rows = whole_number(count, f"rows of {what}", 0, len(data))
    return np.frombuffer(data, kind).reshape(rows, columns)


def read_hloc_sparse(path: Path, keypoints: Path) -> Matches:
    """hloc's sparse matches (`matches0`) with the keypoints of its feature file."""
    if not keypoints.is_file():
        raise InputError(f"There is no file {keypoints}. Check --keypoints.")
    what = f"hloc's sparse matches with the keypoints of {keypoints}"
    with reading(path, what, "Check both files."), h5py.File(path) as file, h5py.File(keypoints) as features:
        allowance = Allowance(path)
        images, points = _hloc_features(features, keypoints)
        check_distinct(images)
        index = {h5_name(image.name): k for k, image in enumerate(images)}
        matches = Matches(images)
        for one, group in own_items(file):
            for other, pair in own_items(group):
                i, j = index[one], index[other]
                matches.add(i, j, *usable(_hloc_pair(pair, points[i], points[j], allowance), images[i], images[j]))
        return matches


def _hloc_pair(pair: h5py.Group, points_i: np.ndarray, points_j: np.ndarray, allowance: Allowance) -> PairMatches:
    stored = read_dataset(pair, "matches0", allowance).reshape(-1)
    target = whole_numbers(stored, "matches0", -1, len(points_j) - 1)  # [K], -1 where there is none
    chosen = np.flatnonzero(target >= 0)
    if len(target) > len(points_i):
        raise ValueError(f"{pair.name} has more entries than keypoints")
    scores = None
    if "matching_scores0" in pair:
        scores = read_dataset(pair, "matching_scores0", allowance)[chosen]
    return checked_matches(points_i[chosen], points_j[target[chosen]], scores, f"the pair {pair.name}")


def _hloc_features(features: h5py.File, path: Path) -> tuple[list[ImageInfo], list[np.ndarray]]:
    allowance = Allowance(path)
    images, points = [], []
    for name, group in _groups_with_keypoints(features):
        if "image_size" not in group:
            raise InputError(f"{path} does not tell image sizes. Extract the features again with a newer hloc.")
        width, height = read_dataset(group, "image_size", allowance).reshape(-1).tolist()
        images.append(checked_image(name=name, width=width, height=height))
        keypoints = numbers(read_dataset(group, "keypoints", allowance), f"{name}")
        if keypoints.ndim != 2 or keypoints.shape[1] < 2:
            raise ValueError(f"the keypoints of {name} have the shape {keypoints.shape}")
        points.append(keypoints[:, :2] + HALF_PIXEL)  # [K, 2]
    return images, points


def _groups_with_keypoints(group: h5py.Group, prefix: str = "") -> Iterator[tuple[str, h5py.Group]]:
    for name, item in own_items(group):
        if isinstance(item, h5py.Group):
            if "keypoints" in item:
                yield prefix + name, item
            elif prefix.count("/") < MAX_FOLDERS:
                yield from _groups_with_keypoints(item, f"{prefix}{name}/")
