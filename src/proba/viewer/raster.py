"""A small software renderer, for machines without a display: discs, points and lines with a depth buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from proba.viewer.framing import VIEW_FOV_DEG
from proba.viewer.palette import BACKGROUND

NEAR = 1e-3


@dataclass(frozen=True, eq=False)
class Eye:
    """A viewer's place, in the scene's frame."""

    position: np.ndarray  # [3]
    focus: np.ndarray  # [3]
    up: np.ndarray  # [3]

    def turned(self, angle_rad: float) -> Eye:
        """Moved around the focus, about the up direction."""
        axis, arm = self.up / np.linalg.norm(self.up), self.position - self.focus
        c, s = np.cos(angle_rad), np.sin(angle_rad)
        arm = arm * c + np.cross(axis, arm) * s + axis * (axis @ arm) * (1 - c)  # Rodrigues
        return Eye(self.focus + arm, self.focus, self.up)

    def nearer(self, factor: float) -> Eye:
        return Eye(self.focus + factor * (self.position - self.focus), self.focus, self.up)


class Canvas:
    """Collects fragments in depth order; drawn at a multiple of the final size, against jagged edges."""

    def __init__(self, width: int, height: int, eye: Eye, *, oversample: int = 2):
        self.size, self.oversample = (width, height), oversample
        self.width, self.height = width * oversample, height * oversample
        forward = eye.focus - eye.position
        forward = forward / np.linalg.norm(forward)
        right = np.cross(forward, eye.up)
        right = right / np.linalg.norm(right)
        self.eye_from_scene = np.stack([right, np.cross(forward, right), forward])  # [3, 3], y down
        self.position = eye.position
        self.focal_px = min(self.height, self.width) / 2 / np.tan(np.radians(VIEW_FOV_DEG / 2))
        self.image = Image.new("RGB", (self.width, self.height), BACKGROUND)
        self._fragments: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # flat pixel, depth, rgb

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels [K, 2] and depths [K] of points [K, 3]; NaN behind the eye."""
        seen = (np.asarray(points, np.float64) - self.position) @ self.eye_from_scene.T
        depth = np.where(seen[:, 2] > NEAR, seen[:, 2], np.nan)
        xy = self.focal_px * seen[:, :2] / depth[:, None] + [self.width / 2, self.height / 2]
        return xy, depth

    def discs(self, points: np.ndarray, rgb: np.ndarray, radius: np.ndarray, alpha: np.ndarray) -> None:
        """Translucent discs of a radius [K] in scene units, far ones first; under everything else."""
        xy, depth = self.project(points)
        size = self.focal_px * radius / depth  # [K] px
        inside = (xy > -size[:, None]).all(1) & (xy < [self.width, self.height] + size[:, None]).all(1)
        draw = ImageDraw.Draw(self.image, "RGBA")
        for k in np.flatnonzero(inside)[np.argsort(-depth[inside])]:
            (x, y), r = xy[k], max(size[k], 0.8)
            draw.ellipse((x - r, y - r, x + r, y + r), fill=(*rgb[k].tolist(), int(255 * alpha[k])))

    def points(self, points: np.ndarray, rgb: np.ndarray, radius_px: float) -> None:
        """Round points of a fixed size in final pixels."""
        xy, depth = self.project(points)
        self._add(xy, depth, rgb, radius_px)

    def lines(self, begin: np.ndarray, end: np.ndarray, rgb: np.ndarray, width_px: float) -> None:
        """Segments between points [K, 3], colours [K, 3]."""
        (a, depth_a), (b, depth_b) = self.project(begin), self.project(end)
        length = np.linalg.norm(b - a, axis=1)  # [K]
        fine = np.isfinite(length) & (length < 20 * self.width)
        step = max(1.0, 0.4 * width_px * self.oversample)
        count = np.maximum(2, np.where(fine, length, 0) / step).astype(int)[fine]
        which = np.repeat(np.flatnonzero(fine), count)  # [F]
        place = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
        part = place / np.repeat(count - 1, count)  # [F], 0..1
        xy = (1 - part[:, None]) * a[which] + part[:, None] * b[which]
        depth = 1 / ((1 - part) / depth_a[which] + part / depth_b[which])
        self._add(xy, depth, rgb[which], width_px / 2)

    def _add(self, xy: np.ndarray, depth: np.ndarray, rgb: np.ndarray, radius_px: float) -> None:
        radius = radius_px * self.oversample
        reach = np.arange(-int(radius), int(radius) + 1)
        dx, dy = (grid.ravel() for grid in np.meshgrid(reach, reach))
        disc = dx**2 + dy**2 <= radius**2 + 0.3
        visible = np.isfinite(depth)
        visible[visible] &= (np.abs(xy[visible] - [self.width / 2, self.height / 2]) < 2 * self.width).all(1)
        column, row = xy[visible].astype(int).T  # [K]
        column = (column[:, None] + dx[disc]).ravel()
        row = (row[:, None] + dy[disc]).ravel()
        shown = (column >= 0) & (row >= 0) & (column < self.width) & (row < self.height)
        source = np.repeat(np.flatnonzero(visible), disc.sum())[shown]
        self._fragments.append((row[shown] * self.width + column[shown], depth[source], rgb[source]))

    def finish(self) -> Image.Image:
        """The picture so far, in its final size."""
        pixels = np.array(self.image).reshape(-1, 3)
        if self._fragments:
            where, depth, rgb = (np.concatenate(parts) for parts in zip(*self._fragments, strict=True))
            order = np.argsort(-depth, kind="stable")  # the nearest is written last
            pixels[where[order]] = rgb[order]
        image = Image.fromarray(pixels.reshape(self.height, self.width, 3))
        return image.resize(self.size, Image.Resampling.BOX)


def write_text(
    image: Image.Image, text: str, *, place: tuple[float, float], size_px: int, rgb: tuple[int, ...]
) -> None:
    """Text with its left middle at a place given as shares of width and height."""
    x, y = place[0] * image.width, place[1] * image.height
    ImageDraw.Draw(image).text((x, y), text, fill=rgb, font=ImageFont.load_default(size_px), anchor="lm")
