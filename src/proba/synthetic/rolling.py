"""Scenes seen through a rolling shutter: each row of a photo has a pose of its own."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.spatial.transform import Rotation

from proba.synthetic.raycast import cast
from proba.synthetic.scene import Scene

_STEPS = 12
"""Of the fixed point that finds the row in which a point is seen; each gains a digit or two."""


@dataclass(kw_only=True)
class RollingScene(Scene):
    """A scene whose cameras move while a photo is read; their poses are those of its middle row."""

    motion: np.ndarray  # [N, 6], turn (rad) and shift (metres) along the camera's axes while a photo is read

    def _poses(self, image: int, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rotations [R, 3, 3] and translations [R, 3] at rows [R]."""
        share = row[:, None] / self.height - 0.5
        turned = Rotation.from_rotvec(share * self.motion[image, :3]).as_matrix()  # [R, 3, 3]
        shifted = turned @ self.translation[image] + share * self.motion[image, 3:]
        return turned @ self.rotation[image], shifted

    def lifted(self, image: int, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rays = self.camera(image).rays(pixels)
        points, seen = np.zeros((len(pixels), 3)), np.zeros(len(pixels), bool)
        for row in np.unique(pixels[:, 1]):
            mine = pixels[:, 1] == row
            (rotation,), (translation,) = self._poses(image, np.array([row]))
            centre, along = -rotation.T @ translation, rays[mine] @ rotation
            depth, _ = cast(self._near(image), centre, along, self.max_range)
            seen[mine] = np.isfinite(depth)
            points[mine] = centre + np.where(seen[mine], depth, 0)[:, None] * along
        return points, seen

    def project(self, image: int, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        camera, row = self.camera(image), np.full(len(points), self.height / 2)
        for _ in range(_STEPS):
            rotation, translation = self._poses(image, np.clip(row, 0, self.height))
            inside = np.einsum("pij,pj->pi", rotation, points) + translation
            pixels = camera.project(inside)
            row = np.nan_to_num(pixels[:, 1], nan=self.height / 2)
        return pixels, camera.depths(inside)


def rolling(scene: Scene, motion: np.ndarray) -> RollingScene:
    """The scene seen while its cameras move by `motion` [N, 6]."""
    return RollingScene(**{one.name: getattr(scene, one.name) for one in fields(scene)}, motion=motion)
