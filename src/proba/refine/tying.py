"""Cameras that moved together become a rig: the images of a moment are tied, and adjusted together from then on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from proba.refine.adjust import Freedom, adjust
from proba.refine.agreement import explained
from proba.refine.bundle import FX, FY, Bundle
from proba.refine.placement import best_placements
from proba.refine.rig import centres_of, inverse
from proba.refine.rig_start import RigStart, has_length, known_units, rig_start
from proba.refine.state import State, TiedRigs
from proba.refine.triangulate import reassess, triangulate
from proba.rigs import Rigs

START_PX = 40.0
"""Reprojection error up to which observations take part when cameras have been put on their rig."""


def worth_tying(state: State) -> bool:
    """Whether images are of one moment of a rig."""
    rigs = state.observations.rigs
    return rigs is not None and rigs.ties


def tie(state: State, *, every: bool = False) -> State:
    """Stage: the images of a moment are tied together, unless that explains clearly less. Images whose own matches say
    too little get their pose from those of the same moment. `every`: all images that have a pose show where the cameras
    sit, else those alone that agree with the largest group."""
    rigs, pairs = state.observations.rigs, state.observations.pairs
    assert rigs is not None
    posed = state.observations.known.posed if every and state.observations.known is not None else None
    trusted = pairs.core(state.bundle) & ~state.unplaced if posed is None else posed  # [N]
    units = known_units(state.bundle.cam_from_world, rigs, trusted)
    start = None if np.isnan(units) else rig_start(state.bundle, rigs, trusted, units)
    if start is None or not start.placed.any():
        return replace(state, tied=TiedRigs(refused="no two of its cameras are placed at one moment"))
    bundle, placed = _adjusted(state, rigs, start)
    before, after = explained(state.bundle, pairs), explained(bundle, pairs)
    if after < before - rigs.options.max_loss:
        text = f"as a rig its cameras explain {100 * after:.0f} instead of {100 * before:.0f} % of the matches"
        return replace(state, tied=TiedRigs(refused=text))
    by_rig = placed & ~trusted
    apart = tuple(sensor.name for sensor, sits in zip(rigs.sensors, start.sits, strict=True) if not sits)
    return replace(
        state,
        bundle=bundle,
        unplaced=~placed,
        placed_anew=(state.placed_anew & placed) | by_rig,
        tied=TiedRigs(apart=apart),
    )


def _adjusted(state: State, rigs: Rigs, start: RigStart) -> tuple[Bundle, np.ndarray]:
    """The bundle on its rigs, and the images [N] bool that are placed. Where distances are known, the relation is first
    left free, which gives the scale better than single cameras do."""
    rounds, length = state.options.adjust, has_length(rigs)
    rig = start.rig
    if length:
        rig = replace(rig, free=np.append(start.sits & ~_references(rigs), False))
    bundle = replace(state.bundle, cam_from_world=rig.images(start.frames), rig=rig)
    bundle = triangulate(bundle, START_PX, start.placed)
    bundle = adjust(bundle, rounds.annealed, state.freedom, rounds, images=start.placed)
    if length:
        bundle = _in_known_units(bundle, rigs, start)
        bundle = adjust(bundle, rounds.settle, state.freedom, rounds, images=start.placed)
    bundle, placed = place_frames(bundle, start.placed, state)
    return adjust(bundle, rounds.rejoined, state.freedom, rounds, images=None if placed.all() else placed), placed


def _references(rigs: Rigs) -> np.ndarray:  # [S] bool
    return np.array([sensor.reference for sensor in rigs.sensors])


def _in_known_units(bundle: Bundle, rigs: Rigs, start: RigStart) -> Bundle:
    """The bundle in the unit of what is known of its rigs, which are then as they are known."""
    assert bundle.rig is not None
    told = np.array([s.cam_from_rig is not None for s in rigs.sensors])  # [S]
    poses = np.stack([np.eye(4) if s.cam_from_rig is None else s.cam_from_rig for s in rigs.sensors])  # [S, 4, 4]
    arms, seen = centres_of(poses[told]), bundle.rig.arms[:-1][told]
    scale = float((arms**2).sum()) / float((arms * seen).sum())
    frames, xyz = bundle.rig.frames(bundle.cam_from_world), bundle.xyz * scale
    frames[:, :3, 3] *= scale
    sensors = bundle.rig.scaled(scale).sensor_from_rig
    sensors[:-1][told] = poses[told]
    sigma = np.repeat([np.radians(rigs.options.rotation_sigma_deg), rigs.options.centre_sigma], 3)  # [6]
    prior = rigs.options.use == "prior"
    free = start.rig.free.copy()
    expected, precision = sensors.copy(), np.zeros((len(sensors), 6))
    if prior:
        free[:-1] |= told & ~_references(rigs)
        precision[:-1][told & ~_references(rigs)] = 1 / sigma**2
    rig = replace(
        bundle.rig, sensor_from_rig=sensors, free=free, metric=True,
        expected=expected if prior else None, precision=precision if prior else None,
    )  # fmt: skip
    return replace(bundle, cam_from_world=rig.images(frames), xyz=xyz, rig=rig)


def place_frames(bundle: Bundle, placed: np.ndarray, state: State) -> tuple[Bundle, np.ndarray]:
    """Frames without a pose are placed by those of their images that see known points, the surest first."""
    rounds, options, pairs = state.options.adjust, state.options, state.observations.pairs
    placed = placed.copy()
    while not placed.all():
        room = max(1, int(placed.sum()) // options.rescue.images_per_adjustment)
        found = best_placements(bundle, placed, pairs, options.placement, room)
        if not found:
            break
        rig, intrinsics = bundle.rig, bundle.intrinsics.copy()
        assert rig is not None
        frames = rig.frames(bundle.cam_from_world)
        for best in found:
            frame, camera = rig.frame_of_image[best.image], bundle.camera_of_image[best.image]
            if not placed[best.image]:
                frames[frame] = inverse(rig.sensor_from_rig[rig.sensor_of_image[best.image]]) @ best.cam_from_world
                intrinsics[camera, [FX, FY]] *= best.focal / intrinsics[camera, FX]
                placed |= rig.frame_of_image == frame
        bundle = replace(bundle, cam_from_world=rig.images(frames), intrinsics=intrinsics)
        bundle = reassess(bundle, options.rescue.rejoin_px, 0.0, placed)
        bundle = adjust(bundle, rounds.rejoin, Freedom(), rounds, images=placed)
    return reassess(bundle, options.rescue.finish_px, 0.0, None if placed.all() else placed), placed
