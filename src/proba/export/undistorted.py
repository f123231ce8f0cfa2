"""Photos without distortion and a model of pinhole cameras, as 3D Gaussian splatting and other trainers want them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageOps

from proba.errors import InputError
from proba.io.atomic import atomic_path
from proba.io.colmap import write_colmap
from proba.reconstruction import Camera, Reconstruction

WRITABLE = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")
LONGEST_FOCAL = 2.0
"""Blank corners are cut off by a longer focal length, at most by this factor."""


def pinhole(camera: Camera) -> Camera:
    """A camera of the same size that sees nothing beyond the photo. Its principal point is in the middle, since some
    programs take that for granted."""
    width, height = camera.width, camera.height
    across, down = np.linspace(0, width, 65), np.linspace(0, height, 65)
    border = np.concatenate(
        [[(x, y) for x in across for y in (0, height)], [(x, y) for y in down for x in (0, width)]]
    )  # [K, 2]
    focal = float(camera.focal_px.mean())
    for factor in np.geomspace(1, LONGEST_FOCAL, 200):
        params = np.array([factor * focal, factor * focal, width / 2, height / 2])
        found = replace(camera, model="PINHOLE", params=params)
        seen = camera.project(found.rays(border))  # [K, 2]
        if ((seen >= -0.5) & (seen <= [width + 0.5, height + 0.5])).all():
            break
    return found


def undistorted(reconstruction: Reconstruction) -> Reconstruction:
    """The same reconstruction with pinhole cameras."""
    cameras = [pinhole(camera) for camera in reconstruction.cameras]
    xy = reconstruction.points.obs_xy.copy()  # [K, 2]
    for n, k in enumerate(reconstruction.camera_of_image):
        mine = reconstruction.points.obs_image == n
        xy[mine] = cameras[k].project(reconstruction.camera(n).rays(xy[mine].astype(np.float64)))
    names = [name if name.lower().endswith(WRITABLE) else f"{name}.png" for name in reconstruction.image_names]
    return replace(reconstruction, cameras=cameras, image_names=names, points=replace(reconstruction.points, obs_xy=xy))


def write_undistorted(reconstruction: Reconstruction, folder: Path, photos: Path, index: int = 0) -> None:
    """Write FOLDER/images and FOLDER/sparse/INDEX."""
    plain = undistorted(reconstruction)
    for n, name in enumerate(reconstruction.image_names):
        try:
            with Image.open(photos / name) as file:
                rgb = np.asarray(ImageOps.exif_transpose(file).convert("RGB"))
        except (OSError, SyntaxError, ValueError) as error:
            raise InputError(
                f"The photo {photos / name} cannot be read ({error}). Give --images its folder."
            ) from error
        with atomic_path(folder / "images" / plain.image_names[n]) as temporary:
            Image.fromarray(_warped(rgb, reconstruction.camera(n), plain.camera(n))).save(temporary, quality=95)
    write_colmap(plain, folder / "sparse" / str(index))


def _warped(rgb: np.ndarray, source: Camera, target: Camera) -> np.ndarray:
    """A photo [h, w, 3] as another camera at the same place sees it."""
    pixel = np.stack(np.meshgrid(np.arange(target.width), np.arange(target.height)), axis=-1) + 0.5  # [h, w, 2]
    scale = np.array([rgb.shape[1] / source.width, rgb.shape[0] / source.height])
    place = (source.project(target.rays(pixel)) * scale - 0.5).astype(np.float32)  # OpenCV's first pixel is at (0, 0)
    return cv2.remap(rgb, place[..., 0], place[..., 1], cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
