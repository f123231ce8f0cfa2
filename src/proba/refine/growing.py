"""Where the solver's worlds failed: cameras placed one by one, starting from the strongest pair."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import poselib

from proba.geometry.camera import FX, FY, UNIT_SIDE_PX, focal_from_fov
from proba.refine.adjust import Freedom, adjust
from proba.refine.agreement import PairAgreement, explained, same_world
from proba.refine.bundle import Bundle
from proba.refine.options import PlacementOptions, RefineOptions, WorldOptions
from proba.refine.placement import flat_enough, pair_ransac, pinhole_view, pose_matrix
from proba.refine.rescue import rebuild, rescue
from proba.refine.separate import separate_cameras
from proba.refine.state import State, WorldReport
from proba.refine.triangulate import triangulate
from proba.solution import GROWN


def worth_growing(state: State) -> bool:
    """Whether the chosen world explains so little that another way should be tried."""
    options, pairs = state.options, state.observations.pairs
    if not options.growing.enabled or not options.rescue.rounds or state.bundle.n_images < options.rescue.min_images:
        return False
    poor = options.worlds.poor_share * pairs.explainable
    alone = len(state.choice.worlds) == 1
    sure = options.growing.sure_share * pairs.explainable if alone else options.worlds.good_share
    lost = explained(state.bundle, pairs) < (poor if state.choice.confirmed else sure)
    return lost and not (state.apart is not None and explained(state.apart.bundle, pairs) >= sure)


def grow_cameras(state: State) -> State:
    """Stage: another world, named `grown`, takes the place of the chosen one if it explains clearly more."""
    options, pairs, begin = state.options, state.observations.pairs, time.perf_counter()
    share = explained(state.bundle, pairs)
    good = max(options.worlds.poor_share * pairs.explainable, share)
    grown = rescue(grow(state.bundle, pairs, state.freedom, options, good=good), pairs, state.freedom, options)
    now = explained(grown.bundle, pairs)
    report = WorldReport(name=GROWN, attempt=state.chosen.attempt, share=now, seconds=time.perf_counter() - begin)
    state = replace(state, reports=(*state.reports, report))
    if now <= share + options.growing.clear_gain:
        return state
    # None of its images stands where the solver placed it.
    state = replace(state, chosen=report).with_placed(replace(grown, anew=~grown.left))
    return separate_cameras(state)


def grow(bundle: Bundle, pairs: PairAgreement, freedom: Freedom, options: RefineOptions, *, good: float) -> Bundle:
    """The cameras placed one by one, starting from the strongest pair, for several focal lengths; the best result.

    For sets where wrong matches outweigh the right ones when all images move at once: a camera that is placed by the
    points of others can leave its wrong matches aside. Of many images a part tells which focal length is best. Ends
    when a share of `good` is explained, or when it comes out as it was: two ways that lead to the same cameras confirm
    them.
    """
    best, best_share = bundle, -1.0
    starts = [_with_fov(bundle, fov) for fov in options.placement.fov_deg] if _open(bundle) else [bundle]
    trial = options.growing.trial_images
    if len(starts) > 1 and bundle.n_images > trial:
        tried = [_explained_among(*_grown(start, pairs, freedom, options, most=trial), pairs) for start in starts]
        starts = [starts[int(np.argmax(tried))]]
    for start in starts:
        grown, _ = _grown(start, pairs, freedom, options)
        share = explained(grown, pairs)
        if share > best_share:
            best, best_share = grown, share
        if best_share > good or _confirms(grown, share, bundle, pairs, options.worlds):
            break
    return best


def _grown(
    start: Bundle, pairs: PairAgreement, freedom: Freedom, options: RefineOptions, *, most: int | None = None
) -> tuple[Bundle, np.ndarray]:
    """The world that grows from the strongest pair, and which images [N] bool it holds."""
    seeded, core = _strongest_pair(start, pairs, options.adjust.settle[0].keep_px, options.placement)
    # Two or three images say little about the focal length.
    grown, placed = rebuild(seeded, core, pairs, Freedom(focal=False), options, most=most)
    images = None if placed.all() else placed
    return adjust(grown, options.adjust.annealed, freedom, options.adjust, images=images), placed


def _explained_among(bundle: Bundle, placed: np.ndarray, pairs: PairAgreement) -> float:
    """The explained matches of pairs of `placed` images [N] bool."""
    explained = np.minimum(pairs.support(bundle), pairs.potential) * pairs.count
    return float(explained[placed[pairs.pairs].all(axis=1)].sum())


def _open(bundle: Bundle) -> bool:
    """Whether a field of view is a guess; that of a fisheye was one of the solver's worlds."""
    return not (bundle.known | bundle.calibrated | bundle.fisheye).all()


def _confirms(grown: Bundle, share: float, bundle: Bundle, pairs: PairAgreement, options: WorldOptions) -> bool:
    """Whether a grown world that explains this share is the one that was there."""
    enough = options.agree_min_share * pairs.explainable
    alike = abs(share - explained(bundle, pairs)) < options.agree_share
    return alike and share >= enough and same_world(grown, bundle, options.agree_deg)


def _with_fov(bundle: Bundle, fov_deg: float) -> Bundle:
    """The bundle with one field of view along the longest side of all cameras whose focal length is not known."""
    intrinsics = bundle.intrinsics.copy()
    focal = np.where(bundle.known, bundle.known_focal, focal_from_fov(fov_deg, UNIT_SIDE_PX))  # [C]
    plain = ~(bundle.calibrated | bundle.fisheye)
    intrinsics[np.ix_(plain, [FX, FY])] = focal[plain, None]
    return replace(bundle, intrinsics=intrinsics)


def _strongest_pair(
    bundle: Bundle, pairs: PairAgreement, keep_px: float, options: PlacementOptions
) -> tuple[Bundle, np.ndarray]:
    """The bundle with the pair of most matches placed by its two-view geometry, and these two images [N] bool."""
    i, j = (int(k) for k in pairs.pairs[pairs.weight.argmax()])
    points = pairs.between(i, j)
    assert points is not None
    flat = flat_enough(bundle, i, points[0]) & flat_enough(bundle, j, points[1])  # [M]
    points = points[0][flat], points[1][flat]
    (xy_i, camera_i), (xy_j, camera_j) = (
        pinhole_view(bundle, image, xy) for image, xy in zip((i, j), points, strict=True)
    )
    pose, _ = poselib.estimate_relative_pose(xy_i, xy_j, camera_i, camera_j, pair_ransac(options), {})
    poses = bundle.cam_from_world.copy()
    poses[i], poses[j] = np.eye(4), pose_matrix(pose.R, pose.t)
    core = np.zeros(bundle.n_images, bool)
    core[[i, j]] = True
    return triangulate(replace(bundle, cam_from_world=poses), keep_px, core), core
