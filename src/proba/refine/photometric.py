"""Observations moved to where the photos agree.

A learned matcher tells the place of a point to half a pixel or a whole one; its grey values tell a tenth. Every point
has a reference, the view that shows it largest. With the cameras known, its surroundings are taken for a plane that
faces them all, and found again in the other views.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numba
import numpy as np

from proba.geometry.camera import FX
from proba.refine.bundle import Bundle, per_track_sum, pixel_rays, point_pixels, project
from proba.refine.options import PixelOptions
from proba.refine.tracks import Tracks
from proba.subpixel import refine_places, smoothed

_STEP = 0.5  # unit pixels, for the derivative of the warp


class Photo(NamedTuple):
    """Grey values of an image of the bundle, at any resolution."""

    grey: np.ndarray  # [h, w] uint8, smoothed: a quarter of the memory, and rounding is a tenth of the pixels' noise
    scale: np.ndarray  # [2], pixels here of a unit pixel


def photo(grey: np.ndarray, size: np.ndarray) -> Photo:
    """Of luminance [h, w] uint8 for an image of `size` [2] (width, height) in unit pixels."""
    return Photo(np.rint(smoothed(grey)).astype(np.uint8), np.array(grey.shape[::-1]) / size)


def align(bundle: Bundle, photos: Sequence[Photo], options: PixelOptions) -> Tracks:
    """The tracks with places where the photos agree, without the observations for which there is none."""
    tracks = bundle.tracks
    normal, reference = _references(bundle)  # [T, 3], [K]
    moving = np.flatnonzero(bundle.alive & (reference != np.arange(tracks.n_observations)))  # [M]
    reference = reference[moving]
    warp = _warps(bundle, moving, reference, normal[tracks.track_of_observation[moving]])  # [M, 2, 2]
    xy, found = tracks.xy.copy(), np.zeros(tracks.n_observations, bool)
    pair = tracks.image[reference] * bundle.n_images + tracks.image[moving]  # [M]
    order = np.argsort(pair, kind="stable")

    def search(part: np.ndarray) -> None:
        """Of the observations `part`, which are all of one pair of images; no two parts share an observation."""
        here, there = reference[part], moving[part]
        first, second = photos[tracks.image[here[0]]], photos[tracks.image[there[0]]]
        places = refine_places(
            first.grey,
            second.grey,
            tracks.xy[here] * first.scale - 0.5,
            tracks.xy[there] * second.scale - 0.5,
            warp[part] * (second.scale[:, None] / first.scale),
            options.search,
        )
        good = places.good & (np.linalg.det(warp[part]) > options.min_scale**2)
        if good.mean() < options.min_found:
            found[there] = True
            return
        xy[there[good]], found[there[good]] = (places.points_j[good] + 0.5) / second.scale, True

    parts = np.split(order, np.flatnonzero(np.diff(pair[order])) + 1) if len(order) else []
    with ThreadPoolExecutor(numba.get_num_threads()) as workers:
        list(workers.map(search, parts))
    found[reference[found[moving]]] = True
    return _only(Tracks(tracks.offset, tracks.image, xy), found)


def _references(bundle: Bundle) -> tuple[np.ndarray, np.ndarray]:
    """Normals of the points [T, 3] towards their cameras, and the observation [K] that shows each one's point best."""
    tracks, track = bundle.tracks, bundle.tracks.track_of_observation
    away = bundle.centres[tracks.image] - bundle.xyz[track]  # [K, 3]
    distance = np.linalg.norm(away, axis=1) + 1e-12  # [K]
    direction = away / distance[:, None] * bundle.alive[:, None]
    normal = per_track_sum(tracks, direction)  # [T, 3]
    normal /= np.linalg.norm(normal, axis=1, keepdims=True) + 1e-12
    focal = bundle.intrinsics[bundle.camera_of_image[tracks.image], FX]  # [K]
    size = np.einsum("kd,kd->k", direction, normal[track]) * focal / distance  # [K]
    best = np.lexsort((-size, track))[tracks.offset[:-1]]  # [T]
    return normal, best[track]


def _warps(bundle: Bundle, moving: np.ndarray, reference: np.ndarray, normal: np.ndarray) -> np.ndarray:  # [M, 2, 2]
    """What a step of a unit pixel in the `reference` observations [M] is in the `moving` ones [M], by the planes
    through their points with `normal` [M, 3]."""
    tracks = bundle.tracks
    places, _ = project(bundle)  # [K, 2]
    camera = bundle.camera_of_image[tracks.image]  # [K]
    pose_i, pose_j = (bundle.cam_from_world[tracks.image[k]] for k in (reference, moving))  # [M, 4, 4]
    centre = bundle.centres[tracks.image[reference]]  # [M, 3]
    height = np.einsum("md,md->m", bundle.xyz[tracks.track_of_observation[moving]] - centre, normal)  # [M]

    def transfer(step: tuple[float, float]) -> np.ndarray:  # [M, 2]
        ray = pixel_rays(bundle, camera[reference], places[reference] + step)  # [M, 3]
        ray = np.einsum("mij,mi->mj", pose_i[:, :3, :3], ray)
        point = centre + ray * (height / np.einsum("md,md->m", ray, normal))[:, None]
        there = np.einsum("mij,mj->mi", pose_j[:, :3, :3], point) + pose_j[:, :3, 3]
        return point_pixels(bundle, camera[moving], there)

    with np.errstate(divide="ignore", invalid="ignore"):
        columns = [transfer((_STEP, 0)) - transfer((-_STEP, 0)), transfer((0, _STEP)) - transfer((0, -_STEP))]
    return np.nan_to_num(np.stack(columns, axis=2) / (2 * _STEP))


def _only(tracks: Tracks, chosen: np.ndarray) -> Tracks:
    """Tracks of the `chosen` observations [K] bool; those with less than two go."""
    count = per_track_sum(tracks, chosen)  # [T]
    chosen = chosen & (count >= 2)[tracks.track_of_observation]
    offset = np.concatenate([[0], np.cumsum(count[count >= 2])]).astype(np.int64)
    return Tracks(offset, tracks.image[chosen], tracks.xy[chosen])
