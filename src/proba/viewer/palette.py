"""Colours that mean something: numbers on a scale, images apart from each other, edges from bad to good."""

from __future__ import annotations

import colorsys

import numpy as np

VIRIDIS = ("440154", "482878", "3e4a89", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725")
WEIGHT = ("d7302f", "f08c3a", "e8d44d", "8ccb5e", "2fa84f")
BACKGROUND = (20, 22, 28)
TRUTH = (255, 255, 255)
PLAIN = (168, 172, 180)


def _table(hexes: tuple[str, ...]) -> np.ndarray:
    return np.array([[int(text[k : k + 2], 16) for k in (0, 2, 4)] for text in hexes], np.float64)


def on_scale(values: np.ndarray, stops: tuple[str, ...] = VIRIDIS) -> np.ndarray:  # [..., 3] uint8
    """Colours of numbers 0..1; what is not a number is grey."""
    table = _table(stops)
    values = np.asarray(values, np.float64)
    known = np.isfinite(values)
    place = np.where(known, values, 0.0).clip(0, 1) * (len(table) - 1)
    low = np.minimum(place.astype(int), len(table) - 2)
    part = (place - low)[..., None]
    rgb = (1 - part) * table[low] + part * table[low + 1]
    return np.where(known[..., None], rgb, 128).round().astype(np.uint8)


def of_weights(weights: np.ndarray) -> np.ndarray:  # [E, 3] uint8
    """Red for an edge that does not count to green for one that counts fully."""
    return on_scale(weights, WEIGHT)


def of_images(count: int) -> np.ndarray:  # [N, 3] uint8
    """A colour for each image; neighbours differ."""
    golden = 0.61803398875
    rgb = [colorsys.hsv_to_rgb((0.58 + golden * k) % 1, 0.55, 0.98) for k in range(count)]
    return (255 * np.array(rgb).reshape(-1, 3)).round().astype(np.uint8)


def ranked(values: np.ndarray) -> np.ndarray:
    """Numbers as 0..1 between their 2nd and 98th percentile, on a logarithmic scale."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.asarray(values, np.float64))
    known = logs[np.isfinite(logs)]
    if not len(known):
        return np.full(len(logs), np.nan)
    low, high = np.percentile(known, [2, 98])
    return np.clip((logs - low) / max(high - low, 1e-9), 0, 1)
