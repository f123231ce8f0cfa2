"""nerfstudio's transforms.json, for NeRF and splatting programs.

Poses there are world_from_cam with OpenGL axes (x right, y up, z backward); the world stays ours, so that
`applied_transform` is the identity: versions of nerfstudio differ in whether they apply it to the point cloud.
Pixels are as in COLMAP, first centre at (0.5, 0.5), and so are k1 and k2.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from proba.errors import InputError
from proba.geometry.axes import OPENGL_FROM_OPENCV
from proba.io.atomic import atomic_path, atomic_write_text
from proba.io.ply import write_ply
from proba.reconstruction import Camera, Reconstruction

ORIENTATION = 0x0112  # EXIF tag; 1 means that the photo is stored as it is shown
POINTS = "points.ply"


def write_nerfstudio(reconstruction: Reconstruction, folder: str | Path, photos: Path | None) -> None:
    """Write transforms.json and points.ply. Paths lead to `photos`, relative to the folder; without: names alone.

    nerfstudio ignores the EXIF orientation that our cameras include, so turned photos are copied upright to images/.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    points = reconstruction.points
    write_ply(folder / POINTS, points.xyz, points.rgb)
    lenses = [_lens(camera) for camera in reconstruction.cameras]
    used = sorted(set(reconstruction.camera_of_image.tolist()))
    shared = lenses[used[0]] if len(used) == 1 else {}
    world_from_cam = reconstruction.world_from_cam @ OPENGL_FROM_OPENCV  # [N, 4, 4]
    frames = []
    for n, name in enumerate(reconstruction.image_names):
        path = name if photos is None else _path(photos, name, folder)
        own = {} if shared else lenses[reconstruction.camera_of_image[n]]
        frames.append({"file_path": path, "image_name": name, **own, "transform_matrix": world_from_cam[n].tolist()})
    content = {
        "camera_model": "OPENCV",
        **shared,
        "applied_transform": np.eye(4)[:3].tolist(),
        "ply_file_path": POINTS,
        "frames": frames,
    }
    atomic_write_text(folder / "transforms.json", json.dumps(content, indent=1))


def _lens(camera: Camera) -> dict[str, float | int]:
    (fx, fy), (cx, cy) = camera.focal_px.tolist(), camera.principal_point_px.tolist()
    radial: list[float] = camera.params[3:].tolist() if camera.model in ("SIMPLE_RADIAL", "RADIAL") else []
    k1, k2, *_ = [*radial, 0.0, 0.0]
    size = {"w": camera.width, "h": camera.height}
    return {**size, "fl_x": fx, "fl_y": fy, "cx": cx, "cy": cy, "k1": k1, "k2": k2, "p1": 0.0, "p2": 0.0}


def _path(photos: Path, name: str, folder: Path) -> str:
    """Path of a photo seen from the folder, or of its upright copy there."""
    photo = photos / name
    if not photo.is_file():
        raise InputError(f"The photo {photo} is missing. Give the folder of the photos with --images.")
    try:
        with Image.open(photo) as image:
            if image.getexif().get(ORIENTATION, 1) != 1:
                copy = (folder / "images" / name).with_suffix(".png" if photo.suffix.lower() == ".png" else ".jpg")
                with atomic_path(copy) as temporary:
                    ImageOps.exif_transpose(image).convert("RGB").save(temporary, quality=95)
                photo = copy
    except OSError as error:
        raise InputError(f"The photo {photo} cannot be read ({error}). Restore it.") from error
    return Path(os.path.relpath(photo.resolve(), folder.resolve())).as_posix()
