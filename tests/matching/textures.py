"""Textured pictures with known geometry."""

from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from proba.synthetic import Scene


def noise(width: int, height: int, seed: int = 0) -> np.ndarray:  # [h, w, 3] uint8
    """Colour noise over several octaves, so that every detector finds something at every scale."""
    random = np.random.default_rng(seed)
    total = np.zeros((height, width, 3), np.float32)
    for cell in (3, 6, 12, 24, 48):
        grid = random.random((height // cell + 2, width // cell + 2, 3), dtype=np.float32)
        total += cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC) * cell**0.5
    low, high = np.percentile(total, (1, 99))
    return ((total - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)


def warped(image: np.ndarray, matrix: np.ndarray, size: tuple[int, int] | None = None) -> np.ndarray:
    """The picture after a homography between pixels whose first centre is at (0.5, 0.5)."""
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    center0 = np.linalg.inv(half) @ matrix @ half  # OpenCV's pixels have integer centres
    size = size or (image.shape[1], image.shape[0])
    return cv2.warpPerspective(image, center0, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)


def transfer(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:  # [K, 2]
    """Points through a homography."""
    mapped = np.hstack([points, np.ones((len(points), 1))]) @ matrix.T
    return mapped[:, :2] / mapped[:, 2:]


def save(path: Path, image: np.ndarray, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, **options)
    return path


def two_plane_views(count: int, width: int = 400, height: int = 300, focal_px: float = 400.0) -> list[np.ndarray]:
    """Photos of a wall with a nearer board before its right half, from a moving and turning camera."""
    texture_px = 800
    wall, board = noise(texture_px, texture_px, seed=1), noise(texture_px, texture_px, seed=2)
    intrinsics = np.array([[focal_px, 0, width / 2], [0, focal_px, height / 2], [0, 0, 1]])
    views = []
    for k in range(count):
        angle = 0.06 * (k - count / 2)
        rotation = cv2.Rodrigues(np.array([0.02 * k, -angle, 0.01 * k]))[0]
        centre = np.array([4 * np.sin(angle) * 1.5, 0.15 * np.cos(2 * k), 0.1 * np.sin(3 * k)])
        picture = np.zeros((height, width, 3), np.uint8)
        for texture, depth, left in ((wall, 4.5, -3.0), (board, 3.2, 0.1)):
            # Texture pixel (u, v) is the scene point (left + u s, -3 + v s, depth).
            scene_from_texture = np.array([[6 / 800, 0, left], [0, 6 / 800, -3], [0, 0, depth]])
            to_image = intrinsics @ rotation @ (scene_from_texture - np.outer(centre, [0, 0, 1]))
            layer = warped(texture, to_image, (width, height))
            inside = cv2.warpPerspective(np.ones((800, 800), np.uint8), to_image, (width, height))
            picture[inside > 0] = layer[inside > 0]
        views.append(picture)
    return views


def true_places(scene: Scene, i: int, j: int, points: np.ndarray) -> np.ndarray:  # [K, 2]
    """Where what a rendered photo i shows at points [K, 2] lies in photo j, seen there or not; NaN where it is sky."""
    depth, _ = scene.cast(i, points)  # [K]
    surface = scene.centre(i) + np.where(np.isfinite(depth), depth, np.nan)[:, None] * scene.rays(i, points)
    return scene.project(j, surface)[0]
