"""COLMAP (through pycolmap) as the baseline: SIFT, all pairs or listed ones, incremental or global mapping."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pycolmap

from proba.io.atomic import atomic_write_text
from proba.io.colmap import read_colmap
from proba.io.reading import read_json, reading
from proba.reconstruction import Reconstruction

START_FOCAL = 1.2
"""Start focal in units of the longest side, not flagged as known: intrinsics are unknown to both methods."""
Mapper = Literal["incremental", "global", "global_novgcal"]
MAPPERS: tuple[Mapper, ...] = ("incremental", "global", "global_novgcal")
"""The global mapper (formerly GLOMAP) with focal lengths from view-graph calibration, and without that."""

pycolmap.logging.minloglevel = int(pycolmap.logging.WARNING)  # its progress would bury the rows of a benchmark


def colmap_database(
    images: Path,
    database: Path,
    *,
    camera_model: str,
    shared: bool | None,
    threads: int,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> dict[str, float]:
    """Features and matches of a folder of photos (all pairs, or those listed by name); seconds by stage.

    The photos share a camera, or have one each; None: COLMAP finds out.
    """
    reader = pycolmap.ImageReaderOptions(camera_model=camera_model, default_focal_length_factor=START_FOCAL)
    modes = {True: pycolmap.CameraMode.SINGLE, False: pycolmap.CameraMode.PER_IMAGE, None: pycolmap.CameraMode.AUTO}
    begin = time.perf_counter()
    extraction = pycolmap.FeatureExtractionOptions(num_threads=threads)
    pycolmap.extract_features(
        database, images, camera_mode=modes[shared], reader_options=reader, extraction_options=extraction
    )
    extracted = time.perf_counter()
    matching = pycolmap.FeatureMatchingOptions(num_threads=threads)
    if pairs is None:
        pycolmap.match_exhaustive(database, matching_options=matching)
    else:
        with tempfile.TemporaryDirectory() as name:
            listed = Path(name) / "pairs.txt"
            listed.write_text("".join(f"{one} {other}\n" for one, other in pairs), encoding="utf-8")
            chosen = pycolmap.ImportedPairingOptions(match_list_path=listed)
            pycolmap.match_image_pairs(database, matching_options=matching, pairing_options=chosen)
    return {"extract": extracted - begin, "match": time.perf_counter() - extracted}


def cached_database(
    name: str,
    images: Path,
    cache: Path,
    threads: int,
    *,
    camera_model: str,
    shared: bool | None,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> tuple[Path, dict[str, float]]:
    """The database of a folder of photos, made once and kept in the cache, and the seconds that took."""
    database, timing = (cache / f"{name}.{kind}" for kind in ("db", "db.json"))
    if not database.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = database.with_suffix(".partial.db")
        partial.unlink(missing_ok=True)
        seconds = colmap_database(
            images, partial, camera_model=camera_model, shared=shared, threads=threads, pairs=pairs
        )
        atomic_write_text(timing, json.dumps(seconds))
        partial.rename(database)
    with reading(timing, "a file of times", f"Remove it and {database}."):
        return database, read_json(timing)


def map_colmap(
    images: Path, database: Path, mapper: Mapper, *, seed: int = 0
) -> tuple[list[Reconstruction], dict[str, float]]:
    """Models from a database, largest first, and seconds."""
    pycolmap.set_random_seed(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = Path(shutil.copy(database, folder / "database.db"))  # calibration writes into it
        (folder / "models").mkdir()
        begin = time.perf_counter()
        if mapper == "incremental":
            models = pycolmap.incremental_mapping(own, images, folder / "models")
        else:
            if mapper == "global":
                pycolmap.calibrate_view_graph(own)
            models = pycolmap.global_mapping(own, images, folder / "models")
        seconds = {"map": time.perf_counter() - begin}
        results = []
        for index, model in sorted(models.items(), key=lambda item: -item[1].num_reg_images()):
            path = folder / f"out{index}"
            path.mkdir()
            model.write(path)
            results.append(read_colmap(path))
    return results, seconds
