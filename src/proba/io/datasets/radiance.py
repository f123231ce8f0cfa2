"""Scenes made for radiance fields: LLFF and Mip-NeRF 360."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from proba.io.datasets.layout import Layout, first_folder, inverted, photos_in
from proba.io.ground_truth import GroundTruth, read_colmap_truth

BOUNDS = "poses_bounds.npy"
REDUCED = ("images_4", "images_8", "images_2", "images")
"""Folders of photos, the wanted one first: a quarter of the side is about 1,000 px."""
HALF = "images_2"
"""Only Mip-NeRF 360 comes with this folder; otherwise the two datasets have the same files."""


def _photos(folder: Path) -> Path:
    return first_folder(folder, REDUCED)


def _model(folder: Path) -> Path:
    return folder / "sparse" / "0"


def _read(folder: Path) -> GroundTruth:
    """From the COLMAP model where it is there, which has names; else from the poses, in the order of the photos."""
    if (_model(folder) / "images.bin").is_file():
        truth = read_colmap_truth(_model(folder))
        truth.points = None  # what COLMAP found is no true surface
        return truth
    table = np.load(folder / BOUNDS, allow_pickle=False).astype(np.float64)  # [N, 17]
    if table.ndim != 2 or table.shape[1] != 17:
        raise ValueError(f"{BOUNDS} has the shape {table.shape}, not (photos, 17)")
    photos = photos_in(first_folder(folder, ("images",)))
    if len(photos) != len(table):
        raise ValueError(f"there are {len(photos)} photos and {len(table)} poses")
    matrices = table[:, :15].reshape(
        -1, 3, 5
    )  # axes down, right, backward and place in the world; height, width, focal
    height, width, focal_px = matrices[:, :, 4].T
    world_from_cam = np.stack([matrices[:, :, 1], matrices[:, :, 0], -matrices[:, :, 2], matrices[:, :, 3]], axis=2)
    return GroundTruth(
        names=[path.name for path in photos],
        cam_from_world=inverted(world_from_cam),
        intrinsics=np.stack([focal_px, focal_px, width / 2, height / 2], axis=1),
        width=width.round().astype(np.int64),
        height=height.round().astype(np.int64),
    )


LLFF = Layout(
    name="llff",
    title="LLFF (forward-facing photos)",
    source="https://github.com/Fyusion/LLFF, https://www.matthewtancik.com/nerf (nerf_llff_data)",
    licence="GPL-3.0 (code and data of LLFF)",
    tree="""fern/images/IMG_4026.JPG ...          (or images_4/, images_8/)
fern/poses_bounds.npy
fern/sparse/0/images.bin ...         (optional; used where it is there)""",
    recognises=lambda folder: (folder / BOUNDS).is_file() and not (folder / HALF).is_dir(),
    photos=_photos,
    read=_read,
)
MIPNERF360 = Layout(
    name="mip360",
    title="Mip-NeRF 360",
    source="https://jonbarron.info/mipnerf360/",
    licence="CC BY 4.0",
    tree="""bonsai/images/DSCF5565.JPG ...       (or images_2/, images_4/, images_8/)
bonsai/poses_bounds.npy
bonsai/sparse/0/{cameras,images,points3D}.bin""",
    recognises=lambda folder: (folder / BOUNDS).is_file() and (folder / HALF).is_dir(),
    photos=_photos,
    read=_read,
)
