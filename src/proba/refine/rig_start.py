"""Where cameras sit on their rig, and where the rig was, as a world shows it whose images are free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from proba.refine.bundle import Bundle, observed_depths
from proba.refine.rig import Rig, centres_of, inverse
from proba.rigs import SAME_PLACE, Rigs

NEAR_DEG, NEAR_DEPTH = 3.0, 0.05
"""Poses of one frame agree within this angle, and within this part of the median depth."""
MOST_FRAMES = 300
"""Frames that are asked for the relation of two sensors; more say nothing new."""


@dataclass(frozen=True, eq=False)
class RigStart:
    """Rigs in a world, before they are adjusted."""

    rig: Rig
    frames: np.ndarray  # [F, 4, 4], rig_from_world
    placed: np.ndarray  # [N] bool, images whose frame has a pose
    sits: np.ndarray  # [S] bool, sensors that are on their rig; images of the others stay by themselves


def rig_start(bundle: Bundle, rigs: Rigs, trusted: np.ndarray, units: float) -> RigStart | None:
    """The rigs as the `trusted` images [N] bool show them; None where no two of a moment are placed. `units` are those
    of the world in a unit of what is known of the rigs."""
    poses = _sensor_poses(bundle.cam_from_world, rigs, trusted, units)
    sits = np.array([pose is not None for pose in poses])  # [S]
    sensors = np.stack([np.eye(4) if pose is None else pose for pose in [*poses, None]])  # [S + 1, 4, 4]
    on_rig = (rigs.sensor_of_image >= 0) & sits[rigs.sensor_of_image]  # [N]
    n_images, n_frames = len(on_rig), len(rigs.frames)
    label = np.where(on_rig, rigs.frame_of_image, n_frames + np.arange(n_images))
    frame = np.unique(label, return_inverse=True)[1].reshape(-1)  # [N]
    if len(np.unique(frame[on_rig])) == on_rig.sum():
        return None
    known = np.array([sensor.cam_from_rig is not None for sensor in rigs.sensors])
    identity = (np.abs(sensors[:-1] - np.eye(4)) < 1e-12).all(axis=(1, 2))
    rig = Rig(
        frame_of_image=frame,
        sensor_of_image=np.where(on_rig, rigs.sensor_of_image, len(rigs.sensors)),
        sensor_from_rig=sensors,
        free=np.append(sits & ~known & ~identity, False),
    )
    frames, there = _frame_poses(bundle, rig, trusted)
    return RigStart(rig, frames, there[frame], sits)


def known_units(cam_from_world: np.ndarray, rigs: Rigs, trusted: np.ndarray) -> float:
    """How many units of the world a unit of what is known of the rigs is; 1 where no distance is known, and NaN where
    no two such cameras are placed."""
    arms = {s: _arm(sensor.cam_from_rig) for s, sensor in enumerate(rigs.sensors) if sensor.cam_from_rig is not None}
    if not has_length(rigs):
        return 1.0
    found = []
    for members in _moments(rigs, trusted).values():
        for one in members:
            for other in members:
                s, t = int(rigs.sensor_of_image[one]), int(rigs.sensor_of_image[other])
                first = rigs.sensors[s].cam_from_rig
                if one == other or s not in arms or t not in arms or first is None:
                    continue
                told = first[:3, :3] @ (arms[t] - arms[s])
                if (square := float(told @ told)) > SAME_PLACE**2:
                    seen = cam_from_world[one] @ inverse(cam_from_world[other])
                    found.append(float(seen[:3, 3] @ told) / square)
    middle = float(np.median(found)) if found else np.nan
    return middle if middle > 0 else np.nan


def has_length(rigs: Rigs) -> bool:
    """Whether a distance between sensors is known."""
    told = [_arm(sensor.cam_from_rig) for sensor in rigs.sensors if sensor.cam_from_rig is not None]
    return any(float(np.linalg.norm(arm)) > SAME_PLACE for arm in told)


def _arm(pose: np.ndarray) -> np.ndarray:  # [3]
    return centres_of(pose)


def _moments(rigs: Rigs, trusted: np.ndarray) -> dict[int, list[int]]:
    """The trusted images of each frame."""
    found: dict[int, list[int]] = {}
    for n in np.flatnonzero(trusted & (rigs.frame_of_image >= 0)).tolist():
        found.setdefault(int(rigs.frame_of_image[n]), []).append(n)
    return found


def _sensor_poses(
    cam_from_world: np.ndarray, rigs: Rigs, trusted: np.ndarray, units: float
) -> list[np.ndarray | None]:  # [S]
    """Where each sensor sits: as it is known, else one after the other by those it shares most frames with. None: no
    frame shows it."""
    poses: list[np.ndarray | None] = [_in_units(sensor.cam_from_rig, units) for sensor in rigs.sensors]
    moments = _moments(rigs, trusted)
    of_rig = [sensor.rig for sensor in rigs.sensors]
    taken = np.bincount(rigs.sensor_of_image[trusted & (rigs.sensor_of_image >= 0)], minlength=len(poses))
    for rig in sorted(set(of_rig)):
        mine = [s for s in range(len(poses)) if of_rig[s] == rig]
        if all(poses[s] is None for s in mine):  # folders: the first sensor with most images is the reference
            poses[max(mine, key=lambda s: (taken[s], -s))] = np.eye(4)
        while missing := [s for s in mine if poses[s] is None]:
            shared = {
                (s, t): _relative(cam_from_world, rigs, moments, s, t)
                for s in missing
                for t in mine
                if poses[t] is not None
            }
            (s, t), relative = max(shared.items(), key=lambda item: len(item[1]))
            if not len(relative):
                break
            poses[s] = consensus(relative) @ poses[t]
    return poses


def _in_units(pose: np.ndarray | None, units: float) -> np.ndarray | None:
    if pose is None:
        return None
    scaled = pose.copy()
    scaled[:3, 3] *= units
    return scaled


def _relative(
    cam_from_world: np.ndarray, rigs: Rigs, moments: dict[int, list[int]], one: int, other: int
) -> np.ndarray:  # [K, 4, 4]
    """one_from_other in the frames where both sensors have a trusted image."""
    found = []
    for members in moments.values():
        by_sensor = {int(rigs.sensor_of_image[n]): n for n in members}
        if one in by_sensor and other in by_sensor:
            found.append(cam_from_world[by_sensor[one]] @ inverse(cam_from_world[by_sensor[other]]))
    return np.array(found[:MOST_FRAMES]).reshape(-1, 4, 4)


def consensus(poses: np.ndarray) -> np.ndarray:  # [4, 4]
    """The pose that most of some [K, 4, 4] agree on: the one nearest to the others, averaged with its neighbours."""
    turns = Rotation.from_matrix(poses[:, :3, :3])
    angle = np.stack([(turns * turn.inv()).magnitude() for turn in turns])  # [K, K]
    centres = centres_of(poses)
    apart = np.linalg.norm(centres[:, None] - centres, axis=2)  # [K, K]
    wide = np.median(apart) + 1e-12, np.median(angle) + 1e-12
    middle = int((np.minimum(apart / wide[0], 2) + np.minimum(angle / wide[1], 2)).sum(axis=0).argmin())
    near = (angle[middle] <= 2 * np.median(angle[middle]) + 1e-9) & (
        apart[middle] <= 2 * np.median(apart[middle]) + 1e-9
    )
    pose = np.eye(4)
    pose[:3, :3] = turns[near].mean().as_matrix()
    pose[:3, 3] = -pose[:3, :3] @ np.median(centres[near], axis=0)
    return pose


def _frame_poses(bundle: Bundle, rig: Rig, trusted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """rig_from_world of each frame [F, 4, 4], and which of them [F] bool have a trusted image: the pose of the image
    that agrees with most others, by what these observe."""
    wanted = inverse(rig.sensor_from_rig[rig.sensor_of_image]) @ bundle.cam_from_world  # [N, 4, 4]
    seen = np.bincount(bundle.tracks.image[bundle.alive], minlength=bundle.n_images) + 1.0  # [N]
    depth = observed_depths(bundle)[bundle.alive]
    near = NEAR_DEPTH * float(np.median(depth)) if len(depth) else np.inf
    frames, there = rig.frames(bundle.cam_from_world), np.zeros(rig.n_frames, bool)
    members: list[list[int]] = [[] for _ in range(rig.n_frames)]
    for n in np.flatnonzero(trusted).tolist():
        members[rig.frame_of_image[n]].append(n)
    for f, mine in enumerate(members):
        if mine:
            frames[f], there[f] = wanted[mine[_most_agreed(wanted[mine], seen[mine], near)]], True
    return frames, there


def _most_agreed(poses: np.ndarray, weight: np.ndarray, near: float) -> int:
    """Which of some poses [K, 4, 4] has most of the `weight` [K] near it."""
    turns, centres = Rotation.from_matrix(poses[:, :3, :3]), centres_of(poses)
    votes: Sequence[float] = [
        float(
            weight[
                ((turns * turn.inv()).magnitude() < np.radians(NEAR_DEG))
                & (np.linalg.norm(centres - centre, axis=1) < near)
            ].sum()
        )
        for turn, centre in zip(turns, centres, strict=True)
    ]
    return int(np.argmax(np.array(votes) + 1e-6 * weight))
