"""Scenes measured by laser scanners: ETH3D and Strecha."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np

from proba.io.datasets.layout import Layout, first_folder, inverted, photos_in, pinhole
from proba.io.ground_truth import COLMAP_FILES, GroundTruth, read_colmap_truth
from proba.io.names import check_name
from proba.io.ply import read_ply

SCANS = ("dslr_scan_eval", "dslr_scan_clean")
ALIGNMENT = "scan_alignment.mlp"
MAX_POINTS_OF_SCAN = 2_000_000
"""A scan has tens of millions; more than this change no percentage."""
CAMERA_FOLDERS = (".", "gt_dense_cameras", "camera", "cameras")


def _read_eth3d(folder: Path, calibration: str) -> GroundTruth:
    """Cameras of a COLMAP model in metres, and the laser scans."""
    return replace(read_colmap_truth(folder / calibration), metres_per_unit=1.0, points=_laser_points(folder))


def _laser_points(folder: Path) -> np.ndarray | None:  # [P, 3]
    """All scans in the frame of the cameras, None without any."""
    place = next((folder / name for name in SCANS if (folder / name / ALIGNMENT).is_file()), None)
    if place is None:
        return None
    clouds = []
    for mesh in ElementTree.parse(place / ALIGNMENT).iter("MLMesh"):
        matrix = mesh.find("MLMatrix44")
        if matrix is None or matrix.text is None:
            raise ValueError(f"{ALIGNMENT} has a scan without a matrix")
        world_from_scan = np.array(matrix.text.split(), np.float64).reshape(4, 4)
        points = read_ply(place / check_name(mesh.get("filename")))["xyz"]
        points = points[:: max(1, len(points) // MAX_POINTS_OF_SCAN)]
        clouds.append(points @ world_from_scan[:3, :3].T + world_from_scan[:3, 3])
    return np.concatenate(clouds) if clouds else None


def _is_eth3d(folder: Path, calibration: str) -> bool:
    return any((folder / calibration / name).is_file() for name in COLMAP_FILES)


def _camera_files(folder: Path) -> list[Path]:
    """Strecha's NAME.camera files of a scene, which distributions keep in different folders."""
    beside = sorted(folder.parent.glob(f"{folder.name}_cameras")) if folder.name.endswith("_dense") else []
    for place in (*(folder / name for name in CAMERA_FOLDERS), *beside):
        if place.is_dir() and (found := sorted(place.glob("*.camera"))):
            return found
    return []


def _read_strecha(folder: Path) -> GroundTruth:
    names, calibrations, poses, sizes = [], [], [], []
    for file in _camera_files(folder):
        numbers = np.array(file.read_text().split(), np.float64)
        if len(numbers) != 26:
            raise ValueError(f"{file.name} has {len(numbers)} numbers, not 26")
        names.append(file.name.removesuffix(".camera"))
        calibrations.append(numbers[:9].reshape(3, 3))  # then three zeros of distortion
        poses.append(np.hstack([numbers[12:21].reshape(3, 3), numbers[21:24, None]]))  # world_from_cam
        sizes.append(numbers[24:26])
    width, height = np.array(sizes).T.astype(np.int64)
    return GroundTruth(
        names=names,
        cam_from_world=inverted(np.array(poses)),
        intrinsics=pinhole(np.array(calibrations), pixel_centre=0.0),
        width=width,
        height=height,
        metres_per_unit=1.0,
    )


def _strecha_photos(folder: Path) -> Path:
    place = first_folder(folder, ("images", "urd"))
    return place if photos_in(place) else folder


ETH3D = Layout(
    name="eth3d",
    title="ETH3D high-resolution multi-view, undistorted",
    source="https://www.eth3d.net/datasets",
    licence="CC BY-NC-SA 4.0",
    tree="""pipes/images/dslr_images_undistorted/DSC_0634.JPG ...
pipes/dslr_calibration_undistorted/{cameras,images,points3D}.txt
pipes/dslr_scan_eval/scan1.ply, scan_alignment.mlp   (optional: laser scans for ACC and COMP)""",
    recognises=lambda folder: _is_eth3d(folder, "dslr_calibration_undistorted"),
    photos=lambda folder: first_folder(folder, ("images/dslr_images_undistorted", "images")),
    read=lambda folder: _read_eth3d(folder, "dslr_calibration_undistorted"),
)
ETH3D_DISTORTED = Layout(
    name="eth3d_distorted",
    title="ETH3D high-resolution multi-view, as photographed",
    source=ETH3D.source,
    licence=ETH3D.licence,
    tree="""pipes/images/dslr_images/DSC_0634.JPG ...
pipes/dslr_calibration_jpg/{cameras,images,points3D}.txt
pipes/dslr_scan_eval/scan1.ply, scan_alignment.mlp   (optional)""",
    recognises=lambda folder: _is_eth3d(folder, "dslr_calibration_jpg"),
    photos=lambda folder: first_folder(folder, ("images/dslr_images", "images")),
    read=lambda folder: _read_eth3d(folder, "dslr_calibration_jpg"),
)
STRECHA = Layout(
    name="strecha",
    title="Strecha et al. 2008",
    source="https://github.com/openMVG/SfM_quality_evaluation (the original site is gone)",
    licence="for research; cite Strecha et al. 2008",
    tree="""fountain-P11/images/0000.jpg ...      (or urd/, or the folder itself)
fountain-P11/gt_dense_cameras/0000.jpg.camera ...   (or beside the photos)""",
    recognises=lambda folder: bool(_camera_files(folder)),
    photos=_strecha_photos,
    read=_read_strecha,
)
