"""Small whole files of every format, to be damaged."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent / "cli"))
from small_result import write_small_result

from proba.api import dense_folder
from proba.dense.dense_depth import DenseOptions
from proba.io.reconstruction_folder import load_reconstruction
from proba.matches import ImageInfo, Matches

MAX_IMAGES = 2147483647
DENSE = DenseOptions(max_side_px=64)
"""The dense depth of `write_dense_result`."""

__all__ = ["DENSE", "npz_arrays", "small_matches", "write_database", "write_dense_result", "write_small_result"]


def small_matches(n_images: int = 3, n_matches: int = 12) -> Matches:
    """A few images that all see each other."""
    rng = np.random.default_rng(0)
    images = [
        ImageInfo(name=f"photos/{k}.jpg", width=640, height=480, camera_key="one", focal_px=500.0 if k else None)
        for k in range(n_images)
    ]
    matches = Matches(images)
    for i in range(n_images):
        for j in range(i + 1, n_images):
            points = rng.uniform(10, 470, (2, n_matches, 2)).astype(np.float32)
            matches.add(i, j, points[0], points[1], rng.uniform(size=n_matches).astype(np.float32))
    return matches


def npz_arrays(matches: Matches) -> dict[str, np.ndarray]:
    """The arrays of the npz layout."""
    pairs = list(matches.pairs.items())
    return {
        "names": np.array([image.name for image in matches.images]),
        "sizes": np.array([[image.width, image.height] for image in matches.images]),
        "camera_keys": np.array([image.camera_key for image in matches.images]),
        "focal_px": np.array([np.nan if image.focal_px is None else image.focal_px for image in matches.images]),
        "pairs": np.array([pair for pair, _ in pairs]),
        "counts": np.array([len(found.scores) for _, found in pairs]),
        "points_i": np.concatenate([found.points_i for _, found in pairs]),
        "points_j": np.concatenate([found.points_j for _, found in pairs]),
        "scores": np.concatenate([found.scores for _, found in pairs]),
    }


def write_database(path: Path, matches: Matches) -> None:
    """A COLMAP database with the tables that matter."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "CREATE TABLE cameras (camera_id INTEGER PRIMARY KEY, model INTEGER, width INTEGER, height INTEGER,"
            " params BLOB, prior_focal_length INTEGER);"
            "CREATE TABLE images (image_id INTEGER PRIMARY KEY, name TEXT, camera_id INTEGER);"
            "CREATE TABLE keypoints (image_id INTEGER PRIMARY KEY, rows INTEGER, cols INTEGER, data BLOB);"
            "CREATE TABLE matches (pair_id INTEGER PRIMARY KEY, rows INTEGER, cols INTEGER, data BLOB);"
            "CREATE TABLE two_view_geometries (pair_id INTEGER PRIMARY KEY, rows INTEGER, cols INTEGER, data BLOB);"
        )
        points: list[list[np.ndarray]] = [[] for _ in matches.images]
        for n, ((i, j), pair) in enumerate(matches.pairs.items()):
            first = [sum(map(len, points[image])) for image in (i, j)]
            points[i].append(pair.points_i)
            points[j].append(pair.points_j)
            index = (np.arange(len(pair.scores))[:, None] + first).astype(np.uint32)  # [M, 2]
            row = ((i + 1) * MAX_IMAGES + j + 1, len(index), 2, index.tobytes())
            database.execute("INSERT INTO two_view_geometries VALUES (?, ?, ?, ?)", row)
            if n == 0:
                database.execute("INSERT INTO matches VALUES (?, ?, ?, ?)", row)
        for k, image in enumerate(matches.images):
            params = np.array([500.0, 320.0, 240.0]).tobytes()
            camera = (k + 1, image.width, image.height, params)
            database.execute("INSERT INTO cameras VALUES (?, 0, ?, ?, ?, 1)", camera)
            database.execute("INSERT INTO images VALUES (?, ?, ?)", (k + 1, image.name, k + 1))
            found = np.concatenate(points[k]).astype(np.float32)
            database.execute("INSERT INTO keypoints VALUES (?, ?, 2, ?)", (k + 1, len(found), found.tobytes()))
        database.commit()


def write_dense_result(folder: Path) -> Path:
    """A result with tiny photos of noise, and dense depth with a few made-up places."""
    write_small_result(folder, history=False)
    rng = np.random.default_rng(2)
    for name in load_reconstruction(folder)[0].image_names:
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (48, 64, 3), np.uint8)).save(path)
    (folder / "report.json").write_text(json.dumps({"image_folder": "images", "components": [{"pose_std": {}}]}))
    dense_folder(folder, options=DENSE)
    return folder
