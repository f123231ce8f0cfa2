"""A scene with exact cameras and geometry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proba.geometry.camera import widened
from proba.io.ground_truth import GroundTruth
from proba.reconstruction import Camera
from proba.synthetic.raycast import Solids, cast


@dataclass(kw_only=True)
class Scene:
    """Solids seen by cameras of one lens. Metres; OpenCV axes; first pixel centre at (0.5, 0.5)."""

    name: str
    solids: Solids
    rotation: np.ndarray  # [N, 3, 3] float64, x_cam = R x_world + t
    translation: np.ndarray  # [N, 3] float64
    intrinsics: np.ndarray  # [N, 4] float64: fx, fy, cx, cy
    width: int
    height: int
    model: str = "PINHOLE"
    """COLMAP's name of the lens. Depth is z, or the distance from a fisheye."""
    distortion: tuple[float, ...] = ()
    """Its parameters after fx, fy, cx and cy."""
    max_range: float = float("inf")
    """Rays see nothing beyond this distance (metres), as in thick air; it keeps long scenes cheap."""
    names: tuple[str, ...] = ()
    """Names of the images; empty: their numbers."""

    @property
    def n_images(self) -> int:
        return len(self.rotation)

    @property
    def image_names(self) -> list[str]:
        return list(self.names) or [f"{k:03d}.png" for k in range(self.n_images)]

    @property
    def fov_deg(self) -> float:
        """Field of view of the first camera along the longest side."""
        return self.camera(0).fov_deg

    def camera(self, image: int) -> Camera:
        params = np.array([*self.intrinsics[image], *self.distortion])
        return Camera(model=self.model, width=self.width, height=self.height, params=params)

    @property
    def centres(self) -> np.ndarray:  # [N, 3]
        return -np.einsum("nji,nj->ni", self.rotation, self.translation)

    def centre(self, image: int) -> np.ndarray:  # [3]
        return -self.rotation[image].T @ self.translation[image]

    def _near(self, image: int) -> Solids:
        return self.solids.near(self.centre(image), self.max_range)

    @property
    def cam_from_world(self) -> np.ndarray:  # [N, 4, 4]
        transform = np.tile(np.eye(4), (self.n_images, 1, 1))
        transform[:, :3, :3], transform[:, :3, 3] = self.rotation, self.translation
        return transform

    def rays(self, image: int, pixels: np.ndarray) -> np.ndarray:
        """World directions through pixels [R, 2]; a multiple of them by depth leads from the camera to a point."""
        return self.camera(image).rays(pixels) @ self.rotation[image]

    def project(self, image: int, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels [P, 2] and depths [P] of world points [P, 3]; pixels are NaN behind the camera."""
        camera = self.camera(image)
        in_camera = points @ self.rotation[image].T + self.translation[image]  # [P, 3]
        return camera.project(in_camera), camera.depths(in_camera)

    def cast(self, image: int, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Depth [R] (inf: nothing) and index of the solid [R] (-1: none) at pixels [R, 2]."""
        return cast(self._near(image), self.centre(image), self.rays(image, pixels), self.max_range)

    def lifted(self, image: int, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Surface points [R, 3] under pixels [R, 2], and where there are any [R] bool."""
        depth, _ = self.cast(image, pixels)
        seen = np.isfinite(depth)
        return self.centre(image) + np.where(seen, depth, 0)[:, None] * self.rays(image, pixels), seen

    def depth_map(self, image: int, width: int, height: int) -> np.ndarray:  # [height, width]
        """Depth at the cell centres of a grid over the whole image, inf where nothing is seen."""
        return self.cast(image, self.grid(width, height))[0].reshape(height, width)

    def grid(self, columns: int, rows: int) -> np.ndarray:  # [rows * columns, 2]
        """Pixels at the centres of equal cells, row by row."""
        x = (np.arange(columns) + 0.5) * self.width / columns
        y = (np.arange(rows) + 0.5) * self.height / rows
        return np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)

    def visible(self, image: int, points: np.ndarray) -> np.ndarray:  # [P] bool
        """Whether nothing stands between the camera and surface points [P, 3]; the frame is not looked at."""
        to_points = points - self.centre(image)
        reach = np.linalg.norm(to_points, axis=1)
        distance, _ = cast(self._near(image), self.centre(image), to_points)
        return (distance > 1 - 1e-6) & (reach <= self.max_range)

    def sample_points(self, columns: int = 64, rows: int = 48) -> np.ndarray:  # [P, 3]
        """The seen surfaces as a cloud: the grid of every image, lifted to 3D."""
        pixels = self.grid(columns, rows)
        clouds = []
        for k in range(self.n_images):
            points, seen = self.lifted(k, pixels)
            clouds.append(points[seen])
        return np.concatenate(clouds)

    def ground_truth(self, cloud: bool = True) -> GroundTruth:
        """Exact cameras, and the seen surfaces as a cloud unless it is switched off."""
        bent = widened(self.model, self.camera(0).params)[4:] if any(self.distortion) else None  # [8]
        return GroundTruth(
            names=self.image_names,
            cam_from_world=self.cam_from_world,
            intrinsics=self.intrinsics.copy(),
            width=np.full(self.n_images, self.width),
            height=np.full(self.n_images, self.height),
            metres_per_unit=1.0,
            points=self.sample_points() if cloud else None,
            distortion=None if bent is None else np.tile(bent, (self.n_images, 1)),
            fisheye=np.ones(self.n_images, bool) if self.camera(0).is_fisheye else None,
        )
