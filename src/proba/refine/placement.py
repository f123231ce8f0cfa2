"""New poses of single images: by the points that others hold, and by the two-view geometry with one of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import poselib
from scipy.spatial import cKDTree

from proba.geometry.camera import UNIT_SIDE_PX, focal_from_fov
from proba.geometry.epipolar import two_view_depths
from proba.refine.agreement import PairAgreement
from proba.refine.bundle import Bundle, observed_depths, pixel_rays
from proba.refine.options import PlacementOptions
from proba.refine.pinhole_views import FLAT_LIMIT_DEG
from proba.threads import in_parallel


@dataclass(frozen=True, eq=False)
class Placement:
    """A new pose for an image, and how well it is supported."""

    image: int
    cam_from_world: np.ndarray  # [4, 4]
    inliers: int
    share: float
    """Inliers among the observations looked at."""
    focal: float

    @property
    def merit(self) -> float:
        return self.inliers * self.share


def best_placement(
    bundle: Bundle, placed: np.ndarray, pairs: PairAgreement, options: PlacementOptions
) -> Placement | None:
    """The best supported new pose of an image that is not `placed` [N] bool yet.

    Images with a camera of their own may get another focal length if theirs is not known beforehand.
    """
    lost = np.flatnonzero(~placed).tolist()
    found = in_parallel(lambda k: place_by_points(bundle, placed, k, options), lost)
    best = max((p for p in found if p is not None), key=lambda p: p.inliers, default=None)
    sure = best is not None and best.inliers >= options.sure_inliers and best.share >= options.sure_share
    if not sure:
        second = _place_by_pair(bundle, placed, lost, pairs, options)
        if second is not None and (best is None or second.merit > best.merit):
            return second
    return best if best is not None and best.inliers >= options.min_inliers else None


def place_by_points(bundle: Bundle, placed: np.ndarray, image: int, options: PlacementOptions) -> Placement | None:
    """Absolute pose of an image from points that the placed images hold."""
    tracks = bundle.tracks
    known = bundle.alive_per_track(placed) >= 2  # [T]
    owner = tracks.track_of_observation
    seen = (tracks.image == image) & known[owner]  # [K]
    seen[seen] = flat_enough(bundle, image, tracks.xy[seen])
    if seen.sum() < options.min_inliers + 2:
        return None
    xy, camera = pinhole_view(bundle, image, tracks.xy[seen])
    present = camera["params"][0]
    own = bundle.camera_of_image[image]
    unknown = own not in bundle.camera_of_image[placed] and not bundle.known[own]
    others = [float(focal_from_fov(fov, UNIT_SIDE_PX)) for fov in options.fov_deg] if unknown else []

    ransac = {
        "max_reproj_error": options.point_px,
        "max_iterations": options.point_iterations,
        "min_iterations": options.min_iterations,
    }

    def place(focal: float) -> Placement:
        pinhole = {**camera, "params": [focal, 0.0, 0.0]}
        pose, info = poselib.estimate_absolute_pose(xy, bundle.xyz[owner[seen]], pinhole, ransac, {})
        inliers = int(info["num_inliers"])
        return Placement(image, pose_matrix(pose.R, pose.t), inliers, inliers / int(seen.sum()), focal)

    first = place(present)
    best = max((place(focal) for focal in others if focal != present), key=lambda p: p.inliers, default=first)
    return best if best.inliers > options.other_focal_gain * first.inliers else first


def _place_by_pair(
    bundle: Bundle, placed: np.ndarray, lost: list[int], pairs: PairAgreement, options: PlacementOptions
) -> Placement | None:
    """Relative pose to one placed image, with the scale from the depths known there."""
    depth = observed_depths(bundle)  # [K]
    known = bundle.alive & (bundle.alive_per_track(placed) >= 2)[bundle.tracks.track_of_observation]
    tasks: list[tuple[int, int, tuple[np.ndarray, np.ndarray], cKDTree, np.ndarray]] = []
    for j in np.flatnonzero(placed).tolist():
        here = known & (bundle.tracks.image == j)  # [K]
        if here.sum() < options.pair_known:
            continue
        tree = cKDTree(bundle.tracks.xy[here])
        for k in lost:
            points = pairs.between(j, k)
            if points is None:
                continue
            flat = flat_enough(bundle, j, points[0]) & flat_enough(bundle, k, points[1])  # [M]
            points = points[0][flat], points[1][flat]
            if len(points[0]) >= options.pair_inliers:
                tasks.append((j, k, points, tree, depth[here]))
    found = in_parallel(lambda task: _relative_placement(bundle, *task, options), tasks)
    return max((p for p in found if p is not None), key=lambda p: p.merit, default=None)


def _relative_placement(
    bundle: Bundle,
    j: int,
    k: int,
    points: tuple[np.ndarray, np.ndarray],
    tree: cKDTree,
    depth: np.ndarray,
    options: PlacementOptions,
) -> Placement | None:
    """Pose of k from its matches with the placed image j; `depth` belongs to the pixels in `tree`."""
    (xy_j, camera_j), (xy_k, camera_k) = (
        pinhole_view(bundle, image, xy) for image, xy in zip((j, k), points, strict=True)
    )
    pose, info = poselib.estimate_relative_pose(xy_j, xy_k, camera_j, camera_k, pair_ransac(options))
    inlier = np.array(info["inliers"], bool)  # [M]
    n_inliers = int(inlier.sum())
    if n_inliers < options.pair_inliers or n_inliers < options.pair_share * len(inlier):
        return None
    translation = pose.t / np.linalg.norm(pose.t)
    unit_depth = two_view_depths(
        _rays(xy_j[inlier], camera_j), _rays(xy_k[inlier], camera_k), pose.R, translation
    )  # [I], for a baseline of one
    distance, nearest = tree.query(points[0][inlier])
    close = np.sort(distance)[min(len(distance) - 1, max(15, len(distance) // 4))]
    usable = (unit_depth > 0) & (distance <= close + 1e-6)
    if usable.sum() < options.pair_scaled:
        return None
    scale = np.exp(np.median(np.log(np.maximum(depth[nearest[usable]], 1e-9) / unit_depth[usable])))
    k_from_j = pose_matrix(pose.R, translation * scale)
    pose_k = k_from_j @ bundle.cam_from_world[j]
    return Placement(k, pose_k, n_inliers, n_inliers / len(inlier), camera_k["params"][0])


def pair_ransac(options: PlacementOptions) -> dict:
    """What PoseLib is told about relative poses."""
    return {
        "max_epipolar_error": options.pair_px,
        "max_iterations": options.pair_iterations,
        "min_iterations": options.min_iterations,
    }


def pinhole_view(bundle: Bundle, image: int, xy: np.ndarray) -> tuple[np.ndarray, dict]:
    """Pixels [M, 2] without distortion and shift, as a centred pinhole camera of PoseLib sees them."""
    own = bundle.camera_of_image[image]
    rays = pixel_rays(bundle, np.full(len(xy), own), xy)  # [M, 3]
    focal = float(bundle.intrinsics[own, 0])
    width, height = bundle.camera_size[bundle.camera_of_image[image]]
    camera = {"model": "SIMPLE_PINHOLE", "width": int(width), "height": int(height), "params": [focal, 0.0, 0.0]}
    return rays[:, :2] / rays[:, 2:] * focal, camera


def flat_enough(bundle: Bundle, image: int, xy: np.ndarray) -> np.ndarray:  # [M] bool
    """Which pixels [M, 2] of an image a pinhole camera would show without stretching them too much."""
    own = bundle.camera_of_image[image]
    if not bundle.fisheye[own]:
        return np.ones(len(xy), bool)
    rays = pixel_rays(bundle, np.full(len(xy), own), xy)
    return rays[:, 2] > np.cos(np.radians(FLAT_LIMIT_DEG))


def _rays(xy: np.ndarray, camera: dict) -> np.ndarray:
    """Homogeneous rays [M, 3] of centred pixels [M, 2]."""
    return np.concatenate([xy / camera["params"][0], np.ones((len(xy), 1))], axis=1)


def pose_matrix(rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:  # [4, 4]
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation, translation
    return matrix
