"""Poses of the middle rows of photos that were read row by row, if the photos gain by that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from proba.reconstruction import Reconstruction
from proba.refine.assemble import bundle_points
from proba.refine.bundle import Bundle, observed_depths, pixel_rays, point_pixels
from proba.refine.evidence import evidence
from proba.refine.final import Cloud, adjust_finally
from proba.refine.options import ShutterOptions
from proba.refine.rolling_shutter import POSE, RollingShutter, photo_steps, rolling_shutter
from proba.refine.state import State
from proba.refine.tracks import Tracks
from proba.refine.uncertainty import CameraUncertainty


@dataclass(frozen=True, kw_only=True, eq=False)
class Completed:
    """A state with all that is made of it."""

    state: State
    cloud: Cloud
    cameras: CameraUncertainty
    sigma: np.ndarray  # [T]
    reconstruction: Reconstruction


def unroll(
    bent: Completed, complete: Callable[[State], Completed], options: ShutterOptions
) -> tuple[Completed, RollingShutter | None]:
    """What the rows say, and the world whose observations are where the middle rows would have seen them.

    The world as it is where there is no rolling shutter, or where the likelihood does not gain. The result's
    observations are those of the photos in any case.
    """
    first, n_images = rolling_shutter(bent.reconstruction, options), len(bent.reconstruction)
    if first is None or not first.found or not (first.ordered or len(first.images) == n_images):
        return bent, first
    shutter: RollingShutter | None = first
    best, motion, readout, rounds = bent, np.zeros((n_images, POSE)), 0.0, 0
    while shutter is not None and shutter.found and shutter.ordered == first.ordered and rounds < options.rounds:
        rounds += 1
        readout += shutter.readout
        if first.ordered:
            order = np.argsort(best.reconstruction.image_names, kind="stable")
            motion[order] = readout * photo_steps(best.reconstruction.cam_from_world[order])
        else:
            motion[shutter.images] += shutter.motion
        tracks = in_middle_rows(best.cloud, bent.cloud.tracks, motion, best.state.observations.unit_px)
        observations = replace(best.state.observations, tracks=tracks)
        best = complete(adjust_finally(replace(best.state, observations=observations)))
        shutter = rolling_shutter(best.reconstruction, options)
    parameters = 1 if first.ordered else motion.size
    if evidence(bent.cloud.bundle, best.cloud.bundle, parameters, best.state.options.camera_model) <= 0:
        return bent, first
    found = replace(first, images=np.arange(n_images), motion=motion, readout=readout, modelled=True)
    return _as_photographed(best, bent.cloud.tracks), found


def in_middle_rows(cloud: Cloud, seen: Tracks, motion: np.ndarray, unit_px: np.ndarray) -> Tracks:
    """Observations (original pixels) as the middle row of each photo would have seen their points.

    `seen` are the same observations as the photos have them, `motion` [N, 6] is in the frame of the cloud.
    """
    unit = unit_px[seen.image, None]  # [K, 1]
    xy, bundle = seen.xy / unit, cloud.bundle
    camera = bundle.camera_of_image[seen.image]  # [K]
    place = xy[:, 1:] / bundle.camera_size[camera, 1:] - 0.5  # [K, 1]
    then = pixel_rays(bundle, camera, xy) * _depths(bundle)[:, None]  # [K, 3], in the camera when it read that row
    moved = place * motion[seen.image]  # [K, 6]
    middle = Rotation.from_rotvec(-moved[:, :3]).apply(then - moved[:, 3:])
    straight = point_pixels(bundle, camera, middle)
    good = np.isfinite(straight).all(axis=1, keepdims=True) & (middle[:, 2:] > 0)
    return Tracks(seen.offset, seen.image, np.where(good | bundle.fisheye[camera, None], straight, xy) * unit)


def _depths(bundle: Bundle) -> np.ndarray:  # [K]
    """Depth of each observation's point; typical ones where nothing holds a point."""
    held = (bundle.alive_per_track() >= 2)[bundle.tracks.track_of_observation]  # [K]
    depth = observed_depths(bundle)
    held &= np.isfinite(depth) & (depth > 0)
    return np.where(held, depth, np.median(depth[held]) if held.any() else 1.0)


def _as_photographed(done: Completed, seen: Tracks) -> Completed:
    """With the observations of the photos themselves."""
    points = bundle_points(done.cloud.bundle, done.sigma, seen, done.state.observations.unit_px)
    return replace(done, reconstruction=replace(done.reconstruction, points=points))
