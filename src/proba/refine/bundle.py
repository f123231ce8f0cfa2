"""The state of the refinement: poses, intrinsics, points, and which observations hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from proba.geometry.camera import UNIT_SIDE_PX, WIDTH, pixels_of_plane, undistorted_of_many
from proba.graph import ViewGraph
from proba.matches import Matches
from proba.refine.tracks import Tracks
from proba.solution import Solution

FX, FY, CX, CY, K1, K2 = range(6)
MODEL_PARAMETERS = {
    "SIMPLE_PINHOLE": (FX, CX, CY),
    "PINHOLE": (FX, FY, CX, CY),
    "SIMPLE_RADIAL": (FX, CX, CY, K1),
    "RADIAL": (FX, CX, CY, K1, K2),
}
"""Order of the parameters in COLMAP's models, as columns of `Bundle.intrinsics`."""
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


def _centres(cam_from_world: np.ndarray) -> np.ndarray:  # [N, 3]
    return -np.einsum("nji,nj->ni", cam_from_world[:, :3, :3], cam_from_world[:, :3, 3])


@dataclass(kw_only=True)
class Bundle:
    """Cameras and points of one world. Pixels are unit pixels: images are scaled to UNIT_SIDE_PX."""

    tracks: Tracks
    cam_from_world: np.ndarray  # [N, 4, 4] float64
    camera_of_image: np.ndarray  # [N] int
    camera_size: np.ndarray  # [C, 2] float64, width and height
    intrinsics: np.ndarray  # [C, 6] float64: fx, fy, cx, cy, k1, k2
    camera_model: list[str]
    """COLMAP's model name of each camera; the parameters a model lacks stay at the centre, or zero."""
    prior: np.ndarray  # [C, 6] float64, precisions 1/sigma^2 of a prior at `expected`, zero for none
    known_focal: np.ndarray  # [C] float64, known beforehand; NaN: not known
    focal_sigma: float
    """Standard deviation of the known focal lengths, as a share of them; 0: they are held."""
    xyz: np.ndarray  # [T, 3] float64
    alive: np.ndarray  # [K] bool, observations that agree with the rest
    pose_prior: PosePrior | None = None
    """What holds the poses besides the observations; None: nothing does, and the world is free."""

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
    def expected(self) -> np.ndarray:  # [C, 6]
        """The intrinsics with known focal lengths, the principal point in the centre and without distortion."""
        intrinsics = np.zeros_like(self.intrinsics)
        intrinsics[:, [FX, FY]], intrinsics[:, [CX, CY]] = self.intrinsics[:, [FX, FY]], self.camera_size / 2
        intrinsics[self.known, FX] = intrinsics[self.known, FY] = self.known_focal[self.known]
        return intrinsics

    @property
    def one_focal(self) -> np.ndarray:  # [C] bool
        """Cameras with square pixels, whose two focal lengths are one parameter."""
        return np.array([FY not in MODEL_PARAMETERS[model] for model in self.camera_model])

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
    intrinsics = np.zeros((n_cameras, 6))
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
    return with_focal_prior(bundle, np.ones(n_cameras))


def with_focal_prior(bundle: Bundle, strength: np.ndarray) -> Bundle:
    """The bundle with priors of the focal lengths that are known but not held, each `strength` [C] times as strong."""
    prior = bundle.prior.copy()
    prior[:, [FX, FY]] = (strength / bundle.focal_prior_sigma**2)[:, None]
    return replace(bundle, prior=prior)


def project(bundle: Bundle) -> tuple[np.ndarray, np.ndarray]:
    """Projections [K, 2] in unit pixels and depths [K] of every observation's point."""
    point_cam = points_in_cameras(bundle)  # [K, 3]
    depth = point_cam[:, 2]
    safe = np.where(np.abs(depth) > 1e-12, depth, 1e-12)  # [K]
    ray = point_cam[:, :2] / safe[:, None]  # [K, 2]
    k = bundle.intrinsics[bundle.camera_of_image[bundle.tracks.image]]  # [K, 6]
    return ray_pixels(ray, k), depth


def points_in_cameras(bundle: Bundle) -> np.ndarray:
    """The point of each observation in the frame of its camera, [K, 3]."""
    cam_from_world = bundle.cam_from_world[bundle.tracks.image]  # [K, 4, 4]
    xyz = bundle.xyz[bundle.tracks.track_of_observation]  # [K, 3]
    return np.einsum("kij,kj->ki", cam_from_world[:, :3, :3], xyz) + cam_from_world[:, :3, 3]


def reprojection_errors(bundle: Bundle) -> np.ndarray:
    """Error [K] of each observation in unit pixels; infinite behind the camera."""
    projected, depth = project(bundle)
    error = np.linalg.norm(projected - bundle.tracks.xy, axis=1)
    return np.where(depth > 1e-9, error, np.inf)


def ray_pixels(ray: np.ndarray, intrinsics: np.ndarray) -> np.ndarray:
    """Unit pixels [K, 2] of undistorted rays x/z, y/z [K, 2] with `intrinsics` [K, 6]."""
    return pixels_of_plane(ray, _columns(intrinsics), False)


def pixel_rays(xy: np.ndarray, intrinsics: np.ndarray) -> np.ndarray:
    """Undistorted rays x/z, y/z [K, 2] of unit pixels [K, 2] with `intrinsics` [K, 6]."""
    distorted = (xy - intrinsics[:, [CX, CY]]) / intrinsics[:, [FX, FY]]  # [K, 2]
    if not intrinsics[:, [K1, K2]].any():
        return distorted
    return undistorted_of_many(distorted, _columns(intrinsics), iterations=_UNDISTORT_ITERATIONS)


def _columns(intrinsics: np.ndarray) -> np.ndarray:  # [K, WIDTH]
    return np.pad(intrinsics, [(0, 0), (0, WIDTH - intrinsics.shape[1])])


def observation_rays(bundle: Bundle) -> np.ndarray:
    """Undistorted rays [K, 2] of all observations."""
    return pixel_rays(bundle.tracks.xy, bundle.intrinsics[bundle.camera_of_image[bundle.tracks.image]])
