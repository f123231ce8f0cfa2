"""Bundle adjustment with an annealed robust loss, through COLMAP's Ceres problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pycolmap

from proba.refine.bundle import FX, FY, MODEL_PARAMETERS, Bundle, reprojection_errors
from proba.refine.triangulate import reassess

pycolmap.logging.minloglevel = int(pycolmap.logging.ERROR)

LOSS_PER_NOISE, FINAL_LOSS_PX = 2.0, (0.3, 2.0)
"""Scale of the last robust loss in standard deviations of the noise, and its bounds in pixels."""
KEEP_PX, KEEP_PER_NOISE = (4.0, 8.0), 4.0
"""Bounds of the largest error of an observation in the result (image of 1024 px), and the same in noise units."""
MIN_ANGLE_DEG = 0.3

_FOCAL_BOUNDS = (0.15, 20.0)
"""Focal length in longest sides (147 to 3 degrees); what leaves these bounds has diverged."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One adjustment, and the judgement of the observations after it. Pixels of a 1024 px image."""

    loss_px: float
    """Scale of the Cauchy loss."""
    keep_px: float
    """Observations with a larger error do not take part in the next round."""
    min_angle_deg: float = 0.0
    """Points seen under a smaller angle do not count as reconstructed."""
    iterations: int = 25
    tolerance: float = 1e-5
    """Stop when the cost falls by a smaller share than this."""


ANNEALED = (
    Round(loss_px=20, keep_px=50, tolerance=1e-3),
    Round(loss_px=6, keep_px=12, tolerance=1e-3),
    Round(loss_px=2, keep_px=4, min_angle_deg=MIN_ANGLE_DEG, tolerance=1e-3),
    Round(loss_px=2, keep_px=4, min_angle_deg=MIN_ANGLE_DEG, tolerance=1e-4),
)
"""From a rough world: the wide loss has a very wide basin (rotations 20 degrees off came back on castle_p19), the
narrow one is accurate. Tighter tolerances took twice the time for the same poses."""

SETTLE = (
    Round(loss_px=4, keep_px=8, tolerance=1e-3),
    Round(loss_px=2, keep_px=4, min_angle_deg=MIN_ANGLE_DEG, tolerance=1e-4),
)
"""From a world that is right up to a few pixels."""


def noise_round(bundle: Bundle) -> Round:
    """A round whose loss and whose bound are as wide as the noise of the matches."""
    error = reprojection_errors(bundle)[bundle.alive]  # [U]
    noise_px = float(np.median(error)) / np.sqrt(2 * np.log(2)) if len(error) else 1.0
    return Round(
        loss_px=float(np.clip(LOSS_PER_NOISE * noise_px, *FINAL_LOSS_PX)),
        keep_px=float(np.clip(KEEP_PER_NOISE * noise_px, *KEEP_PX)),
        min_angle_deg=MIN_ANGLE_DEG,
    )


@dataclass(frozen=True, kw_only=True)
class Freedom:
    """Which intrinsics the adjustment may change."""

    focal: bool = True
    principal_point: bool = False
    distortion: bool = False

    @property
    def any(self) -> bool:
        return self.focal or self.principal_point or self.distortion


def adjust(
    bundle: Bundle,
    rounds: Sequence[Round],
    freedom: Freedom,
    *,
    images: np.ndarray | None = None,
    constant_cameras: np.ndarray | None = None,
    threads: int = 1,
) -> Bundle:
    """Run the rounds one after the other; each begins with the observations that survived the last.

    Only the cameras `images` [N] bool take part. `constant_cameras` [C] bool keep their intrinsics.
    """
    taking_part = np.ones(bundle.n_images, bool) if images is None else images  # [N]
    constant = np.zeros(bundle.n_cameras, bool) if constant_cameras is None else constant_cameras  # [C]
    for step in rounds:
        bundle = _solve(bundle, step, freedom, taking_part, constant, threads)
        bundle = reassess(bundle, step.keep_px, step.min_angle_deg, images)
    return bundle


def _solve(
    bundle: Bundle, step: Round, freedom: Freedom, images: np.ndarray, constant: np.ndarray, threads: int
) -> Bundle:
    """One Ceres run on the observations that hold."""
    used = bundle.alive & images[bundle.tracks.image]  # [K]
    points = np.flatnonzero(bundle.alive_per_track(images) >= 2)  # [P], track indices
    if len(points) < 4 or images.sum() < 2:
        return bundle
    reconstruction, ids = _to_colmap(bundle, images, used, points)
    config = pycolmap.BundleAdjustmentConfig()
    for image in np.flatnonzero(images):
        config.add_image(int(image) + 1)
    for camera in np.flatnonzero(constant):
        config.set_constant_cam_intrinsics(int(camera) + 1)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    pycolmap.create_default_bundle_adjuster(_ceres_options(step, freedom, threads), config, reconstruction).solve()
    return _from_colmap(bundle, reconstruction, images, points, ids)


def _ceres_options(step: Round, freedom: Freedom, threads: int) -> pycolmap.BundleAdjustmentOptions:
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    options.refine_focal_length = freedom.focal
    options.refine_principal_point = freedom.principal_point
    options.refine_extra_params = freedom.distortion
    ceres = options.ceres
    ceres.loss_function_type = pycolmap.LossFunctionType.CAUCHY
    ceres.loss_function_scale = step.loss_px
    ceres.min_num_residuals_for_cpu_multi_threading = 10_000
    ceres.solver_options.num_threads = threads
    ceres.solver_options.max_num_iterations = step.iterations
    ceres.solver_options.function_tolerance = step.tolerance
    return options


def _to_colmap(
    bundle: Bundle, images: np.ndarray, used: np.ndarray, points: np.ndarray
) -> tuple[pycolmap.Reconstruction, list[int]]:
    """The cameras and points that take part, and the ids of the points. Camera and image ids count from one."""
    reconstruction = pycolmap.Reconstruction()
    for camera in np.unique(bundle.camera_of_image[images]):
        reconstruction.add_camera_with_trivial_rig(_colmap_camera(bundle, int(camera)))
    has_point = np.zeros(bundle.tracks.n_tracks, bool)
    has_point[points] = True
    observation = np.flatnonzero(used & has_point[bundle.tracks.track_of_observation])  # [U]
    image = bundle.tracks.image[observation]  # [U]
    order = np.argsort(image, kind="stable")
    begin = np.searchsorted(image[order], np.arange(bundle.n_images + 1))  # [N + 1]
    slot = np.empty(len(image), np.int64)  # [U], index of an observation within its image
    slot[order] = np.arange(len(image)) - begin[image[order]]
    for n in np.flatnonzero(images):
        keypoints = bundle.tracks.xy[observation[order[begin[n] : begin[n + 1]]]]
        camera_id = int(bundle.camera_of_image[n]) + 1
        view = pycolmap.Image(name=str(n), keypoints=keypoints, camera_id=camera_id, image_id=int(n) + 1)
        pose = pycolmap.Rigid3d(bundle.cam_from_world[n, :3])
        reconstruction.add_image_with_trivial_frame(view, pose)
    length = bundle.alive_per_track(images)[points]  # [P]
    end = np.cumsum(length)
    image_ids, slots = (image + 1).tolist(), slot.tolist()
    ids = []
    for xyz, first, last in zip(bundle.xyz[points], (end - length).tolist(), end.tolist(), strict=True):
        track = pycolmap.Track()
        for k in range(first, last):
            track.add_element(image_ids[k], slots[k])
        ids.append(reconstruction.add_point3D(xyz, track))
    return reconstruction, ids


def _from_colmap(
    bundle: Bundle, reconstruction: pycolmap.Reconstruction, images: np.ndarray, points: np.ndarray, ids: list[int]
) -> Bundle:
    """The adjusted values in place of the old ones."""
    cam_from_world, xyz = bundle.cam_from_world.copy(), bundle.xyz.copy()
    for n in np.flatnonzero(images):
        cam_from_world[n, :3] = reconstruction.image(int(n) + 1).cam_from_world().matrix()
    xyz[points] = [reconstruction.point3D(k).xyz for k in ids]
    intrinsics = bundle.intrinsics.copy()
    side = bundle.camera_size.max(axis=1)  # [C]
    for camera in np.unique(bundle.camera_of_image[images]):
        columns = MODEL_PARAMETERS[bundle.camera_model[camera]]
        intrinsics[camera, columns] = reconstruction.camera(int(camera) + 1).params
        if FY not in columns:
            intrinsics[camera, FY] = intrinsics[camera, FX]
    focal = intrinsics[:, [FX, FY]]  # [C, 2]
    intrinsics[:, [FX, FY]] = np.clip(focal, _FOCAL_BOUNDS[0] * side[:, None], _FOCAL_BOUNDS[1] * side[:, None])
    return replace(bundle, cam_from_world=cam_from_world, intrinsics=intrinsics, xyz=xyz)


def _colmap_camera(bundle: Bundle, camera: int) -> pycolmap.Camera:
    """Camera in unit pixels; COLMAP wants whole sizes, which only its sanity checks use."""
    width, height = np.maximum(np.round(bundle.camera_size[camera]), 1).astype(int).tolist()
    params = bundle.intrinsics[camera, MODEL_PARAMETERS[bundle.camera_model[camera]]]
    return pycolmap.Camera(
        model=bundle.camera_model[camera], width=width, height=height, params=params, camera_id=camera + 1
    )
