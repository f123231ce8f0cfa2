"""Scenes that a robot has photographed: DTU and Middlebury."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from proba.io.datasets.layout import Layout, first_folder, photos_in, pinhole, sizes_px
from proba.io.ground_truth import GroundTruth, rigid
from proba.io.npz import read_npz
from proba.io.ply import read_ply

DTU_SITE = "https://roboimagedata.compute.dtu.dk/?page_id=36"
DTU_LICENCE = "for research; the site asks to cite Jensen et al. 2014 and Aanaes et al. 2016"
CAMERA_FILES = ("cameras.npz", "cameras_sphere.npz", "cameras_large.npz")
MILLIMETRE = 0.001


def _from_projections(projections: np.ndarray, photos: list[Path], points: np.ndarray | None) -> GroundTruth:
    """Cameras of projection matrices [N, 3, 4] in millimetres; first pixel centre at 0 (Matlab's toolbox, shifted)."""
    if len(projections) < len(photos):
        raise ValueError(f"there are {len(photos)} photos and {len(projections)} cameras")
    calibrations, poses = [], []
    for projection in projections[: len(photos)]:
        calibration, rotation, centre = cv2.decomposeProjectionMatrix(projection.astype(np.float64))[:3]
        calibrations.append(calibration)
        poses.append((rotation, -rotation @ (centre[:3, 0] / centre[3, 0])))
    rotation, translation = (np.array(part) for part in zip(*poses, strict=True))  # [N, 3, 3], [N, 3]
    width, height = sizes_px(photos)
    return GroundTruth(
        names=[path.name for path in photos],
        cam_from_world=rigid(rotation, translation),
        intrinsics=pinhole(np.array(calibrations), pixel_centre=0.0),
        width=width,
        height=height,
        metres_per_unit=MILLIMETRE,
        points=points,
    )


def _read_npz(folder: Path) -> GroundTruth:
    file = next(folder / name for name in CAMERA_FILES if (folder / name).is_file())
    cameras = read_npz(file)
    count = sum(name.startswith("world_mat_") and not name.startswith("world_mat_inv") for name in cameras)
    matrices = np.array([cameras[f"world_mat_{k}"][:3, :4] for k in range(count)])  # [N, 3, 4]
    return _from_projections(matrices, photos_in(_npz_photos(folder)), None)


def _npz_photos(folder: Path) -> Path:
    return first_folder(folder, ("image", "images"))


def _calibration(folder: Path) -> Path:
    """The calibration that all original scans share, beside the folder of the scans."""
    return folder.parent.parent / "Calibration" / "cal18"


def _original_photos(folder: Path) -> list[Path]:
    """One of the seven lights: number 3, the even one, or the first there is."""
    every = photos_in(folder)
    return [path for path in every if "_3_r" in path.name] or every


def _read_original(folder: Path) -> GroundTruth:
    photos = _original_photos(folder)
    files = [_calibration(folder) / f"pos_{int(path.name.split('_')[1]):03d}.txt" for path in photos]
    scan = int("".join(filter(str.isdigit, folder.name)))
    surface = folder.parent.parent / "Points" / "stl" / f"stl{scan:03d}_total.ply"
    points = read_ply(surface)["xyz"] if surface.is_file() else None
    return _from_projections(np.array([np.loadtxt(file) for file in files]), photos, points)


def _parameters(folder: Path) -> Path | None:
    return next(iter(sorted(folder.glob("*_par.txt"))), None)


def _read_middlebury(folder: Path) -> GroundTruth:
    file = _parameters(folder)
    assert file is not None
    count, *lines = file.read_text().splitlines()
    rows = [line.split() for line in lines if line.strip()]
    if len(rows) != int(count):
        raise ValueError(f"{file.name} announces {count} cameras and has {len(rows)}")
    numbers = np.array([[float(word) for word in row[1:]] for row in rows])  # [N, 21]: K, R, t
    photos = [_middlebury_photos(folder) / row[0] for row in rows]
    width, height = sizes_px(photos)
    return GroundTruth(
        names=[row[0] for row in rows],
        cam_from_world=rigid(numbers[:, 9:18].reshape(-1, 3, 3), numbers[:, 18:21]),
        intrinsics=pinhole(numbers[:, :9].reshape(-1, 3, 3), pixel_centre=0.0),
        width=width,
        height=height,
        metres_per_unit=1.0,
    )


def _middlebury_photos(folder: Path) -> Path:
    return first_folder(folder, ("images",))


DTU = Layout(
    name="dtu",
    title="DTU MVS, as published",
    source=DTU_SITE,
    licence=DTU_LICENCE,
    tree="""Rectified/scan24/rect_001_3_r5000.png ...
Calibration/cal18/pos_001.txt ...
Points/stl/stl024_total.ply          (optional: the surface)""",
    recognises=lambda folder: (
        _calibration(folder).is_dir() and folder.parent.name.startswith("Rectified") and any(folder.glob("rect_*"))
    ),
    photos=lambda folder: folder,
    read=_read_original,
    mixed=True,
)
DTU_NPZ = Layout(
    name="dtu",
    title="DTU MVS, as IDR, NeuS and SPARF repackage it",
    source="https://github.com/lioryariv/idr (link to the data)",
    licence=DTU_LICENCE,
    tree="""scan24/image/000000.png ...          (or images/)
scan24/cameras.npz                   (or cameras_sphere.npz, cameras_large.npz)""",
    recognises=lambda folder: any((folder / name).is_file() for name in CAMERA_FILES),
    photos=_npz_photos,
    read=_read_npz,
)
MIDDLEBURY = Layout(
    name="middlebury",
    title="Middlebury multi-view",
    source="https://vision.middlebury.edu/mview/data/",
    licence="for research; the site asks to cite Seitz et al. 2006",
    tree="""templeSparseRing/templeSR0001.png ...   (or images/)
templeSparseRing/templeSR_par.txt""",
    recognises=lambda folder: _parameters(folder) is not None,
    photos=_middlebury_photos,
    read=_read_middlebury,
)
