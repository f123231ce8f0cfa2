"""COLMAP (through pycolmap) as the baseline: SIFT, exhaustive matching, incremental or global mapping."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Literal

import pycolmap

from proba.io.colmap import read_colmap
from proba.reconstruction import Reconstruction

START_FOCAL = 1.2
"""Start focal in units of the longest side, not flagged as known: intrinsics are unknown to both methods."""


def run_colmap(
    images: Path,
    *,
    mapper: Literal["incremental", "global"] = "incremental",
    camera_model: str = "SIMPLE_PINHOLE",
    shared: bool = True,
    threads: int = 2,
    seed: int = 0,
) -> tuple[list[Reconstruction], dict[str, float]]:
    """Models of a folder of photos, largest first, and seconds by stage."""
    pycolmap.set_random_seed(seed)
    seconds = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        database = folder / "database.db"
        reader = pycolmap.ImageReaderOptions(camera_model=camera_model, default_focal_length_factor=START_FOCAL)
        mode = pycolmap.CameraMode.SINGLE if shared else pycolmap.CameraMode.PER_IMAGE
        begin = time.perf_counter()
        extraction = pycolmap.FeatureExtractionOptions(num_threads=threads)
        pycolmap.extract_features(
            database, images, camera_mode=mode, reader_options=reader, extraction_options=extraction
        )
        seconds["extract"] = time.perf_counter() - begin
        begin = time.perf_counter()
        pycolmap.match_exhaustive(database, matching_options=pycolmap.FeatureMatchingOptions(num_threads=threads))
        seconds["match"] = time.perf_counter() - begin
        begin = time.perf_counter()
        (folder / "models").mkdir()
        if mapper == "incremental":
            models = pycolmap.incremental_mapping(database, images, folder / "models")
        else:
            models = pycolmap.global_mapping(database, images, folder / "models")
        seconds["map"] = time.perf_counter() - begin
        results = []
        for index, model in sorted(models.items(), key=lambda item: -item[1].num_reg_images()):
            path = folder / f"out{index}"
            path.mkdir()
            model.write(path)
            results.append(read_colmap(path))
    return results, seconds
