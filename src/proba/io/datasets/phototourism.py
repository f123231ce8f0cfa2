"""Internet photos of the Image Matching Challenge (phototourism, 2020 and 2021)."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from proba.io.datasets.layout import PHOTO_SUFFIXES, Layout, pinhole, sizes_px
from proba.io.ground_truth import GroundTruth, rigid

PREFIX = "calibration_"


def _calibrations(folder: Path) -> list[Path]:
    return sorted((folder / "calibration").glob(f"{PREFIX}*.h5"))


def _photo(folder: Path, calibration: Path) -> Path | None:
    stem = calibration.stem.removeprefix(PREFIX)
    found = ((folder / "images" / f"{stem}{suffix}") for suffix in (*PHOTO_SUFFIXES, ".JPG"))
    return next((path for path in found if path.is_file()), None)


def _read(folder: Path) -> GroundTruth:
    """The photos that have a calibration."""
    pairs = [(file, photo) for file in _calibrations(folder) if (photo := _photo(folder, file)) is not None]
    if not pairs:
        raise ValueError("no photo in images/ has a calibration")
    matrices: dict[str, list[np.ndarray]] = {"K": [], "R": [], "T": []}
    for file, _ in pairs:
        with h5py.File(file, "r") as content:
            for key, values in matrices.items():
                values.append(np.asarray(content[key][()], np.float64))
    width, height = sizes_px([photo for _, photo in pairs])
    return GroundTruth(
        names=[photo.name for _, photo in pairs],
        cam_from_world=rigid(np.array(matrices["R"]).reshape(-1, 3, 3), np.array(matrices["T"]).reshape(-1, 3)),
        intrinsics=pinhole(np.array(matrices["K"]).reshape(-1, 3, 3), pixel_centre=0.5),  # COLMAP's
        width=width,
        height=height,
    )


PHOTOTOURISM = Layout(
    name="imc",
    title="Image Matching Challenge, phototourism",
    source="https://www.cs.ubc.ca/research/image-matching-challenge/2021/data/",
    licence="photos from Flickr under their own licences (YFCC100M); for research",
    tree="""reichstag/set_100/images/05461164_9050854768.jpg ...
reichstag/set_100/calibration/calibration_05461164_9050854768.h5 ...""",
    recognises=lambda folder: (folder / "images").is_dir() and bool(_calibrations(folder)),
    photos=lambda folder: folder / "images",
    read=_read,
    mixed=True,
    scene_name=lambda folder: f"{folder.parent.name}_{folder.name}" if folder.name.startswith("set_") else folder.name,
)
