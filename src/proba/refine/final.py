"""The last adjustments, every track as a point, and how certain cameras and points are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from proba.errors import GeometryError
from proba.refine.adjust import adjust, assumed_noise_px, noise_round
from proba.refine.bundle import Bundle, observed_depths, unit_tracks
from proba.refine.camera_model import rich_cameras
from proba.refine.known_world import to_known_frame
from proba.refine.levenberg import minimise
from proba.refine.normal_equations import Equations
from proba.refine.options import AdjustOptions, Round
from proba.refine.state import Observations, State
from proba.refine.tracks import Tracks
from proba.refine.triangulate import believable, reassess, refine_points, triangulate
from proba.refine.uncertainty import CameraUncertainty, camera_uncertainty, point_std


@dataclass(frozen=True, kw_only=True, eq=False)
class Cloud:
    """The cameras of the result with all points."""

    bundle: Bundle
    tracks: Tracks
    """The same tracks in original pixels."""
    free: np.ndarray  # [C, WIDTH] bool, intrinsics that were estimated
    last: Round
    """What the last adjustment was made with."""


def adjust_finally(state: State) -> State:
    """Stage: the last adjustment of a choice of tracks, larger than before, in the frame of the result."""
    observations = state.observations
    many = observations.some_unit_tracks(observations.crowd * state.options.tracks.final)
    return replace(state, bundle=to_result_frame(adjusted_to(state, many), observations))


def to_result_frame(bundle: Bundle, observations: Observations) -> Bundle:
    """The same scene in the world of the poses that were known beforehand, if any, else in that of the root camera."""
    if bundle.pose_prior is not None:
        return bundle
    known = None if observations.known is None else to_known_frame(bundle, observations.known)
    return to_root_frame(bundle, observations.graph.root) if known is None else known


def to_root_frame(bundle: Bundle, root: int) -> Bundle:
    """The same scene with the root camera as world, and a median depth of one unless a rig tells the unit."""
    depth = observed_depths(bundle)[bundle.alive]
    kept = bundle.rig is not None and bundle.rig.metric
    scale = 1 / float(np.median(depth)) if len(depth) and not kept else 1.0
    root_from_world = bundle.cam_from_world[root]  # [4, 4]
    xyz = (bundle.xyz @ root_from_world[:3, :3].T + root_from_world[:3, 3]) * scale  # [T, 3]
    poses = bundle.cam_from_world @ np.linalg.inv(root_from_world)  # [N, 4, 4]
    poses[:, :3, 3] *= scale
    rig = None if bundle.rig is None else bundle.rig.scaled(scale)
    return replace(bundle, cam_from_world=poses, xyz=xyz, rig=rig)


def adjusted_to(state: State, tracks: Tracks) -> Bundle:
    """The cameras adjusted to other `tracks` (unit pixels), at the noise of the present ones."""
    options = state.options
    last = noise_round(state.bundle, options.adjust)
    full = triangulate(state.bundle.with_tracks(tracks), 2 * last.keep_px, state.placed)
    for step in (replace(last, tolerance=1e-3), last):
        full = believable(full, options.adjust)
        rich = rich_cameras(full, options.camera_model)  # [C], cameras too poor keep all but their focal length
        full = adjust(full, (step,), state.freedom, options.adjust, images=state.placed, rich=rich)
    return full


def place_points(state: State) -> Cloud:
    """Stage: all tracks as points, and the cameras moved by what all of them say together."""
    observations, options = state.observations, state.options
    last = noise_round(state.bundle, options.adjust)
    tracks = observations.some_tracks(options.tracks.points)
    bundle = all_points(state.bundle, unit_tracks(tracks, observations.unit_px), last, state.placed)
    free = state.freedom.columns(bundle, rich_cameras(bundle, options.camera_model))  # [C, WIDTH]
    bundle = _settled(bundle, free, last, state.placed, options.adjust)
    return Cloud(bundle=to_result_frame(bundle, observations), tracks=tracks, free=free, last=last)


def all_points(bundle: Bundle, tracks: Tracks, last: Round, images: np.ndarray | None) -> Bundle:
    """Every track (unit pixels) as a point, with the cameras as they are; only `images` [N] bool take part."""
    full = triangulate(bundle.with_tracks(tracks), last.keep_px, images)
    return reassess(refine_points(full, last.loss_px), last.keep_px, last.min_angle_deg, images)


def _settled(
    bundle: Bundle, free: np.ndarray, last: Round, images: np.ndarray | None, options: AdjustOptions
) -> Bundle:
    """Move the cameras by what all points together say, and every point after them.

    An adjustment of some tracks is usually a fraction of a standard deviation away from that of all.
    """
    sound = believable(bundle, options)
    moved = minimise(
        sound,
        sound.alive,
        free,
        loss_px=last.loss_px,
        noise_px=assumed_noise_px(sound, last.loss_px, options),
        iterations=options.steps_of_all,
        tolerance=last.tolerance,
    )
    full = refine_points(replace(moved, alive=bundle.alive), last.loss_px, iterations=1)
    return reassess(full, last.keep_px, last.min_angle_deg, images)


def estimate_uncertainty(state: State, cloud: Cloud) -> tuple[CameraUncertainty, np.ndarray]:
    """Stage: covariance of the cameras, and standard deviations [T] of the points."""
    options = state.options
    trusted = believable(cloud.bundle, options.adjust)
    if not trusted.alive.any():
        raise GeometryError(
            "no point is seen from two sides: the camera hardly moved, or the matches belong to no rigid scene; "
            "add photos from other places"
        )
    noise = assumed_noise_px(trusted, cloud.last.loss_px, options.adjust)
    # The points ask for the covariance of all cameras that see them, trusted or not.
    blocks = Equations(cloud.bundle, cloud.bundle.alive, cloud.free, cloud.last.loss_px, noise).blocks
    cameras = camera_uncertainty(trusted, cloud.free, cloud.last.loss_px, noise, options.uncertainty, blocks)
    return cameras, point_std(cloud.bundle, cameras, cloud.free, cloud.last.loss_px)
