"""The pose of a photo in a model that is there already, with its covariance."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import poselib
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from proba.errors import GeometryError
from proba.geometry.camera import UNIT_SIDE_PX, focal_from_fov
from proba.io.images import Photo, inspect_photo, photos_named
from proba.matches import ImageInfo
from proba.matching.features import FeatureCache
from proba.matching.folder import HELD_BYTES
from proba.matching.matcher import Features
from proba.matching.pair_work import first_features
from proba.matching.sift import Sift
from proba.memory import Budget, allowed_bytes
from proba.reconstruction import Camera, Reconstruction
from proba.threads import in_parallel

FEATURES = "features"
"""Folder in a result that keeps the features of its photos."""


@dataclass(frozen=True, kw_only=True)
class LocalizeOptions:
    """How a photo is found in a model. Pixels are those of an image scaled to 1024 px."""

    look: int = 500
    """Most telling features of each photo that are compared at first."""
    neighbours: int = 12
    """Photos of the model that are then matched in full: those that look most alike."""
    near_px: float = 1.5
    """A feature of a model's photo is the point whose observation is this near."""
    point_px: float = 6.0
    """Reprojection error of an inlier while the pose is searched."""
    iterations: int = 5000
    """RANSAC iterations at most: enough for one inlier in seven."""
    min_iterations: int = 100
    """RANSAC iterations at least."""
    min_inliers: int = 12
    """Points that must agree: fewer agree by chance."""
    fov_deg: tuple[float, ...] = (50.0, 66.0, 36.0, 85.0, 25.0)
    """Fields of view along the longest side that are tried where the camera is not one of the model's, degrees."""
    steps: int = 20
    """Steps of the last adjustment of the pose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Localized:
    """Where a photo was taken."""

    name: str
    cam_from_world: np.ndarray  # [4, 4] float64
    covariance: np.ndarray  # [6, 6], rotation (rad, about the camera's axes), then centre (scene units, world axes)
    camera: Camera
    camera_known: bool
    """Whether the camera is one of the model's; otherwise its focal length was found with the pose."""
    inliers: int
    """Points that agree."""
    share: float
    """Of the points that were matched."""

    @property
    def centre(self) -> np.ndarray:  # [3]
        return -self.cam_from_world[:3, :3].T @ self.cam_from_world[:3, 3]

    @property
    def std(self) -> np.ndarray:  # [6]
        return np.sqrt(np.diag(self.covariance))

    def __repr__(self) -> str:
        return f"Localized({self.name}, {self.inliers} points agree, {100 * self.share:.0f} %)"


@dataclass(kw_only=True)
class Localizer:
    """A model that photos are looked for in. The features of its photos are made once, and kept in `folder`."""

    reconstruction: Reconstruction
    photos: Path
    folder: Path
    options: LocalizeOptions = field(default_factory=LocalizeOptions)

    def __post_init__(self) -> None:
        self._matcher = Sift()
        self._cache = FeatureCache(
            self._matcher,
            self.folder,
            "sift",
            held_bytes=min(HELD_BYTES, allowed_bytes() / 4),
            budget=Budget(allowed_bytes() / 2),
        )
        self._photos = photos_named(self.photos, self.reconstruction.image_names)
        in_parallel(self._cache.get, self._photos)
        points = self.reconstruction.points
        by_image = np.argsort(points.obs_image, kind="stable")
        borders = np.searchsorted(points.obs_image[by_image], np.arange(len(self._photos) + 1))
        self._observed = [by_image[a:b] for a, b in pairwise(borders)]
        self._trees = [cKDTree(points.obs_xy[mine]) if len(mine) else None for mine in self._observed]

    def localize(self, path: str | Path) -> Localized:
        """The pose of a photo; GeometryError if it shows too little of the model."""
        photo = inspect_photo(Path(path))
        features = self._cache.get(photo)
        xy, point = self._matched_points(photo, features)
        if len(xy) < self.options.min_inliers:
            raise GeometryError(
                f"{photo.info.name} has {len(xy)} points in common with the model; {self.options.min_inliers} are "
                "needed. Take a photo that shows more of it"
            )
        xyz, sigma = self.reconstruction.points.xyz[point], self.reconstruction.points.sigma[point]
        return _located(photo, self._camera_of(photo), xy, xyz, sigma, self.options)

    def localize_or_say(self, path: Path) -> Localized | GeometryError:
        """The pose of a photo, or why there is none."""
        try:
            return self.localize(path)
        except GeometryError as error:
            return error

    def _matched_points(self, photo: Photo, features: Features) -> tuple[np.ndarray, np.ndarray]:
        """Pixels [M, 2] of the photo and the points of the model [M] that they show, each pair once."""
        found = in_parallel(lambda k: self._points_in(k, features), self._most_alike(features))
        xy = np.concatenate([np.zeros((0, 2), np.float32), *(pixels for pixels, _ in found)])
        point = np.concatenate([np.zeros(0, np.int64), *(points for _, points in found)])
        _, first = np.unique(np.column_stack([xy, point]), axis=0, return_index=True)
        return xy[first].astype(np.float64), point[first]

    def _most_alike(self, features: Features) -> list[int]:
        """The model's photos with most matches at a quick look."""
        few = first_features(features, self.options.look)

        def look(k: int) -> int:
            other = first_features(self._cache.get(self._photos[k]), self.options.look)
            return len(self._matcher.match(few, other).scores)

        counts = np.array(in_parallel(look, range(len(self._photos))))
        return np.argsort(-counts, kind="stable")[: self.options.neighbours].tolist()

    def _points_in(self, k: int, features: Features) -> tuple[np.ndarray, np.ndarray]:
        """Pixels of the photo and points of the model by the matches with one of its photos."""
        tree = self._trees[k]
        pair = self._matcher.match(features, self._cache.get(self._photos[k]))
        if tree is None or not len(pair.scores):
            return np.zeros((0, 2), np.float32), np.zeros(0, np.int64)
        info = self._photos[k].info
        distance, nearest = tree.query(pair.points_j)
        near = distance < self.options.near_px * 2 * info.half_side_px / UNIT_SIDE_PX
        return pair.points_i[near], self.reconstruction.points.obs_point[self._observed[k][nearest[near]]]

    def _camera_of(self, photo: Photo) -> Camera | None:
        """The model's camera that took the photo: of equal size and equal EXIF; None where there is none. Without EXIF
        an equal size says something only if photos of the model share a camera by it."""
        shared = np.bincount(self.reconstruction.camera_of_image) > 1  # [C]
        for k, other in enumerate(self._photos):
            told = bool(photo.info.camera_key) or shared[self.reconstruction.camera_of_image[k]]
            if other.info.camera == photo.info.camera and told:
                return self.reconstruction.camera(k)
        return None


def _located(
    photo: Photo,
    camera: Camera | None,
    xy: np.ndarray,
    xyz: np.ndarray,
    sigma: np.ndarray,
    options: LocalizeOptions,
) -> Localized:
    """From pixels [M, 2] and points [M, 3] with their deviations [M]."""
    info = photo.info
    unit = 2 * info.half_side_px / UNIT_SIDE_PX
    long_px = max(info.width, info.height)
    cameras = (
        [camera]
        if camera is not None
        else [_pinhole(info.width, info.height, f) for f in _focals(long_px, info, options)]
    )
    tried = [_searched(one, xy, xyz, options.point_px * unit, options) for one in cameras]
    best = max(range(len(cameras)), key=lambda k: int(tried[k][1].sum()))
    chosen, (pose, inlier) = cameras[best], tried[best]
    if inlier.sum() < options.min_inliers:
        raise GeometryError(
            f"only {int(inlier.sum())} of {len(xy)} points agree on a pose of {info.name}. "
            "Take a photo that shows more of the model"
        )
    fitted = _Fit(chosen, xy[inlier], xyz[inlier], sigma[inlier], free_focal=camera is None)
    pose, focal, covariance = fitted.run(pose, options.steps)
    return Localized(
        name=info.name,
        cam_from_world=pose,
        covariance=covariance,
        camera=chosen if camera is not None else _pinhole(info.width, info.height, focal),
        camera_known=camera is not None,
        inliers=int(inlier.sum()),
        share=float(inlier.mean()),
    )


def _focals(long_px: int, info: ImageInfo, options: LocalizeOptions) -> list[float]:
    told = [] if info.focal_px is None else [info.focal_px]
    return told + [float(focal_from_fov(fov, long_px)) for fov in options.fov_deg]


def _pinhole(width: int, height: int, focal_px: float) -> Camera:
    return Camera(
        model="SIMPLE_PINHOLE", width=width, height=height, params=np.array([focal_px, width / 2, height / 2])
    )


def _searched(
    camera: Camera, xy: np.ndarray, xyz: np.ndarray, bound_px: float, options: LocalizeOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Pose [4, 4] and inliers [M] bool by sampling."""
    focal = float(np.sqrt(np.prod(camera.focal_px)))
    plane = camera.rays(xy)[:, :2] * focal  # [M, 2], as a centred pinhole camera sees them
    pinhole = {"model": "SIMPLE_PINHOLE", "width": camera.width, "height": camera.height, "params": [focal, 0.0, 0.0]}
    ransac = {
        "max_reproj_error": bound_px,
        "max_iterations": options.iterations,
        "min_iterations": options.min_iterations,
        "seed": 0,
    }
    pose, info = poselib.estimate_absolute_pose(plane, xyz, pinhole, ransac, {})
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = pose.R, pose.t
    return matrix, np.array(info["inliers"], bool)


class _Fit:
    """Pose, and focal length where it is not known, that fit pixels [M, 2] and points [M, 3] best."""

    def __init__(self, camera: Camera, xy: np.ndarray, xyz: np.ndarray, sigma: np.ndarray, *, free_focal: bool):
        self.focal = float(np.sqrt(np.prod(camera.focal_px)))
        self.plane = camera.rays(xy)[:, :2] * self.focal  # [M, 2]
        self.xyz, self.sigma, self.free_focal = xyz, sigma, free_focal
        self.noise_px = 1.0

    def run(self, pose: np.ndarray, steps: int) -> tuple[np.ndarray, float, np.ndarray]:
        """Pose [4, 4], focal length and covariance [6, 6] of the pose: Gauss-Newton steps with Cauchy's weights."""
        focal = self.focal
        for _ in range(steps):
            residual, jacobian, size, weight = self._weighed(pose, focal)
            self.noise_px *= float(np.clip(np.median(size) / np.sqrt(2 * np.log(2)), 0.5, 2.0))
            system = np.einsum("m,mai,maj->ij", weight, jacobian, jacobian)
            step = -np.linalg.lstsq(system, np.einsum("m,mai,ma->i", weight, jacobian, residual), rcond=None)[0]
            pose, focal = _stepped(pose, step[:6]), focal * (np.exp(step[6]) if self.free_focal else 1.0)
            if np.abs(step).max() < 1e-10:
                break
        _, jacobian, _, weight = self._weighed(pose, focal)
        system = np.einsum("m,mai,maj->ij", weight, jacobian, jacobian)
        return pose, focal, np.linalg.pinv(system)[:6, :6]

    def _weighed(self, pose: np.ndarray, focal: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Residuals [M, 2] and their derivatives, sizes [M] in standard deviations, and weights [M]."""
        residual, jacobian, depth = self._linear(pose, focal)
        spread = self._spread(depth, focal)  # [M]
        size = np.linalg.norm(residual, axis=1) / spread
        return residual, jacobian, size, 1 / (1 + (size / 2) ** 2) / spread**2

    def _spread(self, depth: np.ndarray, focal: float) -> np.ndarray:  # [M]
        """Standard deviation of a residual along an axis: of the pixel, and of the point."""
        return np.hypot(self.noise_px, focal * self.sigma / np.maximum(depth, 1e-9))

    def _linear(self, pose: np.ndarray, focal: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Residuals [M, 2], their derivatives [M, 2, 6 or 7] by a turn about the camera's axes, a shift of its centre
        along the world's, and log focal; and depths [M]."""
        rotation = pose[:3, :3]
        inside = self.xyz @ rotation.T + pose[:3, 3]  # [M, 3]
        x, y, z = inside.T
        z = np.where(np.abs(z) > 1e-9, z, 1e-9)
        seen = focal * inside[:, :2] / z[:, None]  # [M, 2]
        by_point = np.zeros((len(z), 2, 3))
        by_point[:, 0, 0] = by_point[:, 1, 1] = focal / z
        by_point[:, :, 2] = -seen / z[:, None]
        turned = np.zeros((len(z), 3, 3))  # -[inside]x, since inside moves by w x inside
        turned[:, 0, 1], turned[:, 0, 2], turned[:, 1, 2] = z, -y, x
        turned -= turned.transpose(0, 2, 1)
        parts = [by_point @ turned, -by_point @ rotation]
        if self.free_focal:
            parts.append(seen[:, :, None])
        return seen - self.plane, np.concatenate(parts, axis=2), z


def _stepped(pose: np.ndarray, step: np.ndarray) -> np.ndarray:
    """A pose after a small turn about the camera's axes and a shift of its centre."""
    centre = -pose[:3, :3].T @ pose[:3, 3] + step[3:]
    moved = np.eye(4)
    moved[:3, :3] = Rotation.from_rotvec(step[:3]).as_matrix() @ pose[:3, :3]
    moved[:3, 3] = -moved[:3, :3] @ centre
    return moved
