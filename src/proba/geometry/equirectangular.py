"""Panoramas that show all directions: longitude along x, latitude along y. Axes: x right, y down, z the middle."""

from __future__ import annotations

import numpy as np


def panorama_directions(xy: np.ndarray, width: int, height: int) -> np.ndarray:  # [..., 3]
    """Unit directions of pixels [..., 2]."""
    longitude = (xy[..., 0] / width - 0.5) * 2 * np.pi
    down = (xy[..., 1] / height - 0.5) * np.pi
    return np.stack([np.cos(down) * np.sin(longitude), np.sin(down), np.cos(down) * np.cos(longitude)], axis=-1)


def panorama_pixels(directions: np.ndarray, width: int, height: int) -> np.ndarray:  # [..., 2]
    """Pixels of directions [..., 3] of any length."""
    x, y, z = np.moveaxis(directions, -1, 0)
    longitude, down = np.arctan2(x, z), np.arctan2(y, np.hypot(x, z))
    return np.stack([(longitude / (2 * np.pi) + 0.5) * width, (down / np.pi + 0.5) * height], axis=-1)
