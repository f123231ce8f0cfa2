"""A chosen frame for a reconstruction, whose own is arbitrary: up is z, and a unit is a metre."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from proba.dense import depth_at
from proba.errors import InputError
from proba.geometry.axes import camera_up, rotation_to_z
from proba.geometry.sim3 import Sim3, umeyama_robust
from proba.io.gps import read_gps, to_enu
from proba.reconstruction import Reconstruction

Up = Literal["gravity", "pca", "x", "y", "z", "-x", "-y", "-z"]
PICK_PX = 3.0
"""A picked pixel takes the place of an observed point this near; else the depth map's."""
MIN_GPS_SPREAD = 0.02
"""Second largest extent of the GPS track, as a share of the largest, below which the turn about it is free."""
MIN_GPS_IMAGES = 4


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """new_from_old, and what it is based on, in words."""

    similarity: Sim3
    reason: str
    z_up: bool = False
    """Whether z points up afterwards; otherwise that stays as it is."""


def aligned(reconstruction: Reconstruction, alignment: Alignment) -> Reconstruction:
    """The reconstruction in its new frame, which remembers whether z is up."""
    moved = transformed(reconstruction, alignment.similarity)
    return replace(moved, up="z") if alignment.z_up else moved


def transformed(reconstruction: Reconstruction, new_from_old: Sim3) -> Reconstruction:
    """The same reconstruction in another frame, with all uncertainties and depth maps."""
    log_scale = float(np.log(new_from_old.scale))
    points = replace(
        reconstruction.points,
        xyz=new_from_old.apply(reconstruction.points.xyz),
        sigma=reconstruction.points.sigma * new_from_old.scale,
    )
    std = reconstruction.pose_std.copy()  # [N, 6]
    # Variances along the new axes; correlations between the old axes are not stored, and taken as none.
    std[:, 3:] = new_from_old.scale * np.sqrt(std[:, 3:] ** 2 @ (new_from_old.rotation**2).T)
    depth, variance = reconstruction.log_depth, reconstruction.log_variance
    still_up = new_from_old.rotation[2, 2] > 1 - 1e-9
    return replace(
        reconstruction,
        up=reconstruction.up if still_up else None,
        cam_from_world=new_from_old.apply_to_poses(reconstruction.cam_from_world),
        pose_std=std,
        points=points,
        log_depth=None if depth is None else (depth + log_scale).astype(np.float32),
        log_variance=None if variance is None else (variance + 2 * log_scale).astype(np.float32),
    )


def align_up(reconstruction: Reconstruction, up: Up) -> Alignment:
    """Turn the world so that z is up, and move the origin to the middle of the cloud."""
    if up == "gravity":
        direction, reason = _gravity(reconstruction), "up from the cameras' horizons"
    elif up == "pca":
        direction, reason = _plane_normal(reconstruction), "up from the plane of the scene"
    else:
        direction = np.eye(3)["xyz".index(up[-1])] * (-1 if up[0] == "-" else 1)
        reason = f"up was {up}"
    cloud = reconstruction.points.xyz if len(reconstruction.points.xyz) else reconstruction.centres
    rotation = rotation_to_z(direction)
    return Alignment(similarity=Sim3(1.0, rotation, -rotation @ np.median(cloud, axis=0)), reason=reason, z_up=True)


def _gravity(reconstruction: Reconstruction) -> np.ndarray:
    """Direction [3] at right angles to all cameras' x axes, since people hold cameras level but pitch them freely.

    Where the x axes do not span a plane (cameras that look the same way), or some photos are portrait, the mean of
    the cameras' up decides alone.
    """
    mean = camera_up(reconstruction.cam_from_world)
    x_axes = reconstruction.cam_from_world[:, 0, :3]  # [N, 3], in the world
    extent, axes = np.linalg.eigh(x_axes.T @ x_axes / len(x_axes))  # ascending
    level = axes[:, 0] * np.sign(axes[:, 0] @ mean or 1.0)
    spread = extent[0] < 0.1 * extent[1]
    return level if spread and level @ mean > np.cos(np.radians(45)) else mean


def _plane_normal(reconstruction: Reconstruction) -> np.ndarray:
    """Normal [3] of the plane through the camera centres, or of the cloud where they are too few; towards up."""
    centres, xyz = reconstruction.centres, reconstruction.points.xyz
    for places in (centres, xyz):
        if len(places) < 4:
            continue
        distance = np.linalg.norm(places - np.median(places, axis=0), axis=1)
        near = places[distance <= 3 * np.median(distance)]  # a few far points must not tilt the plane
        spread = near - near.mean(axis=0)
        extent, axes = np.linalg.eigh(spread.T @ spread)
        if extent[0] < 0.1 * extent[1]:
            return axes[:, 0] * np.sign(axes[:, 0] @ camera_up(reconstruction.cam_from_world) or 1.0)
    raise InputError("Neither cameras nor points lie in a plane. Take --up gravity.")


def scale_from_baseline(reconstruction: Reconstruction, first: str, second: str, length: float) -> Alignment:
    """Scale that puts two cameras `length` apart."""
    centres = reconstruction.centres
    measured = float(np.linalg.norm(centres[reconstruction.index(first)] - centres[reconstruction.index(second)]))
    return _scale(measured, length, f"{first} and {second} are {length:g} apart")


def scale_from_distance(reconstruction: Reconstruction, first: str, second: str, length: float) -> Alignment:
    """Scale that puts two places `length` apart, each a point's number (as COLMAP counts, from 1) or IMAGE:X,Y."""
    one, other = (place_of(reconstruction, text) for text in (first, second))
    return _scale(float(np.linalg.norm(one - other)), length, f"{first} and {second} are {length:g} apart")


def _scale(measured: float, length: float, reason: str) -> Alignment:
    if not (np.isfinite(length) and length > 0):
        raise InputError(f"A length of {length:g} gives no scale. Give a positive one.")
    if measured <= 0:
        raise InputError("The two places are one in the reconstruction. Choose others.")
    return Alignment(similarity=Sim3(scale=length / measured), reason=reason)


def place_of(reconstruction: Reconstruction, text: str) -> np.ndarray:  # [3]
    """World place of a point's number or of a picked pixel, `IMAGE:X,Y` (first pixel centre at 0.5, 0.5)."""
    points = reconstruction.points
    if text.isdigit():
        if not 1 <= int(text) <= len(points.xyz):
            raise InputError(f"There is no point {text}; points count from 1 to {len(points.xyz)}.")
        return points.xyz[int(text) - 1]
    name, _, pixel = text.rpartition(":")
    try:
        xy = np.array([float(part) for part in pixel.split(",")])
    except ValueError:
        xy = np.zeros(0)
    if not name or xy.shape != (2,):
        raise InputError(f"{text!r} is no place. Give a point's number or IMAGE:X,Y, e.g. a.jpg:310.5,200.")
    n = reconstruction.index(name)
    camera = reconstruction.camera(n)
    if not ((xy >= 0) & (xy <= [camera.width, camera.height])).all():
        raise InputError(f"{text}: {name} has only {camera.width} x {camera.height} pixels.")
    mine = np.flatnonzero(points.obs_image == n)
    distance = np.linalg.norm(points.obs_xy[mine] - xy, axis=1)  # [M]
    if len(mine) and distance.min() <= PICK_PX:
        return points.xyz[points.obs_point[mine[np.argmin(distance)]]]
    depth, _ = depth_at(reconstruction, n, xy[None])
    pose = reconstruction.cam_from_world[n]
    return (camera.rays(xy) * depth[0] - pose[:3, 3]) @ pose[:3, :3]


def align_gps(reconstruction: Reconstruction, photos: Path) -> Alignment:
    """Metres, east, north and up from the GPS places in the photos' EXIF; the origin is their median."""
    places = [read_gps(photos / name) for name in reconstruction.image_names]
    known = [n for n, place in enumerate(places) if place is not None]
    if len(known) < MIN_GPS_IMAGES:
        raise InputError(
            f"Only {len(known)} photos have a GPS place; {MIN_GPS_IMAGES} are needed. Take --baseline or --distance."
        )
    enu = to_enu(np.array([place for place in places if place is not None]))  # [M, 3]
    extent = np.linalg.svd(enu - enu.mean(axis=0), compute_uv=False)
    if extent[1] < MIN_GPS_SPREAD * extent[0] or extent[0] == 0:
        raise InputError("The GPS places lie on one line, which leaves a turn free. Take --up and --baseline.")
    similarity, inliers = umeyama_robust(reconstruction.centres[known], enu)
    left = np.linalg.norm(similarity.apply(reconstruction.centres[known]) - enu, axis=1)[inliers]
    reason = f"GPS of {int(inliers.sum())} of {len(known)} photos, {np.sqrt(np.mean(left**2)):.2f} m off"
    return Alignment(similarity=similarity, reason=reason, z_up=True)
