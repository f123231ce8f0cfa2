"""Depth, normal and standard deviation at every pixel of every photo, and one cloud of all: `proba dense`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np

from proba.dense.merge import Merger, PhotoMaps
from proba.dense.start_planes import depth_bounds
from proba.dense.stereo import Level, StereoView, coarse_planes, fine_planes
from proba.dense.views import neighbour_views
from proba.errors import InputError
from proba.io.atomic import at_once
from proba.io.dense_folder import DensePiece
from proba.io.images import UNREADABLE, mask_files, mask_of_photo, read_reduced
from proba.io.npz import read_npz, write_npz
from proba.io.pinhole import pinhole, resized, warped
from proba.io.ply import write_ply
from proba.io.reading import reading
from proba.point_cloud import Cloud
from proba.reconstruction import Camera, Reconstruction

SMOOTHING_PX = 0.5
"""Bilinear samples of unsmoothed pixels draw places to integers."""
MAP_KINDS = {
    "rho": (np.float32,),
    "sigma": (np.float32,),
    "normal": (np.int8, 3),
    "slope": (np.float32, 2),
    "support": (np.uint8,),
    "rgb": (np.uint8, 3),
}
"""Maps of a photo on disk: the kind of number, and how many of them a pixel has if not one."""
N_LEVELS = 3
KEPT_VIEWS = 48
"""Photos in memory at a time, about 4 MB each at 800 pixels."""
LEAST_SIDE_PX = 64
"""A quarter of it is little more than one patch."""
MIN_POINTS = 3
"""Points that a photo must see for a search to begin."""


@dataclass(frozen=True, kw_only=True)
class DenseOptions:
    """How dense depth is made."""

    max_side_px: int = 800
    """Longest side of the compared photos, pixels: twice that is four times the work."""
    neighbours: int = 6
    """Photos that each is compared with, those that see the same points under a good angle first."""
    judges: int = 12
    """Photos that are asked whether a depth can be true. More find more false ones."""
    min_agreeing: int = 2
    """Photos that must agree with a depth; one is enough where a photo has a single neighbour."""
    max_relative_sigma: float = 0.02
    """Largest standard deviation of a depth that is kept, as a share of the depth."""

    def __post_init__(self) -> None:
        if self.max_side_px < LEAST_SIDE_PX:
            raise InputError(f"--max-side must be at least {LEAST_SIDE_PX} pixels, not {self.max_side_px}.")


class DenseObserver(Protocol):
    """Is told how far the work is."""

    def begin(self, what: str, total: int, unit: str) -> None: ...

    def advance(self) -> None: ...


class Quiet:
    """Nobody watches."""

    def begin(self, what: str, total: int, unit: str) -> None:
        pass

    def advance(self) -> None:
        pass


@dataclass(frozen=True, kw_only=True)
class DenseResult:
    """What was found for one piece."""

    cloud: Cloud
    shares: dict[str, float]
    """Share of the pixels that have a depth, by image."""
    missing: dict[str, dict[str, float]]
    """Share of the pixels that have none because they are bare, contradicted or lost (`missing_shares`), by image."""
    sigma_scale: float
    """What the deviations were multiplied by so that photos disagree as much as they say."""

    def facts(self) -> dict:
        """For dense.json."""
        return {
            "points": len(self.cloud.xyz),
            "sigma_scale": self.sigma_scale,
            "images": {name: {"share_with_depth": share, **self.missing[name]} for name, share in self.shares.items()},
        }


def dense_depth(
    reconstruction: Reconstruction,
    photos: Path,
    piece: DensePiece,
    options: DenseOptions | None = None,
    *,
    masks: Path | None = None,
    observer: DenseObserver | None = None,
) -> DenseResult:
    """Write the depth of every photo and the cloud of all; images that `piece` already has work files of are kept."""
    options, observer = options or DenseOptions(), observer or Quiet()
    source = _Source(reconstruction, photos, masks, options.max_side_px)
    everyone = neighbour_views(reconstruction, max(options.judges, options.neighbours))
    stereo = [views[: options.neighbours] for views in everyone]
    names = reconstruction.image_names
    _each(names, piece, "coarse", "coarse depth", observer, lambda n: _coarse(source, n, stereo[n]))
    coarse = _Kept(lambda n: _read_planes(piece.work_file("coarse", names[n])))
    _each(names, piece, "fine", "fine depth", observer, lambda n: _fine(source, coarse, n, stereo[n]))
    merger = Merger(
        reconstruction, _Kept(lambda n: _read_maps(piece.work_file("fine", names[n]))).get, everyone,
        min_agreeing=options.min_agreeing, max_relative_sigma=options.max_relative_sigma,
    )  # fmt: skip
    scale = merger.calibrate()
    shares = {}
    observer.begin("fusing", len(names), "photo")
    for n, name in enumerate(names):
        depth = merger.add(n)
        piece.write_depth(name, depth)
        shares[name] = depth.share
        observer.advance()
    cloud = merger.cloud()
    write_ply(piece.cloud, cloud.xyz, cloud.rgb, cloud.sigma, cloud.normals)
    missing = {name: merger.missing[n] for n, name in enumerate(names)}
    return DenseResult(cloud=cloud, shares=shares, missing=missing, sigma_scale=scale)


def _each(
    names: list[str],
    piece: DensePiece,
    stage: str,
    what: str,
    observer: DenseObserver,
    work: Callable[[int], dict[str, np.ndarray]],
) -> None:
    """Do a stage for all images that it is not done for, and write what it leaves."""
    observer.begin(what, len(names), "photo")
    for n, name in enumerate(names):
        path = piece.work_file(stage, name)
        if not path.is_file():
            with at_once():
                write_npz(path, work(n))
        observer.advance()


class _Kept:
    """The last things that were asked for."""

    def __init__(self, make: Callable[[int], object], most: int = KEPT_VIEWS):
        self.make, self.most = make, most
        self.kept: OrderedDict[int, object] = OrderedDict()

    def get(self, n: int):
        if n not in self.kept:
            self.kept[n] = self.make(n)
            if len(self.kept) > self.most:
                self.kept.popitem(last=False)
        self.kept.move_to_end(n)
        return self.kept[n]


class _Source:
    """Photos without distortion, in all sizes."""

    def __init__(self, reconstruction: Reconstruction, photos: Path, masks: Path | None, max_side_px: int):
        self.reconstruction, self.photos, self.max_side_px = reconstruction, photos, max_side_px
        self.masks = mask_files(masks) if masks else {}
        self.pinholes = [pinhole(camera) for camera in reconstruction.cameras]
        self._views = _Kept(self._view)

    def view(self, n: int) -> StereoView:
        return self._views.get(n)

    def colour(self, n: int) -> tuple[np.ndarray, np.ndarray | None, Camera]:
        """RGB [h, w, 3], where it counts [h, w] and the camera of a photo at the size that is compared."""
        name = self.reconstruction.image_names[n]
        path = self.photos / name
        try:
            rgb, mask = read_reduced(path, mask_of_photo(name, self.masks), self.max_side_px)
        except UNREADABLE as error:
            raise InputError(f"The photo {path} cannot be read ({error}). Give the folder with --images.") from error
        original = self.reconstruction.camera(n)
        camera = resized(self.pinholes[self.reconstruction.camera_of_image[n]], rgb.shape[1], rgb.shape[0])
        if mask is not None:
            mask = warped(mask.astype(np.uint8), original, camera, outside=cv2.BORDER_CONSTANT) > 0
        return warped(rgb, original, camera), mask, camera

    def _view(self, n: int) -> StereoView:
        rgb, _, camera = self.colour(n)
        grey = cv2.GaussianBlur(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32), (0, 0), SMOOTHING_PX)
        levels = [Level(grey, camera)]
        for _ in range(1, N_LEVELS):
            height, width = (max(1, side // 2) for side in levels[-1].grey.shape)
            grey = cv2.resize(levels[-1].grey, (width, height), interpolation=cv2.INTER_AREA)
            levels.append(Level(np.ascontiguousarray(grey), resized(camera, width, height)))
        return StereoView(levels=tuple(levels), cam_from_world=self.reconstruction.cam_from_world[n])

    def start(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Points that a photo sees: places [K, 2] as shares of its width and height, and inverse depths [K]."""
        points, pose = self.reconstruction.points, self.reconstruction.cam_from_world[n]
        xyz = points.xyz[points.obs_point[points.obs_image == n]]
        in_camera = xyz @ pose[:3, :3].T + pose[:3, 3]
        camera = self.pinholes[self.reconstruction.camera_of_image[n]]
        xy = camera.project(in_camera) / [camera.width, camera.height]
        seen = ((xy > 0) & (xy < 1)).all(axis=1) & (in_camera[:, 2] > 0)
        return xy[seen], 1 / in_camera[seen, 2]


def _coarse(source: _Source, n: int, others: list[int]) -> dict[str, np.ndarray]:
    xy, inverse_depth = source.start(n)
    view = source.view(n)
    if len(xy) < MIN_POINTS or not others:
        return {"planes": np.zeros((*view.levels[1].grey.shape, 3), np.float32), "bounds": np.zeros(2, np.float32)}
    found = coarse_planes(view, [source.view(j) for j in others], xy, inverse_depth)
    planes = np.where(found.sigma[..., None] > 0, found.planes, 0.0).astype(np.float32)
    return {"planes": planes, "start": found.planes, "bounds": depth_bounds(inverse_depth)}


def _read_planes(path: Path) -> dict[str, np.ndarray]:
    with _reading_work(path):
        file = read_npz(path)
        start = file.get("start", file["planes"])
        if file["planes"].shape[2:] != (3,) or start.shape != file["planes"].shape or file["bounds"].shape != (2,):
            raise ValueError("its planes have another shape")
        return file


def _reading_work(path: Path) -> AbstractContextManager[None]:
    return reading(path, "what an interrupted run has left", "Run again without --resume.")


def _fine(source: _Source, coarse: _Kept, n: int, others: list[int]) -> dict[str, np.ndarray]:
    view = source.view(n)
    rgb, mask, camera = source.colour(n)
    known = coarse.get(n)
    height, width = view.levels[0].grey.shape
    maps = {"rgb": rgb, "params": camera.params, "rho": np.zeros((height, width), np.float32)}
    maps |= {"sigma": maps["rho"].copy(), "normal": np.zeros((height, width, 3), np.int8)}
    maps |= {"slope": np.zeros((height, width, 2), np.float32), "support": np.zeros((height, width), np.uint8)}
    if known["bounds"][1] > 0:
        found = fine_planes(
            view, [source.view(j) for j in others], known["start"], [coarse.get(j)["planes"] for j in others],
            known["bounds"],
        )  # fmt: skip
        maps |= {"rho": found.planes[..., 0], "sigma": found.sigma, "normal": plane_normals(found.planes, camera)}
        maps |= {"slope": found.planes[..., 1:] / found.planes[..., :1], "support": found.support}
        if mask is not None:
            maps["sigma"] = np.where(mask, found.sigma, 0).astype(np.float32)
    return maps


def plane_normals(planes: np.ndarray, camera: Camera) -> np.ndarray:  # [h, w, 3] int8, towards the camera, 127ths
    """Normals of planes [h, w, 3] (rho, a, b) in the camera's frame."""
    height, width = planes.shape[:2]
    (fx, fy), (cx, cy) = camera.focal_px, camera.principal_point_px - 0.5
    rho, a, b = np.moveaxis(planes, -1, 0)
    normal = -np.stack([a * fx, b * fy, rho - a * (np.arange(width) - cx) - b * (np.arange(height) - cy)[:, None]], -1)
    normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-20)
    return np.rint(127 * normal).astype(np.int8)


def _read_maps(path: Path) -> PhotoMaps:
    with _reading_work(path):
        file = read_npz(path)
        height, width = file["rho"].shape
        camera = Camera(model="PINHOLE", width=width, height=height, params=file["params"])
        maps = {name: file[name] for name in MAP_KINDS}
        for name, (kind, *channels) in MAP_KINDS.items():
            if maps[name].shape != (height, width, *channels) or maps[name].dtype != kind:
                raise ValueError(f"its map {name} has another shape or kind of number")
        return PhotoMaps(camera=camera, **maps)
