"""Analytic ray casting against spheres, boxes and planes: depth is exact, so ground truth is too."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from proba.jit import cached_njit

NEAR = 1e-6  # along the ray, in lengths of its direction: a surface is not hit where the ray starts


@dataclass(frozen=True, kw_only=True)
class Solids:
    """What a scene is made of, in metres. World axes: x right, y down, z forward."""

    spheres: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))  # [S, 4] centre, radius
    boxes: np.ndarray = field(default_factory=lambda: np.zeros((0, 7)))  # [B, 7] centre, half sizes, yaw (rad)
    planes: np.ndarray = field(default_factory=lambda: np.zeros((0, 4)))  # [P, 4] normal n, offset d: n.x = d

    def near(self, centre: np.ndarray, distance: float) -> Solids:
        """The solids that reach into a ball; planes always do."""
        if not np.isfinite(distance):
            return self
        spheres = np.linalg.norm(self.spheres[:, :3] - centre, axis=1) <= distance + self.spheres[:, 3]
        boxes = np.linalg.norm(self.boxes[:, :3] - centre, axis=1) <= distance + np.linalg.norm(
            self.boxes[:, 3:6], axis=1
        )
        return Solids(spheres=self.spheres[spheres], boxes=self.boxes[boxes], planes=self.planes)


def cast(
    solids: Solids, origin: np.ndarray, directions: np.ndarray, max_range: float = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """First hit of rays from one origin [3] along directions [R, 3].

    Returns the distance in lengths of the direction [R] (inf: nothing hit, or farther than `max_range` metres) and
    the solid that was hit [R] (spheres, boxes, planes counted through; -1: none).
    """
    directions = np.ascontiguousarray(directions, np.float64)
    origin = np.ascontiguousarray(origin, np.float64)
    turned = np.column_stack([solids.boxes[:, :6], np.cos(solids.boxes[:, 6]), np.sin(solids.boxes[:, 6])])  # [B, 8]
    return _cast(origin, directions, solids.spheres, turned, solids.planes, max_range)


@cached_njit(inline="always")
def _slab(origin, direction, half, enter, leave):
    """Clip the interval [enter, leave] of a ray to one pair of parallel faces."""
    if abs(direction) < 1e-12:
        return (enter, leave) if abs(origin) <= half else (np.inf, -np.inf)
    a, b = (-half - origin) / direction, (half - origin) / direction
    return max(enter, min(a, b)), min(leave, max(a, b))


@cached_njit()
def _cast(origin, directions, spheres, boxes, planes, max_range):
    n_rays = directions.shape[0]
    distance = np.full(n_rays, np.inf)
    hit = np.full(n_rays, -1, np.int32)
    ox, oy, oz = origin
    for r in range(n_rays):
        dx, dy, dz = directions[r, 0], directions[r, 1], directions[r, 2]
        aa = dx * dx + dy * dy + dz * dz
        best, which = np.inf, -1
        for k in range(spheres.shape[0]):
            px, py, pz = ox - spheres[k, 0], oy - spheres[k, 1], oz - spheres[k, 2]
            b = dx * px + dy * py + dz * pz
            disc = b * b - aa * (px * px + py * py + pz * pz - spheres[k, 3] ** 2)
            if disc > 0.0:
                t = (-b - np.sqrt(disc)) / aa
                if NEAR < t < best:
                    best, which = t, k
        for k in range(boxes.shape[0]):
            c, s = boxes[k, 6], boxes[k, 7]
            px, py, pz = ox - boxes[k, 0], oy - boxes[k, 1], oz - boxes[k, 2]
            enter, leave = _slab(py, dy, boxes[k, 4], -np.inf, np.inf)
            enter, leave = _slab(c * px - s * pz, c * dx - s * dz, boxes[k, 3], enter, leave)
            enter, leave = _slab(s * px + c * pz, s * dx + c * dz, boxes[k, 5], enter, leave)
            if enter <= leave and NEAR < enter < best:
                best, which = enter, spheres.shape[0] + k
        for k in range(planes.shape[0]):
            den = planes[k, 0] * dx + planes[k, 1] * dy + planes[k, 2] * dz
            if abs(den) > 1e-12:
                t = (planes[k, 3] - planes[k, 0] * ox - planes[k, 1] * oy - planes[k, 2] * oz) / den
                if NEAR < t < best:
                    best, which = t, spheres.shape[0] + boxes.shape[0] + k
        if best * np.sqrt(aa) <= max_range:
            distance[r], hit[r] = best, which
    return distance, hit
