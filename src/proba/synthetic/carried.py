"""Scenes seen by several cameras that one body carries: a rig."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from proba.synthetic.scene import Scene


def on_rig(scene: Scene, cam_from_rig: np.ndarray, folders: Sequence[str] | None = None) -> Scene:
    """The scene seen by cameras [S, 4, 4] on a rig that stands where the scene's own cameras do.

    Images are named `folder/frame.png`, `cam0`, `cam1`, ... by default, all frames of the first camera first.
    """
    folders = folders or [f"cam{k}" for k in range(len(cam_from_rig))]
    poses = np.concatenate([camera @ scene.cam_from_world for camera in cam_from_rig])  # [S * N, 4, 4]
    return replace(
        scene,
        rotation=poses[:, :3, :3],
        translation=poses[:, :3, 3],
        intrinsics=np.tile(scene.intrinsics, (len(cam_from_rig), 1)),
        names=tuple(f"{folder}/{name}" for folder in folders for name in scene.image_names),
    )


def turned_cameras(yaw_deg: Sequence[float], centres: Sequence[Sequence[float]] | None = None) -> np.ndarray:
    """cam_from_rig [S, 4, 4] of cameras turned to the right, at `centres` [S, 3] in the rig's frame, metres."""
    poses = np.tile(np.eye(4), (len(yaw_deg), 1, 1))
    poses[:, :3, :3] = Rotation.from_rotvec(np.outer(-np.asarray(yaw_deg), [0, 1, 0]), degrees=True).as_matrix()
    if centres is not None:
        poses[:, :3, 3] = -np.einsum("sij,sj->si", poses[:, :3, :3], np.asarray(centres, np.float64))
    return poses
