"""Directions in space: which way is up, and the axes that other programs give their cameras."""

from __future__ import annotations

import numpy as np

OPENGL_FROM_OPENCV = np.diag([1.0, -1.0, -1.0, 1.0])
"""OpenCV's cameras have y down and z forward, OpenGL's y up and z backward."""


def camera_up(cam_from_world: np.ndarray) -> np.ndarray:
    """Mean direction [3] in the world that cameras [N, 4, 4] hold up (their -y)."""
    up = -cam_from_world[:, 1, :3].mean(axis=0)
    length = np.linalg.norm(up)
    return up / length if length > 1e-6 else np.array([0.0, -1.0, 0.0])


def rotation_to_z(direction: np.ndarray) -> np.ndarray:
    """Rotation [3, 3] that brings a unit direction to z by the shortest way, or over the x axis if it is opposite."""
    z = np.array([0.0, 0.0, 1.0])
    axis, cosine = np.cross(direction, z), float(direction @ z)
    if cosine < -1 + 1e-12:
        return np.diag([1.0, -1.0, -1.0])
    skew = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + skew + skew @ skew / (1 + cosine)
