"""A step of the depth and variance maps, and their scale gauge, in two passes over memory."""

from __future__ import annotations

from functools import cache

import numba as nb
import numpy as np

from proba.jit import cached_njit

LOG_DEPTH_LIMIT = 5.0
LOG_VARIANCE_RANGE = (-18.0, 6.0)


def move_maps(
    maps: np.ndarray,
    direction: np.ndarray,
    *,
    depth_rate: float,
    variance_rate: float,
    decay: float,
    gauge: bool = True,
) -> np.ndarray:
    """maps [B, N, L+1, L+1, C] -= rate * direction in place, then mean log-depth 0; returns what was subtracted, [B].

    Without `gauge` nothing is subtracted.
    Variances follow twice the depth. Anisotropic Gaussians (C = 8) have three variances and a scale-free quaternion.
    """
    worlds, images, side, _, channels = maps.shape
    is_depth, scale_power, low, high = of_row(side - 1, channels)
    shift = np.empty(worlds)
    _move_maps(
        maps.reshape(worlds, images, side, side * channels),
        direction.reshape(worlds, images, side, side * channels),
        np.where(is_depth, np.float32(depth_rate), np.float32(variance_rate)),
        np.float32(decay),
        gauge,
        is_depth,
        scale_power,
        low,
        high,
        shift,
    )
    return shift


@cache
def of_row(cells: int, channels: int) -> np.ndarray:
    """Constants of each number of a map row, [4, cells * C]: is it a depth, its power of the scale, its bounds.

    As plain rows of numbers, maps are moved a vector at a time.
    """
    depth, variance = (1, 1, -LOG_DEPTH_LIMIT, LOG_DEPTH_LIMIT), (0, 2, *LOG_VARIANCE_RANGE)
    quaternion = (0, 0, -np.inf, np.inf)
    of_cell = [depth, variance] if channels == 2 else [depth] + 3 * [variance] + 4 * [quaternion]
    return np.tile(np.array(of_cell, np.float32).T, cells)


FAST = {"reassoc", "contract", "nsz"}


@nb.njit(nogil=True, forceinline=True, error_model="numpy", fastmath=FAST)
def stepped(x, rate, step, decay):
    """One number of a map after its step. On both devices."""
    return x - rate * (step + decay * x)


@nb.njit(nogil=True, forceinline=True, error_model="numpy", fastmath=FAST)
def gauged(x, scale_power, off, low, high):
    """One number of a map after the mean log-depth `off` was taken away, within its bounds. On both devices."""
    return min(max(x - scale_power * off, low), high)


@cached_njit(nogil=True, error_model="numpy", fastmath=FAST)
def _move_maps(maps, direction, rate, decay, gauge, is_depth, scale_power, low, high, shift):
    worlds, images, side, _ = maps.shape
    for b in range(worlds):
        total = np.float64(0)
        for n in range(images):
            for y in range(side - 1):
                row, step, depths = maps[b, n, y], direction[b, n, y], np.float32(0)
                for k in range(len(rate)):
                    row[k] = stepped(row[k], rate[k], step[k], decay)
                    depths += is_depth[k] * row[k]
                total += depths
        mean = total / max(1, images * (side - 1) * (side - 1)) if gauge else 0.0
        shift[b] = mean
        off = np.float32(mean)
        for n in range(images):
            for y in range(side - 1):
                row = maps[b, n, y]
                for k in range(len(rate)):
                    row[k] = gauged(row[k], scale_power[k], off, low[k], high[k])
