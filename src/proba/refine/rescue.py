"""Badly placed images: peel them off, adjust the rest, and place them again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from proba.geometry.camera import FX, FY
from proba.refine.adjust import Freedom, adjust
from proba.refine.agreement import PairAgreement, explained
from proba.refine.bundle import Bundle
from proba.refine.options import RefineOptions
from proba.refine.placement import TwoViewGeometry, best_placements
from proba.refine.scale_links import held_in_scale
from proba.refine.state import Placed, State
from proba.refine.triangulate import reassess


def rescue_images(state: State) -> State:
    """Stage: images that contradict the core of the world are placed anew, or left over."""
    return state.with_placed(rescue(state.bundle, state.observations.pairs, state.freedom, state.options))


def rescue(bundle: Bundle, pairs: PairAgreement, freedom: Freedom, options: RefineOptions) -> Placed:
    """Repeat the rescue while more is explained. Only the world's own core places images."""
    placed_anew, left_over, away = np.zeros((3, bundle.n_images), bool)
    share = explained(bundle, pairs)
    enough = bundle.n_images >= options.rescue.min_images
    for _ in range(options.rescue.rounds if enough else 0):
        start, runaway = _brought_back(bundle, options.rescue.runaway)
        core = pairs.core(bundle) & ~runaway & ~away  # [N]
        # Where almost nothing agrees there is no core to trust, and the whole is left as it is.
        if core.all() or core.sum() < options.rescue.min_core:
            break
        attempt, placed = rebuild(start, core, pairs, freedom, options)
        left_over = ~placed
        gain = explained(attempt, pairs) - share
        # What images explained that turned out to have run away does not count.
        away = away | (core & ~placed)
        if gain > -pairs.part_of(core & ~placed):
            bundle, share, placed_anew = attempt, share + gain, placed_anew | (placed & ~core)
        if gain < options.rescue.min_gain:
            break
    return Placed(bundle, anew=placed_anew & ~left_over, left=left_over & (~pairs.core(bundle) | away))


def _brought_back(bundle: Bundle, runaway_factor: float) -> tuple[Bundle, np.ndarray]:
    """The bundle with a median focal length for the images [N] bool whose own, unknown before, ran away, and these."""
    focal = bundle.intrinsics[bundle.camera_of_image, FX]  # [N]
    median = np.median(focal)
    alone = np.bincount(bundle.camera_of_image, minlength=bundle.n_cameras)[bundle.camera_of_image] == 1  # [N]
    runaway = alone & ~bundle.known[bundle.camera_of_image] & (np.abs(np.log(focal / median)) > np.log(runaway_factor))
    intrinsics, lost = bundle.intrinsics.copy(), bundle.camera_of_image[runaway]
    intrinsics[lost[:, None], [FX, FY]] *= (median / focal[runaway])[:, None]
    return replace(bundle, intrinsics=intrinsics), runaway


def rebuild(
    bundle: Bundle,
    core: np.ndarray,
    pairs: PairAgreement,
    freedom: Freedom,
    options: RefineOptions,
    *,
    most: int | None = None,
) -> tuple[Bundle, np.ndarray]:
    """Adjust the core [N] bool alone, then place the other images, the best supported first, until `most` are placed.

    One by one at the beginning; of many that are sure, as many at a time as there are between two adjustments.
    """
    placed, rounds, before = core.copy(), options.adjust, bundle.cam_from_world
    bundle = reassess(bundle, rounds.settle[0].keep_px, 0.0, placed)
    bundle = adjust(bundle, rounds.settle, freedom, rounds, images=placed)
    since_adjustment, geometry = 0, TwoViewGeometry(options.placement)
    while not placed.all() and (most is None or placed.sum() < most):
        room = max(1, placed.sum() // options.rescue.images_per_adjustment - since_adjustment)
        found = best_placements(bundle, placed, pairs, options.placement, int(room), geometry)
        if not found:
            break
        poses, intrinsics = bundle.cam_from_world.copy(), bundle.intrinsics.copy()
        for best in found:
            poses[best.image] = best.cam_from_world
            camera = bundle.camera_of_image[best.image]
            intrinsics[camera, [FX, FY]] *= best.focal / intrinsics[camera, FX]
            placed[best.image] = True
        bundle = replace(bundle, cam_from_world=poses, intrinsics=intrinsics)
        bundle = reassess(bundle, options.rescue.rejoin_px, 0.0, placed)
        since_adjustment += len(found)
        # Adjusting after every single image costs more than it gives once the core is large.
        if since_adjustment >= max(1, placed.sum() // options.rescue.images_per_adjustment) or placed.all():
            bundle = adjust(bundle, rounds.rejoin, freedom, rounds, images=placed)
            since_adjustment = 0
    everyone = None if placed.sum() == core.sum() else placed
    bundle = reassess(bundle, options.rescue.finish_px, 0.0, everyone)
    bundle = adjust(bundle, rounds.rejoined, freedom, rounds, images=everyone)
    scale = options.rescue.scale
    asked = scale.enabled and bundle.n_images >= scale.min_images
    held = held_in_scale(bundle, placed, pairs, scale) if asked else placed
    if (placed & ~held).any():
        poses = np.where(held[:, None, None], bundle.cam_from_world, before)
        bundle = reassess(replace(bundle, cam_from_world=poses), options.rescue.finish_px, 0.0, held)
        bundle = adjust(bundle, rounds.rejoined, freedom, rounds, images=held)
    return bundle, held
