"""Colours of points from the photos that see them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from proba.reconstruction import Camera, Reconstruction


def colour_points(reconstruction: Reconstruction, folder: Path) -> list[str]:
    """Set every point's colour to the mean over its observations; returns the photos that could not be read."""
    points = reconstruction.points
    total = np.zeros((len(points.xyz), 3))
    seen = np.zeros(len(points.xyz))
    unread = []
    seen_by = points.seen_by(len(reconstruction))
    for k, (name, mine) in enumerate(zip(reconstruction.image_names, seen_by, strict=True)):
        camera = reconstruction.cameras[reconstruction.camera_of_image[k]]
        try:
            colours = photo_colours(folder / name, camera, points.obs_xy[mine])  # [M, 3]
        except OSError:
            unread.append(name)
            continue
        np.add.at(total, points.obs_point[mine], colours)
        np.add.at(seen, points.obs_point[mine], 1)
    known = seen > 0
    points.rgb[known] = (total[known] / seen[known, None]).round().astype(np.uint8)
    return unread


def photo_colours(path: Path, camera: Camera, xy: np.ndarray) -> np.ndarray:  # [K, 3] uint8
    """Colours of a photo at pixels `xy` [K, 2] of its camera; the photo may have another resolution.

    OSError if the photo cannot be read.
    """
    try:
        with Image.open(path) as file:
            pixels = np.asarray(ImageOps.exif_transpose(file).convert("RGB"))  # [H, W, 3]
    except Exception as error:  # decoders answer damaged files with every kind of exception there is
        raise OSError(f"{path} cannot be read ({error})") from error
    scale = np.array([pixels.shape[1] / camera.width, pixels.shape[0] / camera.height])
    column, row = (xy * scale).astype(int).T  # the pixel that covers a corner0.5 coordinate
    return pixels[row.clip(0, pixels.shape[0] - 1), column.clip(0, pixels.shape[1] - 1)]
