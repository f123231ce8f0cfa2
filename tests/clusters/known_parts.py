"""Parts as solves of clusters would leave them: true cameras in a frame and a scale of their own, with noise."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from proba.clusters.solving import Part
from proba.geometry.sim3 import Sim3

ROTATION_RAD, PLACE = 0.001, 0.01


def ring(count: int = 60, radius: float = 10.0) -> np.ndarray:
    """Cameras [N, 4, 4] on a ring that look outwards, so that the whole closes a loop."""
    poses = np.tile(np.eye(4), (count, 1, 1))
    for k, pose in enumerate(poses):
        angle = 2 * np.pi * k / count
        pose[:3, :3] = Rotation.from_euler("y", -angle).as_matrix()
        pose[:3, 3] = -pose[:3, :3] @ [radius * np.sin(angle), 0, radius * np.cos(angle)]
    return poses


def own_frame(rng: np.random.Generator) -> Sim3:
    return Sim3(float(np.exp(rng.normal(0, 0.7))), Rotation.random(random_state=rng).as_matrix(), rng.normal(0, 5, 3))


def part(truth: np.ndarray, images: np.ndarray, frame: Sim3, rng: np.random.Generator, **more) -> Part:
    """The images [n] of the true cameras in a frame of their own; each sees 20 keypoints, the same in all parts."""
    n = len(images)
    noisy = truth[images].copy()
    noisy[:, :3, :3] = Rotation.from_rotvec(rng.normal(0, ROTATION_RAD, (n, 3))).as_matrix() @ noisy[:, :3, :3]
    noisy[:, :3, 3] += rng.normal(0, PLACE, (n, 3))
    seen = np.repeat(images, 20)
    depth = 5 + np.tile(np.arange(20.0), n) / 10
    values = {
        "images": images,
        "cam_from_world": frame.apply_to_poses(noisy),
        "pose_std": np.repeat([[ROTATION_RAD] * 3 + [PLACE * frame.scale] * 3], n, axis=0),
        "camera_of_image": np.zeros(n, np.int64),
        "focal_px": [(800.0, 800.0, 1.0)],
        "log_depth": np.full((n, 4, 4), np.log(5 * frame.scale), np.float32),
        "log_variance": np.zeros((n, 4, 4), np.float32),
        "edges": np.zeros((0, 2), np.int64),
        "edge_weight": np.zeros(0),
        "seen_image": seen,
        "seen_xy": np.column_stack([np.tile(np.arange(20), n), seen]).astype(np.float32),
        "seen_depth": frame.scale * depth * np.exp(rng.normal(0, 0.01, len(depth))),
        "explained": 0.95,
        "unplaced": (),
    }
    return Part(**(values | more))


def parts_of_ring(count: int = 5, seed: int = 0, reach: int = 4) -> tuple[np.ndarray, list[Part], list[Sim3]]:
    """True cameras, parts of twelve and `reach` more images on both sides, and the part from the world."""
    rng = np.random.default_rng(seed)
    truth = ring(12 * count)
    frames = [own_frame(rng) for _ in range(count)]
    members = [np.sort(np.arange(12 * k - reach, 12 * k + 12 + reach) % len(truth)) for k in range(count)]
    return truth, [part(truth, m, f, rng) for m, f in zip(members, frames, strict=True)], frames
