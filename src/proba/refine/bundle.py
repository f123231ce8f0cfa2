"""The state of the refinement: poses, intrinsics, points, and which observations hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from proba.geometry.camera import (
    CX,
    CY,
    FX,
    FY,
    K1,
    K2,
    MODELS,
    P1,
    UNIT_SIDE_PX,
    WIDTH,
    directions,
    has_one_focal,
    is_fisheye,
    pixels_of_plane,
    plane_of_points,
    undistorted,
    undistorted_of_many,
    widened,
)
from proba.graph import ViewGraph
from proba.matches import KnownLens, Matches
from proba.refine.rig import Rig
from proba.refine.tracks import Tracks
from proba.solution import Solution

_UNDISTORT_ITERATIONS = 12


@dataclass(frozen=True, eq=False)
class PosePrior:
    """What is known of the poses beforehand, in the world of the bundle."""

    cam_from_world: np.ndarray  # [N, 4, 4]
    precision: np.ndarray  # [N, 6], 1/sigma^2 of rotation (rad, camera axes) and centre (world axes); zero: not known

    def residual(self, cam_from_world: np.ndarray) -> np.ndarray:  # [N, 6]
        """By how much poses [N, 4, 4] are off: a step of this size the other way would bring them back."""
        here, there = cam_from_world[:, :3, :3], self.cam_from_world[:, :3, :3]
        turn = Rotation.from_matrix(here @ there.transpose(0, 2, 1)).as_rotvec()  # [N, 3]
        return np.concatenate([turn, _centres(cam_from_world) - _centres(self.cam_from_world)], axis=1)

    def of(self, chosen: np.ndarray) -> PosePrior:
        """That of the images `chosen` [S] alone."""
        return PosePrior(self.cam_from_world[chosen], self.precision[chosen])


def _centres(cam_from_world: np.ndarray) -> np.ndarray:  # [N, 3]
    return -np.einsum("nji,nj->ni", cam_from_world[:, :3, :3], cam_from_world[:, :3, 3])


@dataclass(kw_only=True)
class Bundle:
    """Cameras and points of one world. Pixels are unit pixels: images are scaled to UNIT_SIDE_PX."""

    tracks: Tracks
    cam_from_world: np.ndarray  # [N, 4, 4] float64
    camera_of_image: np.ndarray  # [N] int
    camera_size: np.ndarray  # [C, 2] float64, width and height
    intrinsics: np.ndarray  # [C, WIDTH] float64, columns of `proba.geometry.camera`: fx, fy, cx, cy, k1, k2, ...
    camera_model: list[str]
    """COLMAP's model name of each camera; the parameters a model lacks stay at the centre, or zero."""
    prior: np.ndarray  # [C, WIDTH] float64, precisions 1/sigma^2 of a prior at `expected`, zero for none
    known_focal: np.ndarray  # [C] float64, known beforehand; NaN: not known
    focal_sigma: float | np.ndarray
    """Standard deviation of the known focal lengths, as a share of them; 0: they are held. Of all, or of each [C]."""
    calibration: np.ndarray | None = None  # [C, WIDTH] float64, told beforehand; NaN in cameras without; None: in all
    calibration_sigma: np.ndarray | None = None  # [C, WIDTH], its standard deviations; 0: held, infinite: a start alone
    xyz: np.ndarray  # [T, 3] float64
    alive: np.ndarray  # [K] bool, observations that agree with the rest
    pose_prior: PosePrior | None = None
    """What holds the poses besides the observations; None: nothing does, and the world is free."""
    rig: Rig | None = None
    """Which images cannot move against each other; None: all can."""

    @property
    def n_images(self) -> int:
        return len(self.cam_from_world)

    @property
    def n_cameras(self) -> int:
        return len(self.intrinsics)

    @property
    def many_cameras(self) -> bool:
        """Whether most photos have a camera of their own, and so other light and other days than the others."""
        return self.n_cameras > self.n_images // 2

    @property
    def centres(self) -> np.ndarray:  # [N, 3], camera centres in the world
        return _centres(self.cam_from_world)

    @property
    def known(self) -> np.ndarray:  # [C] bool
        """Cameras whose focal length is known beforehand."""
        return np.isfinite(self.known_focal)

    @property
    def held(self) -> np.ndarray:  # [C] bool
        """Cameras whose focal length does not change."""
        return self.known & (self.focal_sigma == 0)

    @property
    def focal_prior_sigma(self) -> np.ndarray:  # [C]
        """Standard deviation of the focal lengths known beforehand that may change; infinite for the others."""
        return np.where(self.known & ~self.held, self.focal_sigma * self.known_focal, np.inf)

    @property
    def calibrated(self) -> np.ndarray:  # [C] bool
        """Cameras whose whole lens was told beforehand: its model stays, and what was said of each parameter counts."""
        if self.calibration is None:
            return np.zeros(self.n_cameras, bool)
        return np.isfinite(self.calibration[:, FX])

    @property
    def expected(self) -> np.ndarray:  # [C, WIDTH]
        """The intrinsics with known focal lengths, the principal point in the centre and without distortion; those of
        calibrated cameras as they were told."""
        intrinsics = np.zeros_like(self.intrinsics)
        intrinsics[:, [FX, FY]], intrinsics[:, [CX, CY]] = self.intrinsics[:, [FX, FY]], self.camera_size / 2
        intrinsics[self.known, FX] = intrinsics[self.known, FY] = self.known_focal[self.known]
        if self.calibration is not None:
            intrinsics[self.calibrated] = self.calibration[self.calibrated]
        return intrinsics

    @property
    def one_focal(self) -> np.ndarray:  # [C] bool
        """Cameras with square pixels, whose two focal lengths are one parameter."""
        one = np.array([has_one_focal(model) for model in self.camera_model])
        return one | self.square

    @property
    def square(self) -> np.ndarray:  # [C] bool
        """Cameras whose model has two focal lengths that are held equal: nothing says that pixels are oblong."""
        two = [model not in ("PINHOLE", "FISHEYE") and not has_one_focal(model) for model in self.camera_model]
        return np.array(two) & ~self.calibrated

    @property
    def fisheye(self) -> np.ndarray:  # [C] bool
        """Cameras that see beside themselves; depth is the distance from them."""
        return np.array([is_fisheye(model) for model in self.camera_model], bool)

    @property
    def share(self) -> float:
        """Share of the observations that hold."""
        return float(self.alive.mean()) if len(self.alive) else 0.0

    def alive_per_track(self, images: np.ndarray | None = None) -> np.ndarray:
        """Number of observations [T] that hold, counting only `images` [N] bool."""
        held = self.alive if images is None else self.alive & images[self.tracks.image]
        return per_track_sum(self.tracks, held)

    def some_tracks(self, chosen: np.ndarray) -> Bundle:
        """The same cameras with the tracks `chosen` [T] bool, and their points."""
        kept = chosen[self.tracks.track_of_observation]  # [K]
        tracks = self.tracks.take(np.flatnonzero(chosen))
        return replace(self, tracks=tracks, xyz=self.xyz[chosen], alive=self.alive[kept])

    def some_images(self, chosen: np.ndarray) -> Bundle:
        """The images `chosen` [S] alone, with what holds of the points that two of them see; all cameras stay."""
        index = np.full(self.n_images, -1)
        index[chosen] = np.arange(len(chosen))
        kept = self.alive & (index[self.tracks.image] >= 0)  # [K]
        length = per_track_sum(self.tracks, kept)  # [T]
        kept &= (length >= 2)[self.tracks.track_of_observation]
        length = length[length >= 2]
        offset = np.concatenate([[0], np.cumsum(length)])
        image = index[self.tracks.image[kept]]
        return replace(
            self,
            tracks=Tracks(offset, image, self.tracks.xy[kept]),
            cam_from_world=self.cam_from_world[chosen],
            camera_of_image=self.camera_of_image[chosen],
            xyz=self.xyz[per_track_sum(self.tracks, kept) >= 2],
            alive=np.ones(len(image), bool),
            pose_prior=None if self.pose_prior is None else self.pose_prior.of(chosen),
            rig=None if self.rig is None else self.rig.of(chosen),
        )

    def with_tracks(self, tracks: Tracks) -> Bundle:
        """The same cameras with other tracks, whose points are not known yet."""
        xyz, alive = np.zeros((tracks.n_tracks, 3)), np.zeros(tracks.n_observations, bool)
        return replace(self, tracks=tracks, xyz=xyz, alive=alive)


def per_track_sum(tracks: Tracks, values: np.ndarray) -> np.ndarray:
    """Sums [T, ...] over the observations of each track; every track has at least one."""
    if tracks.n_tracks == 0:
        return np.zeros((0, *values.shape[1:]))
    dtype = np.int64 if values.dtype == bool else values.dtype
    return np.add.reduceat(values, tracks.offset[:-1], axis=0, dtype=dtype)


def unit_px(matches: Matches, graph: ViewGraph) -> np.ndarray:
    """Size [N] of a unit pixel in original pixels, for each image of the graph."""
    infos = [matches.images[k] for k in graph.images]
    return np.array([2 * info.half_side_px / UNIT_SIDE_PX for info in infos])


def unit_tracks(tracks: Tracks, unit: np.ndarray) -> Tracks:
    """Tracks in original pixels as tracks in unit pixels; `unit` [N]."""
    return Tracks(tracks.offset, tracks.image, tracks.xy / unit[tracks.image, None])


def bundle_from_solution(matches: Matches, solution: Solution, tracks: Tracks) -> Bundle:
    """Cameras of a world with `tracks` (unit pixels); points are not set yet."""
    infos = [matches.images[k] for k in solution.graph.images]
    unit = unit_px(matches, solution.graph)  # [N]
    size = np.array([[info.width, info.height] for info in infos]) / unit[:, None]  # [N, 2]
    focal = solution.focal_px / unit[:, None]  # [N, 2]
    cameras, camera_of_image = solution.cameras, solution.cameras.camera_of_image
    n_cameras = cameras.n_cameras
    first = np.unique(camera_of_image, return_index=True)[1]  # [C]
    count = np.bincount(camera_of_image, minlength=n_cameras)[:, None]  # [C, 1]
    log_focal = np.zeros((n_cameras, 2))
    np.add.at(log_focal, camera_of_image, np.log(focal))
    intrinsics = np.zeros((n_cameras, WIDTH))
    intrinsics[:, [FX, FY]] = np.exp(log_focal / count)
    intrinsics[:, [CX, CY]] = size[first] / 2
    ratio = intrinsics[:, FX] / intrinsics[:, FY]
    model = ["SIMPLE_PINHOLE" if abs(r - 1) < 1e-6 else "PINHOLE" for r in ratio]
    bundle = Bundle(
        tracks=tracks,
        cam_from_world=solution.cam_from_world.astype(np.float64).copy(),
        camera_of_image=camera_of_image,
        camera_size=size[first],
        intrinsics=intrinsics,
        camera_model=model,
        prior=np.zeros_like(intrinsics),
        known_focal=cameras.known_focal_px / unit[first],
        focal_sigma=cameras.focal_sigma,
        xyz=np.zeros((tracks.n_tracks, 3)),
        alive=np.zeros(tracks.n_observations, bool),
    )
    intrinsics[bundle.held, FX] = intrinsics[bundle.held, FY] = bundle.known_focal[bundle.held]
    bundle = _with_lenses(bundle, cameras.lenses, unit[first])
    return with_focal_prior(bundle, np.ones(n_cameras))


def _with_lenses(bundle: Bundle, lenses: tuple[KnownLens | None, ...], unit: np.ndarray) -> Bundle:
    """The bundle with the lenses that were told of its cameras, if any were; `unit` [C]."""
    if not any(lenses):
        return bundle
    intrinsics, model, known_focal = bundle.intrinsics.copy(), list(bundle.camera_model), bundle.known_focal.copy()
    calibration = np.full(intrinsics.shape, np.nan)
    sigma, prior = np.full(intrinsics.shape, np.nan), bundle.prior.copy()
    focal_sigma = np.broadcast_to(bundle.focal_sigma, known_focal.shape).astype(np.float64)
    for c, lens in enumerate(lenses):
        if lens is None:
            continue
        pixels = np.where(np.arange(WIDTH) <= CY, unit[c], 1.0)  # these are in pixels, distortion has no unit
        told, model[c] = widened(lens.model, np.array(lens.params)) / pixels, lens.model
        intrinsics[c] = told
        if lens.assumed:
            continue
        calibration[c] = told
        sigma[c, list(MODELS[lens.model])] = np.asarray(lens.sigma) / pixels[list(MODELS[lens.model])]
        sigma[c] = np.nan_to_num(sigma[c], nan=0.0, posinf=np.inf)
        weighs = np.isfinite(sigma[c]) & (sigma[c] > 0)
        prior[c, weighs] = 1 / sigma[c, weighs] ** 2
        known_focal[c] = told[FX] if np.isfinite(sigma[c, FX]) else np.nan
        focal_sigma[c] = sigma[c, FX] / told[FX] if np.isfinite(sigma[c, FX]) else bundle.focal_sigma
    return replace(
        bundle,
        intrinsics=intrinsics,
        camera_model=model,
        prior=prior,
        known_focal=known_focal,
        focal_sigma=focal_sigma,
        calibration=calibration,
        calibration_sigma=sigma,
    )


def with_focal_prior(bundle: Bundle, strength: np.ndarray) -> Bundle:
    """The bundle with priors of the focal lengths that are known but not held, each `strength` [C] times as strong."""
    prior, plain = bundle.prior.copy(), ~bundle.calibrated
    prior[np.ix_(plain, np.array([FX, FY]))] = (strength / bundle.focal_prior_sigma**2)[plain, None]
    return replace(bundle, prior=prior)


def project(bundle: Bundle) -> tuple[np.ndarray, np.ndarray]:
    """Projections [K, 2] in unit pixels and depths [K] of every observation's point."""
    point_cam, camera = points_in_cameras(bundle), bundle.camera_of_image[bundle.tracks.image]  # [K, 3], [K]
    return point_pixels(bundle, camera, point_cam), depths_in_cameras(bundle, camera, point_cam)


def depths_in_cameras(bundle: Bundle, camera: np.ndarray, point_cam: np.ndarray) -> np.ndarray:
    """Depths [K] of points [K, 3] in the frames of cameras [K]: z, or the distance from a fisheye."""
    if not bundle.fisheye.any():
        return point_cam[:, 2]
    return np.where(bundle.fisheye[camera], np.linalg.norm(point_cam, axis=1), point_cam[:, 2])


def points_in_cameras(bundle: Bundle) -> np.ndarray:
    """The point of each observation in the frame of its camera, [K, 3]."""
    cam_from_world = bundle.cam_from_world[bundle.tracks.image]  # [K, 4, 4]
    xyz = bundle.xyz[bundle.tracks.track_of_observation]  # [K, 3]
    return np.einsum("kij,kj->ki", cam_from_world[:, :3, :3], xyz) + cam_from_world[:, :3, 3]


def observed_depths(bundle: Bundle) -> np.ndarray:
    """Depth [K] of each observation's point in its camera."""
    return depths_in_cameras(bundle, bundle.camera_of_image[bundle.tracks.image], points_in_cameras(bundle))


def reprojection_errors(bundle: Bundle) -> np.ndarray:
    """Error [K] of each observation in unit pixels; infinite behind the camera."""
    projected, depth = project(bundle)
    error = np.linalg.norm(projected - bundle.tracks.xy, axis=1)
    return np.where(depth > 1e-9, error, np.inf)


def point_pixels(bundle: Bundle, camera: np.ndarray, point_cam: np.ndarray) -> np.ndarray:
    """Unit pixels [K, 2] of points [K, 3] in the frames of cameras [K]; also of those behind a perspective one."""
    z = point_cam[:, 2:]  # [K, 1]
    plane = point_cam[:, :2] / np.where(np.abs(z) > 1e-12, z, 1e-12)  # [K, 2]
    intrinsics, fisheye = bundle.intrinsics[camera], bundle.fisheye[camera]  # [K, WIDTH], [K]
    pixels = pixels_of_plane(plane, intrinsics, False)
    if fisheye.any():
        around = np.nan_to_num(plane_of_points(point_cam[fisheye], True), nan=np.pi)
        pixels[fisheye] = pixels_of_plane(around, intrinsics[fisheye], True)
    return pixels


def pixel_rays(bundle: Bundle, camera: np.ndarray, xy: np.ndarray) -> np.ndarray:
    """Rays [K, 3] of unit pixels [K, 2] of cameras [K], distortion undone: depth times a ray is a point.

    They are homogeneous, (x/z, y/z, 1), and unit directions of a fisheye.
    """
    intrinsics = bundle.intrinsics[camera]  # [K, WIDTH]
    plane = (xy - intrinsics[:, [CX, CY]]) / intrinsics[:, [FX, FY]]  # [K, 2]
    rich = (bundle.intrinsics[:, P1:].any(axis=1) | bundle.fisheye)[camera]  # [K]
    if intrinsics[~rich][:, [K1, K2]].any():
        plane[~rich] = undistorted_of_many(plane[~rich], intrinsics[~rich], iterations=_UNDISTORT_ITERATIONS)
    rays = np.concatenate([plane, np.ones((len(plane), 1))], axis=1)  # [K, 3]
    for c in np.unique(camera[rich]).tolist():
        mine = camera == c
        fisheye = bool(bundle.fisheye[c])
        plane = undistorted(rays[mine, :2], bundle.intrinsics[c], fisheye)
        rays[mine] = directions(plane, True) if fisheye else np.concatenate([plane, np.ones((len(plane), 1))], axis=1)
    return rays


def observation_rays(bundle: Bundle) -> np.ndarray:
    """Rays [K, 3] of all observations."""
    return pixel_rays(bundle, bundle.camera_of_image[bundle.tracks.image], bundle.tracks.xy)
