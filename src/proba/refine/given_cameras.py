"""The points of a reconstruction placed anew in cameras that are known from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from proba.errors import InputError
from proba.geometry.camera import MODELS
from proba.io.ground_truth import GroundTruth
from proba.reconstruction import Camera, Points, Reconstruction
from proba.refine.assemble import bundle_points
from proba.refine.bundle import Bundle
from proba.refine.tracks import Tracks
from proba.refine.triangulate import triangulate

MOST_ERROR = 0.005
"""Share of a photo's longest side within which an observation must fit; cameras from elsewhere may be rough."""
LEAST_COSINE = 0.05
"""Of the angle from the axis: what a fisheye sees beside itself is not used."""
BESIDE = 1e3
"""Place on the plane of a pinhole camera where nothing fits."""


def in_given_cameras(
    reconstruction: Reconstruction, truth: GroundTruth, camera_of_image: Sequence[int | None]
) -> Reconstruction:
    """The images that `truth` knows, in its cameras and its frame, with all tracks triangulated anew.

    `camera_of_image` says which of its cameras each image has; None: not known.
    """
    kept = [k for k, n in enumerate(camera_of_image) if n is not None]
    theirs = [n for n in camera_of_image if n is not None]
    if len(kept) < 2:
        raise InputError("The given cameras are of other photos: fewer than two names are in both.")
    cameras = [_camera(truth, n) for n in theirs]
    tracks, rgb = _tracks(reconstruction, kept)
    bundle = _bundle(tracks, cameras, truth.cam_from_world[theirs])
    bundle = triangulate(bundle, MOST_ERROR * float(bundle.camera_size.max()))
    return Reconstruction(
        image_names=[reconstruction.image_names[k] for k in kept], cameras=cameras,
        camera_of_image=np.arange(len(kept)), cam_from_world=truth.cam_from_world[theirs].copy(),
        pose_std=np.full((len(kept), 6), np.nan), points=_points(bundle, tracks, rgb),
    )  # fmt: skip


def _camera(truth: GroundTruth, n: int) -> Camera:
    columns, fisheye = truth.lens(n)
    bent = "THIN_PRISM_FISHEYE" if fisheye else "FULL_OPENCV"
    model = bent if fisheye or columns[4:].any() else "PINHOLE"
    params = columns[list(MODELS[model])]
    return Camera(model=model, width=int(truth.width[n]), height=int(truth.height[n]), params=params)


def _bundle(tracks: Tracks, cameras: list[Camera], cam_from_world: np.ndarray) -> Bundle:
    """Pinhole cameras with the observations as these would see them."""
    intrinsics = np.zeros((len(cameras), 6))
    xy = np.empty_like(tracks.xy)
    for n, camera in enumerate(cameras):
        intrinsics[n, :4] = *camera.focal_px, *camera.principal_point_px
        mine = tracks.image == n
        ray = camera.rays(tracks.xy[mine])  # [K, 3]
        ahead = np.where(ray[:, 2:] > LEAST_COSINE, ray[:, 2:], np.nan)
        xy[mine] = np.nan_to_num(ray[:, :2] / ahead, nan=BESIDE) * intrinsics[n, :2] + intrinsics[n, 2:4]
    count = len(cameras)
    return Bundle(
        tracks=Tracks(tracks.offset, tracks.image, xy), cam_from_world=cam_from_world,
        camera_of_image=np.arange(count), camera_size=np.array([[c.width, c.height] for c in cameras], np.float64),
        intrinsics=intrinsics, camera_model=["PINHOLE"] * count, prior=np.zeros((count, 6)),
        known_focal=np.full(count, np.nan), focal_sigma=0.0, xyz=np.zeros((tracks.n_tracks, 3)),
        alive=np.ones(tracks.n_observations, bool),
    )  # fmt: skip


def _tracks(reconstruction: Reconstruction, kept: list[int]) -> tuple[Tracks, np.ndarray]:
    """Observations of the images `kept`, by point, and the colours [T, 3] of points that two of them see."""
    points = reconstruction.points
    local = np.full(len(reconstruction), -1)
    local[kept] = np.arange(len(kept))
    seen = np.bincount(points.obs_point[local[points.obs_image] >= 0], minlength=len(points.xyz))  # [P]
    held = (local[points.obs_image] >= 0) & (seen >= 2)[points.obs_point]  # [K]
    order = np.flatnonzero(held)[np.argsort(points.obs_point[held], kind="stable")]
    length = seen[seen >= 2]
    offset = np.concatenate([[0], np.cumsum(length)])
    return Tracks(offset, local[points.obs_image[order]], points.obs_xy[order].astype(np.float64)), points.rgb[
        seen >= 2
    ]


def _points(bundle: Bundle, tracks: Tracks, rgb: np.ndarray) -> Points:
    """What holds, with its original pixels; nothing is known of the points' deviations."""
    placed = np.where(np.isfinite(bundle.xyz).all(axis=1), 0.0, np.nan)  # [T]
    kept = (bundle.alive_per_track() >= 2) & np.isfinite(placed)
    points = bundle_points(bundle, placed, tracks, np.ones(bundle.n_images))
    return replace(points, rgb=rgb[kept], sigma=np.full(int(kept.sum()), np.nan))
