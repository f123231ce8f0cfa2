"""A step of the depth and variance maps, and their scale gauge, in two passes over memory."""

from __future__ import annotations

import numba as nb
import numpy as np

LOG_DEPTH_LIMIT = 5.0
LOG_VARIANCE_RANGE = (-18.0, 6.0)


def move_maps(
    maps: np.ndarray, direction: np.ndarray, *, depth_rate: float, variance_rate: float, decay: float
) -> np.ndarray:
    """maps [B, N, L+1, L+1, C] -= rate * direction in place, then mean log-depth 0; returns what was subtracted, [B].

    Variances follow twice the depth. Anisotropic Gaussians (C = 8) have three variances and a scale-free quaternion.
    """
    shift = np.empty(len(maps))
    n_variances = 1 if maps.shape[-1] == 2 else 3
    f32 = np.float32
    _move_maps(maps, direction, f32(depth_rate), f32(variance_rate), f32(decay), n_variances, shift)
    return shift


@nb.njit(cache=True, nogil=True, error_model="numpy")
def _move_maps(maps, direction, depth_rate, variance_rate, decay, n_variances, shift):
    worlds, images, side, _, channels = maps.shape
    low, high = np.float32(LOG_VARIANCE_RANGE[0]), np.float32(LOG_VARIANCE_RANGE[1])
    deepest = np.float32(LOG_DEPTH_LIMIT)
    for b in range(worlds):
        total = 0.0
        for n in range(images):
            for y in range(side - 1):
                for x in range(side - 1):
                    maps[b, n, y, x, 0] -= depth_rate * (direction[b, n, y, x, 0] + decay * maps[b, n, y, x, 0])
                    for c in range(1, channels):
                        maps[b, n, y, x, c] -= variance_rate * (direction[b, n, y, x, c] + decay * maps[b, n, y, x, c])
                    total += maps[b, n, y, x, 0]
        mean = total / max(1, images * (side - 1) * (side - 1))
        shift[b] = mean
        off, twice = np.float32(mean), np.float32(2) * np.float32(mean)
        for n in range(images):
            for y in range(side - 1):
                for x in range(side - 1):
                    maps[b, n, y, x, 0] = min(max(maps[b, n, y, x, 0] - off, -deepest), deepest)
                    for c in range(1, 1 + n_variances):
                        maps[b, n, y, x, c] = min(max(maps[b, n, y, x, c] - twice, low), high)
