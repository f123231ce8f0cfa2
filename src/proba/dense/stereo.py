"""Depth of one photo from its neighbours: from coarse to fine, first by the pixels alone, then with what the
neighbours have found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numba
import numpy as np

from proba.dense.depth_sigma import settle
from proba.dense.start_planes import depth_bounds, triangle_planes
from proba.dense.sweep import CHOSEN, choose_views, facing, sweep
from proba.jit import cached_njit
from proba.reconstruction import Camera
from proba.threads import in_parallel


class Level(NamedTuple):
    """A photo without distortion at one size."""

    grey: np.ndarray  # [h, w] float32
    camera: Camera


@dataclass(frozen=True, eq=False, kw_only=True)
class StereoView:
    """A photo in all its sizes, largest first, with its pose."""

    levels: tuple[Level, ...]
    cam_from_world: np.ndarray  # [4, 4]


@dataclass(frozen=True, eq=False, kw_only=True)
class PlaneMap:
    """Planes of one photo at one of its sizes."""

    planes: np.ndarray  # [h, w, 3] float32: inverse depth (0: none), slopes by pixel
    costs: np.ndarray  # [h, w] float32
    sigma: np.ndarray  # [h, w] float32, of the inverse depth; 0: none
    support: np.ndarray  # [h, w] uint8, photos that confirm the patch


COARSE = np.array([[0.2, 0.4, 0], [0.05, 0.2, 0], [0.02, 0.4, 0], [0.0, 0.5, 1]], np.float32)
"""Changes that are tried in a small photo: a plane that is far off must find its place."""
MIDDLE = np.array([[0.02, 0.15, 0], [0.005, 0.05, 0], [0.0, 0.3, 0]], np.float32)
FINE = np.array([[0.004, 0.1, 0], [0.001, 0.03, 0]], np.float32)
COARSE_SWEEPS, MIDDLE_SWEEPS, FINE_SWEEPS = 4, 2, 2


def coarse_planes(view: StereoView, others: list[StereoView], xy: np.ndarray, inverse_depth: np.ndarray) -> PlaneMap:
    """Planes at the second size, by the pixels alone, from points at pixels `xy` [K, 2] (share of width and height)."""
    camera = view.levels[2].camera
    size = np.array([camera.width, camera.height])
    planes = triangle_planes(xy * size - 0.5, inverse_depth, camera.width, camera.height)
    bounds = depth_bounds(inverse_depth)
    planes = _within(planes, camera, bounds)
    found = _search(view, others, 2, planes, bounds, COARSE, COARSE_SWEEPS, seed=1)
    larger = view.levels[1].camera
    planes = _enlarged(found.planes, larger.width, larger.height)
    return _search(view, others, 1, planes, bounds, MIDDLE, MIDDLE_SWEEPS, seed=2)


def fine_planes(
    view: StereoView, others: list[StereoView], start: np.ndarray, known: list[np.ndarray], bounds: np.ndarray
) -> PlaneMap:
    """Planes at full size from those at the second size, with those of the other photos there (`known`)."""
    camera = view.levels[0].camera
    planes = _enlarged(start, camera.width, camera.height)
    return _search(view, others, 0, planes, bounds, FINE, FINE_SWEEPS, seed=3, known=known)


def _search(
    view: StereoView,
    others: list[StereoView],
    size: int,
    planes: np.ndarray,
    bounds: np.ndarray,
    changes: np.ndarray,
    sweeps: int,
    *,
    seed: int,
    known: list[np.ndarray] | None = None,
) -> PlaneMap:
    """Sweeps at one size, and the depth between the samples."""
    grey, camera = view.levels[size]
    height, width = grey.shape
    views = _packed(view, others, size, known)
    lens = _lens(camera)
    costs = np.empty((height, width), np.float32)
    planes = np.ascontiguousarray(planes)
    bands = row_bands(height)
    for k in range(sweeps):
        if k <= 1:  # planes that are only guesses are compared with all photos, later ones with those that fit best
            count = len(others) if size == 2 and k == 0 else min(CHOSEN, len(others))
            chosen = np.empty((height, width, count), np.int8)
            in_parallel(partial(_call, choose_views, (grey, views, planes, costs, chosen)), bands)
        for colour in (0, 1):
            smaller = changes * np.array([0.5**k, 0.7**k, 1], np.float32)
            far, state = size > 0 or k == 0, 7919 * (2 * k + colour) + seed
            arguments = (grey, views, lens, bounds, planes, costs, chosen, colour, far, smaller, state)
            in_parallel(partial(_call, sweep, arguments), bands)
    sigma, support = np.empty((height, width), np.float32), np.empty((height, width), np.uint8)
    in_parallel(partial(_call, settle, (grey, views, planes, chosen, sigma, support)), bands)
    return PlaneMap(planes=planes, costs=costs, sigma=sigma, support=support)


def _call(kernel: Callable[..., None], arguments: tuple, band: tuple[int, int]) -> None:
    kernel(*arguments, *band)


def row_bands(height: int) -> list[tuple[int, int]]:
    """Rows for each thread, in a few parts so that all end at about the same time."""
    edges = np.linspace(0, height, 4 * numba.get_num_threads() + 1).astype(int)
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))


def _lens(camera: Camera) -> np.ndarray:  # [4] float32: fx, fy, cx, cy; the first pixel's centre is (0, 0)
    return np.concatenate([camera.focal_px, camera.principal_point_px - 0.5]).astype(np.float32)


def _matrix(camera: Camera) -> np.ndarray:  # [3, 3]
    fx, fy, cx, cy = np.concatenate([camera.focal_px, camera.principal_point_px - 0.5])
    return np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])


def transfer(one: Camera, one_pose: np.ndarray, other: Camera, other_pose: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """m [3, 3] and e [3] that take a pixel of one camera and its inverse depth to the other, see `patch_cost`."""
    motion = other_pose @ np.linalg.inv(one_pose)
    return _matrix(other) @ motion[:3, :3] @ np.linalg.inv(_matrix(one)), _matrix(other) @ motion[:3, 3]


def _packed(view: StereoView, others: list[StereoView], size: int, known: list[np.ndarray] | None) -> tuple:
    """What the kernels need of the other photos, in arrays."""
    camera = view.levels[size].camera
    sizes = np.array([other.levels[size].grey.shape[::-1] for other in others], np.int32).reshape(-1, 2)  # [V, 2]
    sources = np.zeros((len(others), int(sizes.prod(axis=1).max(initial=1)) + 1), np.float32)
    there, back = [], []
    for j, other in enumerate(others):
        grey, other_camera = other.levels[size]
        sources[j, : grey.size] = grey.ravel()
        there.append(transfer(camera, view.cam_from_world, other_camera, other.cam_from_world))
        back.append(transfer(other_camera, other.cam_from_world, camera, view.cam_from_world))
    matrices = [np.array(values, np.float32) for pairs in (there, back) for values in zip(*pairs, strict=True)]
    maps = np.zeros((0, 1, 1, 3), np.float32)
    scales = np.ones((len(others), 2), np.float32)
    if known is not None:
        height, width = np.array([m.shape[:2] for m in known]).max(axis=0)
        maps = np.zeros((len(known), height, width, 3), np.float32)
        for j, planes in enumerate(known):
            maps[j, : planes.shape[0], : planes.shape[1]] = planes
            scales[j] = np.array(planes.shape[1::-1]) / sizes[j]
    return (sources, sizes, *matrices, maps, scales)


def _enlarged(planes: np.ndarray, width: int, height: int) -> np.ndarray:
    """Planes [h, w, 3] of a smaller photo at the pixels of a larger one: those of the nearest pixel, continued."""
    ratio = np.array([planes.shape[1] / width, planes.shape[0] / height])
    x = (np.arange(width) + 0.5) * ratio[0] - 0.5
    y = (np.arange(height) + 0.5) * ratio[1] - 0.5
    column = np.rint(x).astype(int).clip(0, planes.shape[1] - 1)
    row = np.rint(y).astype(int).clip(0, planes.shape[0] - 1)
    found = planes[row[:, None], column]  # [height, width, 3]
    found[..., 0] += (x - column)[None] * found[..., 1] + (y - row)[:, None] * found[..., 2]
    found[..., 1:] *= ratio.astype(np.float32)
    return found


def _within(planes: np.ndarray, camera: Camera, bounds: np.ndarray) -> np.ndarray:
    """Planes [h, w, 3] that are too steep, or out of bounds, made flat and put back."""
    planes[..., 0] = planes[..., 0].clip(1.01 * bounds[0], 0.99 * bounds[1])
    _flatten(planes, _lens(camera))
    return planes


@cached_njit(nogil=True)
def _flatten(planes, lens):
    for row in range(planes.shape[0]):
        for column in range(planes.shape[1]):
            rho, a, b = planes[row, column]
            if facing(lens, np.float32(column), np.float32(row), rho, a, b) < np.float32(0.3):
                planes[row, column, 1:] = 0.0
