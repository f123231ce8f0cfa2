"""Badly placed images: peel them off, adjust the rest, and place them again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import poselib
from scipy.spatial import cKDTree

from proba.geometry.camera import focal_from_fov
from proba.geometry.epipolar import two_view_depths
from proba.refine.adjust import ANNEALED, SETTLE, Freedom, Round, adjust
from proba.refine.agreement import PairAgreement
from proba.refine.bundle import FX, FY, UNIT_SIDE_PX, Bundle, observation_rays
from proba.refine.tracks import Tracks
from proba.refine.triangulate import observed_depths, reassess, triangulate
from proba.threads import in_parallel

MIN_CORE = 3
MIN_PNP_INLIERS = 10
SURE_PNP_INLIERS, SURE_PNP_SHARE = 30, 0.4
"""With more inliers than this nobody asks the two-view geometry for a second opinion."""
PNP = {"max_reproj_error": 6.0, "max_iterations": 5000, "min_iterations": 100}
TWO_VIEW = {"max_epipolar_error": 1.5, "max_iterations": 1000, "min_iterations": 100}
"""Plenty for one inlier in seven and in two; the default of 100,000 is spent on images that fit nowhere."""
MIN_TWO_VIEW_INLIERS, MIN_TWO_VIEW_SHARE = 40, 0.5
MIN_GAIN = 0.004
"""Gain in what is explained below which another round is not worth it."""

FOV_DEG = (50.0, 66.0, 36.0, 85.0, 25.0)
"""Fields of view to try where nothing is known, the common ones first."""
RUNAWAY = 4.0
"""A photo with a camera of its own has run away when its focal length is so many times the median of all, or a part of
it: far away and nearly parallel, it fits most epipolar lines. On castle_p19, each photo enlarged by its own factor, one
ended with eleven times its focal length (RTA@5 88; placed anew 99)."""
OTHER_FOCAL_GAIN = 1.1
"""So many times the inliers make another focal length than the present one believable."""

_REJOIN = (
    Round(loss_px=4, keep_px=10, tolerance=1e-3, iterations=10),
    Round(loss_px=2, keep_px=5, tolerance=1e-3, iterations=10),
)
_FINISH = (
    Round(loss_px=6, keep_px=12, tolerance=1e-3, iterations=15),
    Round(loss_px=2, keep_px=4, min_angle_deg=0.3, tolerance=1e-4),
    Round(loss_px=2, keep_px=4, min_angle_deg=0.3),
)


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


def rescue(
    bundle: Bundle, pairs: PairAgreement, freedom: Freedom, *, rounds: int
) -> tuple[Bundle, np.ndarray, np.ndarray]:
    """Repeat the rescue while more is explained. Also the images [N] bool placed anew, and those left over."""
    placed_anew, left_over = np.zeros((2, bundle.n_images), bool)
    share = explained(bundle, pairs)
    for _ in range(rounds):
        start, runaway = _brought_back(bundle) if freedom.focal else (bundle, np.zeros_like(left_over))
        core = pairs.core(bundle) & ~runaway  # [N]
        # Where almost nothing agrees there is no core to trust, and the whole is left as it is.
        if core.all() or core.sum() < MIN_CORE:
            break
        attempt, placed = _rebuild(start, core, pairs, freedom, any_focal=freedom.focal)
        left_over = ~placed
        gain = explained(attempt, pairs) - share
        if gain > 0:
            bundle, share, placed_anew = attempt, share + gain, placed_anew | (placed & ~core)
        if gain < MIN_GAIN:
            break
    return bundle, placed_anew & ~left_over, left_over & ~pairs.core(bundle)


def _brought_back(bundle: Bundle) -> tuple[Bundle, np.ndarray]:
    """The bundle with a median focal length for the images [N] bool whose own ran away, and these."""
    focal = bundle.intrinsics[bundle.camera_of_image, FX]  # [N]
    median = np.median(focal)
    alone = np.bincount(bundle.camera_of_image, minlength=bundle.n_cameras)[bundle.camera_of_image] == 1  # [N]
    runaway = alone & (np.abs(np.log(focal / median)) > np.log(RUNAWAY))
    intrinsics, lost = bundle.intrinsics.copy(), bundle.camera_of_image[runaway]
    intrinsics[lost[:, None], [FX, FY]] *= (median / focal[runaway])[:, None]
    return replace(bundle, intrinsics=intrinsics), runaway


def grow(bundle: Bundle, pairs: PairAgreement, freedom: Freedom, *, good: float) -> Bundle:
    """The cameras placed one by one, starting from the strongest pair, for several focal lengths; the best result.

    For sets where wrong matches outweigh the right ones when all images move at once: a camera that is placed by the
    points of others can leave its wrong matches aside. Ends when a share of `good` is explained.
    """
    best, best_share = bundle, -1.0
    starts = [_with_fov(bundle, fov) for fov in FOV_DEG] if freedom.focal else [bundle]
    for start in starts:
        seeded, core = _strongest_pair(start, pairs)
        # Two or three images say little about the focal length.
        grown, placed = _rebuild(seeded, core, pairs, Freedom(focal=False), any_focal=freedom.focal)
        grown = adjust(grown, ANNEALED, freedom, images=None if placed.all() else placed)
        share = explained(grown, pairs)
        if share > best_share:
            best, best_share = grown, share
        if best_share > good:
            break
    return best


def explained(bundle: Bundle, pairs: PairAgreement) -> float:
    """How much a world explains: of the matches of all pairs, times of the observations of all tracks.

    Epipolar lines say little where the field of view is narrow; tracks over several images do (dino_sparse).
    """
    return pairs.share(bundle) * bundle.share


def _with_fov(bundle: Bundle, fov_deg: float) -> Bundle:
    """The bundle with one field of view along the longest side of all cameras."""
    intrinsics = bundle.intrinsics.copy()
    intrinsics[:, [FX, FY]] = focal_from_fov(fov_deg, UNIT_SIDE_PX)
    return replace(bundle, intrinsics=intrinsics)


def _strongest_pair(bundle: Bundle, pairs: PairAgreement) -> tuple[Bundle, np.ndarray]:
    """The bundle with the pair of most matches placed by its two-view geometry, and these two images [N] bool."""
    i, j = (int(k) for k in pairs.pairs[pairs.weight.argmax()])
    points = pairs.between(i, j)
    assert points is not None
    (xy_i, camera_i), (xy_j, camera_j) = (
        _pinhole_view(bundle, image, xy) for image, xy in zip((i, j), points, strict=True)
    )
    pose, _ = poselib.estimate_relative_pose(xy_i, xy_j, camera_i, camera_j, TWO_VIEW, {})
    poses = bundle.cam_from_world.copy()
    poses[i], poses[j] = np.eye(4), _pose_matrix(pose.R, pose.t)
    core = np.zeros(bundle.n_images, bool)
    core[[i, j]] = True
    return triangulate(replace(bundle, cam_from_world=poses), SETTLE[0].keep_px, core), core


def _rebuild(
    bundle: Bundle, core: np.ndarray, pairs: PairAgreement, freedom: Freedom, *, any_focal: bool
) -> tuple[Bundle, np.ndarray]:
    """Adjust the core [N] bool alone, then place the other images one by one, the best supported first.

    With `any_focal`, images with a camera of their own may get another focal length.
    """
    placed = core.copy()
    bundle = reassess(bundle, SETTLE[0].keep_px, 0.0, placed)
    bundle = adjust(bundle, SETTLE, freedom, images=placed)
    since_adjustment = 0
    while not placed.all():
        best = _best_placement(bundle, placed, pairs, any_focal)
        if best is None:
            break
        poses, intrinsics = bundle.cam_from_world.copy(), bundle.intrinsics.copy()
        poses[best.image] = best.cam_from_world
        camera = bundle.camera_of_image[best.image]
        intrinsics[camera, [FX, FY]] *= best.focal / intrinsics[camera, FX]
        placed[best.image] = True
        bundle = reassess(replace(bundle, cam_from_world=poses, intrinsics=intrinsics), 10.0, 0.0, placed)
        since_adjustment += 1
        # Adjusting after every single image costs more than it gives once the core is large.
        if since_adjustment >= max(1, placed.sum() // 8) or placed.all():
            bundle = adjust(bundle, _REJOIN, freedom, images=placed)
            since_adjustment = 0
    everyone = None if placed.sum() == core.sum() else placed
    return adjust(reassess(bundle, 12.0, 0.0, everyone), _FINISH, freedom, images=everyone), placed


def _best_placement(bundle: Bundle, placed: np.ndarray, pairs: PairAgreement, any_focal: bool) -> Placement | None:
    """The best supported new pose of an image that is not placed yet."""
    lost = np.flatnonzero(~placed).tolist()
    found = in_parallel(lambda k: place_by_points(bundle, placed, k, any_focal), lost)
    best = max((p for p in found if p is not None), key=lambda p: p.inliers, default=None)
    sure = best is not None and best.inliers >= SURE_PNP_INLIERS and best.share >= SURE_PNP_SHARE
    if not sure:
        second = _place_by_pair(bundle, placed, lost, pairs)
        if second is not None and (best is None or second.merit > best.merit):
            return second
    return best if best is not None and best.inliers >= MIN_PNP_INLIERS else None


def place_by_points(bundle: Bundle, placed: np.ndarray, image: int, any_focal: bool) -> Placement | None:
    """Absolute pose of an image from points that the placed images hold."""
    tracks = bundle.tracks
    known = bundle.alive_per_track(placed) >= 2  # [T]
    owner = tracks.track_of_observation
    seen = (tracks.image == image) & known[owner]  # [K]
    if seen.sum() < MIN_PNP_INLIERS + 2:
        return None
    xy, camera = _pinhole_view(bundle, image, tracks.xy[seen])
    present = camera["params"][0]
    alone = bundle.camera_of_image[image] not in bundle.camera_of_image[placed]
    others = [float(focal_from_fov(fov, UNIT_SIDE_PX)) for fov in FOV_DEG] if any_focal and alone else []

    def place(focal: float) -> Placement:
        pinhole = {**camera, "params": [focal, 0.0, 0.0]}
        pose, info = poselib.estimate_absolute_pose(xy, bundle.xyz[owner[seen]], pinhole, PNP, {})
        inliers = int(info["num_inliers"])
        return Placement(image, _pose_matrix(pose.R, pose.t), inliers, inliers / int(seen.sum()), focal)

    first = place(present)
    best = max((place(focal) for focal in others if focal != present), key=lambda p: p.inliers, default=first)
    return best if best.inliers > OTHER_FOCAL_GAIN * first.inliers else first


def _place_by_pair(bundle: Bundle, placed: np.ndarray, lost: list[int], pairs: PairAgreement) -> Placement | None:
    """Relative pose to one placed image, with the scale from the depths known there."""
    depth = observed_depths(bundle)  # [K]
    known = bundle.alive & (bundle.alive_per_track(placed) >= 2)[bundle.tracks.track_of_observation]
    tasks: list[tuple[int, int, tuple[np.ndarray, np.ndarray], cKDTree, np.ndarray]] = []
    for j in np.flatnonzero(placed).tolist():
        here = known & (bundle.tracks.image == j)  # [K]
        if here.sum() < 20:
            continue
        tree = cKDTree(bundle.tracks.xy[here])
        for k in lost:
            points = pairs.between(j, k)
            if points is not None and len(points[0]) >= MIN_TWO_VIEW_INLIERS:
                tasks.append((j, k, points, tree, depth[here]))
    found = in_parallel(lambda task: _relative_placement(bundle, *task), tasks)
    return max((p for p in found if p is not None), key=lambda p: p.merit, default=None)


def _relative_placement(
    bundle: Bundle, j: int, k: int, points: tuple[np.ndarray, np.ndarray], tree: cKDTree, depth: np.ndarray
) -> Placement | None:
    """Pose of k from its matches with the placed image j; `depth` belongs to the pixels in `tree`."""
    (xy_j, camera_j), (xy_k, camera_k) = (
        _pinhole_view(bundle, image, xy) for image, xy in zip((j, k), points, strict=True)
    )
    pose, info = poselib.estimate_relative_pose(xy_j, xy_k, camera_j, camera_k, TWO_VIEW)
    inlier = np.array(info["inliers"], bool)  # [M]
    n_inliers = int(inlier.sum())
    if n_inliers < MIN_TWO_VIEW_INLIERS or n_inliers < MIN_TWO_VIEW_SHARE * len(inlier):
        return None
    translation = pose.t / np.linalg.norm(pose.t)
    unit_depth = two_view_depths(
        _rays(xy_j[inlier], camera_j), _rays(xy_k[inlier], camera_k), pose.R, translation
    )  # [I], for a baseline of one
    distance, nearest = tree.query(points[0][inlier])
    close = np.sort(distance)[min(len(distance) - 1, max(15, len(distance) // 4))]
    usable = (unit_depth > 0) & (distance <= close + 1e-6)
    if usable.sum() < 8:
        return None
    scale = np.exp(np.median(np.log(np.maximum(depth[nearest[usable]], 1e-9) / unit_depth[usable])))
    k_from_j = _pose_matrix(pose.R, translation * scale)
    pose_k = k_from_j @ bundle.cam_from_world[j]
    return Placement(k, pose_k, n_inliers, n_inliers / len(inlier), camera_k["params"][0])


def _pinhole_view(bundle: Bundle, image: int, xy: np.ndarray) -> tuple[np.ndarray, dict]:
    """Pixels [M, 2] without distortion and shift, as a centred pinhole camera of PoseLib sees them."""
    count = len(xy)
    view = replace(bundle, tracks=Tracks(np.array([0, count]), np.full(count, image), xy))
    focal = float(bundle.intrinsics[bundle.camera_of_image[image], 0])
    width, height = bundle.camera_size[bundle.camera_of_image[image]]
    camera = {"model": "SIMPLE_PINHOLE", "width": int(width), "height": int(height), "params": [focal, 0.0, 0.0]}
    return observation_rays(view) * focal, camera


def _rays(xy: np.ndarray, camera: dict) -> np.ndarray:
    """Homogeneous rays [M, 3] of centred pixels [M, 2]."""
    return np.concatenate([xy / camera["params"][0], np.ones((len(xy), 1))], axis=1)


def _pose_matrix(rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation, translation
    return matrix
