"""Photos of known or assumed lenses as pinhole cameras see them: what the first-order solver works on.

Distortion is undone before the solve. A fisheye becomes the pinhole camera that looks the same way and ends at
FLAT_LIMIT_DEG off its axis; matches beyond are left to the refinement, which works on directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from proba.cameras import AUTO, CameraSetup
from proba.dense import sample_maps
from proba.geometry import camera as lens
from proba.matches import ImageInfo, KnownLens, Matches, PairMatches
from proba.solution import Solution

FLAT_LIMIT_DEG = 70.0
"""Matches farther off the axis take no part: a pinhole image stretches them nine times and more."""


FISHEYE_FOV_DEG = (100.0, 130.0, 160.0, 195.0)
"""Fields of view along the longest side that fisheye photos of unknown lens are tried with, equidistant."""


def assumed_lenses(matches: Matches, model: str) -> list[tuple[str, Matches]]:
    """The matches once for each guess of the lenses, by its name; once where `model` is no fisheye or all are known."""
    if model == AUTO or not lens.is_fisheye(model) or all(image.lens for image in matches.images):
        return [("", matches)]
    return [
        (f"fisheye{fov:g}", replace(matches, images=[_assumed(image, fov) for image in matches.images]))
        for fov in FISHEYE_FOV_DEG
    ]


def _assumed(image: ImageInfo, fov_deg: float) -> ImageInfo:
    """The image with an equidistant fisheye, unless its lens or its focal length is known."""
    if image.lens is not None:
        return image
    focal_px = 2 * image.half_side_px / np.radians(fov_deg)
    params = (float(focal_px), image.width / 2, image.height / 2)
    return replace(image, lens=KnownLens(model="SIMPLE_FISHEYE", params=params, sigma=(np.inf,) * 3, assumed=True))


def with_lenses(matches: Matches, images: np.ndarray, lenses: Sequence[KnownLens | None]) -> Matches:
    """The matches with the lenses of some of their images."""
    if not any(lenses):
        return matches
    infos = list(matches.images)
    for k, known in zip(np.asarray(images).tolist(), lenses, strict=True):
        infos[k] = replace(infos[k], lens=known)
    return replace(matches, images=infos)


def has_lenses(matches: Matches) -> bool:
    """Whether the lens of any image is known or assumed."""
    return any(image.lens for image in matches.images)


def pinhole_matches(matches: Matches) -> Matches:
    """The matches as pinhole cameras without distortion see them."""
    views = [_view(image) for image in matches.images]
    pairs = {}
    for (i, j), pair in matches.pairs.items():
        one, other = pinhole_pixels(matches.images[i], pair.points_i), pinhole_pixels(matches.images[j], pair.points_j)
        kept = np.isfinite(one).all(axis=1) & np.isfinite(other).all(axis=1)
        if kept.any():
            seen = (one[kept].astype(np.float32), other[kept].astype(np.float32))
            pairs[i, j] = PairMatches(*seen, pair.scores[kept])
    return replace(matches, images=views, pairs=pairs)


def pinhole_pixels(image: ImageInfo, xy: np.ndarray) -> np.ndarray:
    """Pixels [M, 2] of the pinhole view of pixels [M, 2] of an image; NaN where that does not see them."""
    if image.lens is None:
        return np.asarray(xy, np.float64)
    view, known = _view(image), image.lens
    direction = lens.unproject(known.model, np.array(known.params), xy)  # [M, 3]
    seen = direction[:, 2:] > np.cos(np.radians(FLAT_LIMIT_DEG))
    plane = direction[:, :2] / np.where(seen, direction[:, 2:], np.nan)
    return plane * _focal_px(view) + np.array([view.width, view.height]) / 2


def _view(image: ImageInfo) -> ImageInfo:
    """The pinhole view of an image: of its own size and focal length, of a fisheye as large as it must be."""
    known = image.lens
    if known is None:
        return image
    columns = lens.widened(known.model, np.array(known.params))
    focal_px = float(np.sqrt(columns[lens.FX] * columns[lens.FY]))
    width, height = image.width, image.height
    if lens.is_fisheye(known.model):
        camera = lens.plane_of_pixels(known.model, np.array(known.params), _edges(image))  # [4, 2]
        angle = np.minimum(np.abs(camera), np.radians(FLAT_LIMIT_DEG))
        across, down = np.tan(angle[:2, 0]).max(), np.tan(angle[2:, 1]).max()
        width, height = (max(1, round(2 * focal_px * side)) for side in (across, down))
    return replace(image, width=width, height=height, focal_px=focal_px, lens=None)


def _focal_px(view: ImageInfo) -> float:
    assert view.focal_px is not None
    return view.focal_px


def _edges(image: ImageInfo) -> np.ndarray:
    """Middles of the left, right, top and bottom edge [4, 2]."""
    w, h = image.width, image.height
    return np.array([[0, h / 2], [w, h / 2], [w / 2, 0], [w / 2, h]], np.float64)


def pinhole_setup(setup: CameraSetup, images: Sequence[ImageInfo]) -> CameraSetup:
    """The cameras of the pinhole views of images: focal lengths of known lenses are known. All are held if they are."""
    views = [_view(image) for image in images]
    known_focal_px = setup.known_focal_px.copy()
    for view, image, camera in zip(views, images, setup.camera_of_image.tolist(), strict=True):
        if image.lens is not None:
            known_focal_px[camera] = view.focal_px
    every = len(setup.lenses) > 0 and all(setup.lenses)
    return replace(setup, known_focal_px=known_focal_px, lenses=(), focal_sigma=0.0 if every else setup.focal_sigma)


def lens_solution(solution: Solution, setup: CameraSetup, images: Sequence[ImageInfo], name: str = "") -> Solution:
    """A world of pinhole views as one of the photos themselves: maps on their pixels, and their cameras."""
    log_depth, log_variance = solution.log_depth.copy(), solution.log_variance.copy()
    focal_px = solution.focal_px.copy()
    for n, image in enumerate(images):
        known: KnownLens | None = image.lens
        if known is None:
            continue
        columns = lens.widened(known.model, np.array(known.params))
        focal_px[n] = columns[[lens.FX, lens.FY]]
        for maps in (log_depth, log_variance):
            maps[n] = _resampled(maps[n], image)
        if lens.is_fisheye(known.model):  # its depth is the distance
            log_depth[n] -= np.log(_cosines(image, log_depth.shape[1]))
    return replace(
        solution, name=name or solution.name, cameras=setup, focal_px=focal_px, log_depth=log_depth,
        log_variance=log_variance,
    )  # fmt: skip


def _cells(image: ImageInfo, side: int) -> np.ndarray:  # [side * side, 2]
    centre = (np.arange(side) + 0.5) / side
    return np.stack(np.meshgrid(centre, centre), axis=-1).reshape(-1, 2) * [image.width, image.height]


def _cosines(image: ImageInfo, side: int) -> np.ndarray:  # [side, side]
    """Of the angle of each cell from the axis, at least that of the limit."""
    assert image.lens is not None
    z = lens.unproject(image.lens.model, np.array(image.lens.params), _cells(image, side))[:, 2]
    return np.maximum(z, np.cos(np.radians(FLAT_LIMIT_DEG))).reshape(side, side)


def _resampled(values: np.ndarray, image: ImageInfo) -> np.ndarray:
    """A map [m, m] of the pinhole view on the grid of the photo; beyond the limit the value at the limit."""
    side = len(values)
    assert image.lens is not None
    direction = lens.unproject(image.lens.model, np.array(image.lens.params), _cells(image, side))
    view = _view(image)
    angle = np.minimum(np.arccos(np.clip(direction[:, 2], -1, 1)), np.radians(FLAT_LIMIT_DEG))
    sine = np.maximum(np.linalg.norm(direction[:, :2], axis=1), 1e-12)
    plane = direction[:, :2] / sine[:, None] * np.tan(angle)[:, None]
    relative = plane * _focal_px(view) / [view.width, view.height] + 0.5
    return sample_maps(values[None], np.zeros(len(relative), int), relative).reshape(side, side).astype(values.dtype)
