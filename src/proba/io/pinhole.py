"""Photos as cameras without distortion see them."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np

from proba.reconstruction import Camera

LONGEST_FOCAL = 2.0
"""Blank corners are cut off by a longer focal length, at most by this factor."""


def pinhole(camera: Camera) -> Camera:
    """A camera of the same size that sees nothing beyond the photo.

    Its principal point is in the middle and its pixels are square, since some programs take that for granted.
    """
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


def resized(camera: Camera, width: int, height: int) -> Camera:
    """The same pinhole camera with other pixels."""
    scale = np.array([width / camera.width, height / camera.height])
    params = np.concatenate([camera.focal_px * scale, camera.principal_point_px * scale])
    return replace(camera, model="PINHOLE", params=params, width=width, height=height)


def warped(pixels: np.ndarray, source: Camera, target: Camera, outside: int = cv2.BORDER_REPLICATE) -> np.ndarray:
    """A photo [h, w, 3] or mask [h, w] of the source camera as another camera at the same place sees it."""
    pixel = np.stack(np.meshgrid(np.arange(target.width), np.arange(target.height)), axis=-1) + 0.5  # [h, w, 2]
    scale = np.array([pixels.shape[1] / source.width, pixels.shape[0] / source.height])
    place = (source.project(target.rays(pixel)) * scale - 0.5).astype(np.float32)  # OpenCV's first pixel is at (0, 0)
    return cv2.remap(pixels, place[..., 0], place[..., 1], cv2.INTER_LINEAR, borderMode=outside)
