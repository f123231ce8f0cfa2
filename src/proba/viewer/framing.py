"""Where to look from, and how large to draw a camera."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proba.geometry.sim3 import Sim3, umeyama_robust

VIEW_FOV_DEG = 45.0
MOST_MEASURED = 20_000
"""Points that are looked at to measure a scene."""


@dataclass(frozen=True, eq=False)
class Framing:
    """A first view of a scene, in its own units."""

    focus: np.ndarray  # [3], the middle of what there is to see
    up: np.ndarray  # [3], unit
    eye: np.ndarray  # [3]
    radius: float
    """Cameras, and all but the outermost points, are this close to the focus."""
    frustum: float
    """Depth of the drawn cameras."""


def frame_scene(world_from_cam: np.ndarray, points: np.ndarray) -> Framing:
    """A view from behind the cameras, or from above and aside where they look in all directions.

    world_from_cam [N, 4, 4], points [P, 3].
    """
    centres, forward = world_from_cam[:, :3, 3], world_from_cam[:, :3, 2]  # [N, 3]
    points = points[:: max(1, len(points) // MOST_MEASURED)]
    seen = points if len(points) else centres + forward
    up = _unit(-world_from_cam[:, :3, 1].mean(0), np.array([0.0, -1.0, 0.0]))
    far = np.linalg.norm(seen - np.median(seen, axis=0), axis=1)
    core = seen[far <= np.percentile(far, 85)]
    low, high = _bounds(centres, core)
    focus = (low + high) / 2
    outermost = (np.linalg.norm(centres - focus, axis=1), np.percentile(np.linalg.norm(core - focus, axis=1), 90))
    radius = float(max(np.percentile(outermost[0], 95), outermost[1])) or 1.0

    common = forward.mean(0)
    ahead = common if np.linalg.norm(common) > 0.35 else forward[0]
    ahead = _unit(ahead - up * (ahead @ up), _any_normal(up))
    right = np.cross(ahead, up)
    raised = 0.5 if np.linalg.norm(common) > 0.35 else 0.75
    direction = _unit(-ahead + raised * up + 0.45 * right, up)
    eye = focus + 0.85 * radius / np.sin(np.radians(VIEW_FOV_DEG / 2)) * direction
    return Framing(focus, up, eye, radius, _frustum_depth(centres, radius))


def _bounds(*parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corner [3] of a box around all but the outermost of each part [K, 3]."""
    low = np.min([np.percentile(part, 5, axis=0) for part in parts], axis=0)
    return low, np.max([np.percentile(part, 95, axis=0) for part in parts], axis=0)


def _frustum_depth(centres: np.ndarray, radius: float) -> float:
    """Half the way to the nearest other camera, within bounds."""
    if len(centres) < 2:
        return 0.08 * radius
    some = centres[:: max(1, len(centres) // 300)]
    distance = np.linalg.norm(some[:, None] - centres[None], axis=-1)  # [M, N]
    distance[distance < 1e-9 * radius] = np.inf
    nearest = distance.min(1)
    nearest = nearest[np.isfinite(nearest)]
    wanted = 0.45 * float(np.median(nearest)) if len(nearest) else 0.08 * radius
    return float(np.clip(wanted, 0.03 * radius, 0.09 * radius))


def _unit(vector: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(vector)
    return vector / length if length > 1e-6 else otherwise


def _any_normal(vector: np.ndarray) -> np.ndarray:
    axis = np.eye(3)[np.argmin(np.abs(vector))]
    return _unit(np.cross(vector, axis), axis)


def align_cameras(source: np.ndarray, target: np.ndarray) -> Sim3:
    """target_from_source of cameras world_from_cam [N, 4, 4], also where their centres lie on a line.

    Each camera counts as its centre and a point along each of its axes, as far away as the centres are spread.
    """
    a, b = source[:, :3, 3], target[:, :3, 3]  # [N, 3]
    spread_a, spread_b = (float(np.median(np.linalg.norm(x - np.median(x, axis=0), axis=1))) for x in (a, b))
    if len(a) < 3 or spread_a <= 0 or spread_b <= 0:
        spread_a, spread_b = (float(np.linalg.norm(x[-1] - x[0])) or 1.0 for x in (a, b))
    first, _ = umeyama_robust(a, b, max_samples=200)
    ratio = first.scale if len(a) > 3 and first.scale > 0 else spread_b / spread_a
    axes_a = a[:, None] + spread_a * source[:, :3, :3].transpose(0, 2, 1)  # [N, 3, 3]
    axes_b = b[:, None] + spread_a * ratio * target[:, :3, :3].transpose(0, 2, 1)
    similarity, _ = umeyama_robust(
        np.concatenate([a, axes_a.reshape(-1, 3)]), np.concatenate([b, axes_b.reshape(-1, 3)]), max_samples=200
    )
    return similarity
