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


class TwoViewGeometry:
    """Relative poses of pairs by their matches alone, which hold as long as the lenses stay as they are."""

    def __init__(self, options: PlacementOptions):
        self.ransac = pair_ransac(options)
        self._found: dict[tuple[int, int], tuple[bytes, poselib.CameraPose, np.ndarray]] = {}

    def between(
        self, bundle: Bundle, j: int, k: int, seen: tuple[tuple[np.ndarray, dict], tuple[np.ndarray, dict]]
    ) -> tuple[poselib.CameraPose, np.ndarray]:
        """Pose of k relative to j, and which matches [M] bool agree, from what `pinhole_view` says of both."""
        lenses = bundle.intrinsics[bundle.camera_of_image[[j, k]]].tobytes()
        if (j, k) not in self._found or self._found[j, k][0] != lenses:
            (xy_j, camera_j), (xy_k, camera_k) = seen
            pose, info = poselib.estimate_relative_pose(xy_j, xy_k, camera_j, camera_k, self.ransac)
            self._found[j, k] = lenses, pose, np.array(info["inliers"], bool)
        return self._found[j, k][1:]


def best_placements(
    bundle: Bundle,
    placed: np.ndarray,
    pairs: PairAgreement,
    options: PlacementOptions,
    most: int,
    geometry: TwoViewGeometry | None = None,
) -> list[Placement]:
    """The best supported new poses of images that are not `placed` [N] bool yet: `most` of those that are sure, or one.

    Images with a camera of their own may get another focal length if theirs is not known beforehand.
    """
    lost, seen = np.flatnonzero(~placed), known_observations(bundle, placed)
    count = np.array([len(seen[k]) for k in lost])  # [L]
    # Those that see most known points are the best supported, if they are sure: the others need not be tried.
    ranked = lost[np.argsort(-count, kind="stable")]
    found: list[Placement | None] = []
    for part in np.split(ranked, [max(options.candidates, 2 * most)]):
        found += in_parallel(lambda k: place_by_points(bundle, placed, k, seen[k], options), np.sort(part).tolist())
        best = max((p for p in found if p is not None), key=lambda p: p.inliers, default=None)
        if best is not None and _is_sure(best, options):
            return _best_of_each_camera([p for p in found if p is not None], bundle, placed, most, options)
    second = _place_by_pair(bundle, placed, pairs, options, geometry or TwoViewGeometry(options))
    if second is not None and (best is None or second.merit > best.merit):
        return [second]
    return [best] if best is not None and best.inliers >= options.min_inliers else []


def _is_sure(placement: Placement, options: PlacementOptions) -> bool:
    return placement.inliers >= options.sure_inliers and placement.share >= options.sure_share


def _best_of_each_camera(
    found: list[Placement], bundle: Bundle, placed: np.ndarray, most: int, options: PlacementOptions
) -> list[Placement]:
    """The `most` sure ones with most inliers; only one of a camera that no placed image has, whose focal it tells."""
    known: set[int] = set(bundle.camera_of_image[placed].tolist())
    chosen: list[Placement] = []
    for placement in sorted((p for p in found if _is_sure(p, options)), key=lambda p: -p.inliers):
        camera = int(bundle.camera_of_image[placement.image])
        if len(chosen) < most and (camera in known or all(camera != bundle.camera_of_image[p.image] for p in chosen)):
            chosen.append(placement)
    return chosen


def known_observations(bundle: Bundle, placed: np.ndarray) -> list[np.ndarray]:
    """The observations of each image, ascending, of points that the `placed` images [N] bool hold."""
    tracks = bundle.tracks
    known = np.flatnonzero((bundle.alive_per_track(placed) >= 2)[tracks.track_of_observation])
    order = known[np.argsort(tracks.image[known], kind="stable")]
    return np.split(order, np.searchsorted(tracks.image[order], np.arange(1, bundle.n_images)))


def place_by_points(
    bundle: Bundle, placed: np.ndarray, image: int, seen: np.ndarray, options: PlacementOptions
) -> Placement | None:
    """Absolute pose of an image from its observations `seen` of points that the placed images hold."""
    tracks = bundle.tracks
    seen = seen[flat_enough(bundle, image, tracks.xy[seen])]
    if len(seen) < options.min_inliers + 2:
        return None
    point = np.searchsorted(tracks.offset, seen, side="right") - 1
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
        pose, info = poselib.estimate_absolute_pose(xy, bundle.xyz[point], pinhole, ransac, {})
        inliers = int(info["num_inliers"])
        return Placement(image, pose_matrix(pose.R, pose.t), inliers, inliers / len(seen), focal)

    first = place(present)
    best = max((place(focal) for focal in others if focal != present), key=lambda p: p.inliers, default=first)
    return best if best.inliers > options.other_focal_gain * first.inliers else first


def _place_by_pair(
    bundle: Bundle, placed: np.ndarray, pairs: PairAgreement, options: PlacementOptions, geometry: TwoViewGeometry
) -> Placement | None:
    """The best of all by its relative pose to one placed image, with the scale from the depths known there."""
    depth = observed_depths(bundle)  # [K]
    known = bundle.alive & (bundle.alive_per_track(placed) >= 2)[bundle.tracks.track_of_observation]
    order = np.flatnonzero(known)
    order = order[np.argsort(bundle.tracks.image[order], kind="stable")]
    begin = np.searchsorted(bundle.tracks.image[order], np.arange(bundle.n_images + 1))  # [N + 1]
    tasks: list[tuple[int, int, tuple[np.ndarray, np.ndarray], cKDTree, np.ndarray]] = []
    trees: dict[int, cKDTree] = {}
    for j, k in pairs.across(placed):
        here, points = order[begin[j] : begin[j + 1]], pairs.between(j, k)
        if len(here) < options.pair_known or points is None:
            continue
        flat = flat_enough(bundle, j, points[0]) & flat_enough(bundle, k, points[1])  # [M]
        points = points[0][flat], points[1][flat]
        if len(points[0]) < options.pair_inliers:
            continue
        if j not in trees:
            trees[j] = cKDTree(bundle.tracks.xy[here])
        tasks.append((j, k, points, trees[j], depth[here]))
    found = in_parallel(lambda task: _relative_placement(bundle, *task, options, geometry), tasks)
    return max((p for p in found if p is not None), key=lambda p: p.merit, default=None)


def _relative_placement(
    bundle: Bundle,
    j: int,
    k: int,
    points: tuple[np.ndarray, np.ndarray],
    tree: cKDTree,
    depth: np.ndarray,
    options: PlacementOptions,
    geometry: TwoViewGeometry,
) -> Placement | None:
    """Pose of k from its matches with the placed image j; `depth` belongs to the pixels in `tree`."""
    seen = [pinhole_view(bundle, image, xy) for image, xy in zip((j, k), points, strict=True)]
    (xy_j, camera_j), (xy_k, camera_k) = seen
    pose, inlier = geometry.between(bundle, j, k, (seen[0], seen[1]))  # inlier: [M]
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
