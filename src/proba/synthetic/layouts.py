"""Five kinds of capture that reconstructions are asked for. A seed varies geometry, path and lens."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import numpy as np

from proba.errors import InputError
from proba.geometry.camera import is_fisheye
from proba.synthetic.raycast import Solids
from proba.synthetic.scene import Scene

Layout = tuple[Solids, np.ndarray, np.ndarray, float]
"""Solids, camera centres [N, 3], points looked at [N, 3], farthest distance seen (metres)."""

FOV_RANGE_DEG = (30.0, 90.0)
MAX_LAYOUT_FOV_DEG = 100.0
"""Wider lenses are carried along the same paths: nearer still, neighbours would see hardly the same things."""
LENSES: dict[str, tuple[float, ...]] = {
    "PINHOLE": (),
    "OPENCV": (-0.12, 0.03, 0.001, -0.0015),
    "FULL_OPENCV": (-0.15, 0.06, 0.001, -0.0015, -0.02, 0.0, 0.0, 0.0),
    "FISHEYE": (),
    "OPENCV_FISHEYE": (0.03, -0.012, 0.004, -0.0006),
    "THIN_PRISM_FISHEYE": (0.03, -0.012, 0.0008, -0.0006, 0.004, -0.0006, 0.001, -0.0008),
}
"""Lenses of synthetic scenes: their parameters after fx, fy, cx and cy."""
WORLD_UP = np.array([0.0, -1.0, 0.0])


def make_scene(
    name: str,
    *,
    n_images: int | None = None,
    seed: int = 0,
    fov_deg: float | None = None,
    width: int = 640,
    height: int = 480,
    model: str = "PINHOLE",
) -> Scene:
    """Build `object`, `ring`, `room`, `facade` or `corridor`.

    `fov_deg` is along the longest side; None draws it from 30 to 90 degrees. Camera distances follow the field of
    view, up to MAX_LAYOUT_FOV_DEG, so that views overlap. `model` is one of LENSES, seen through its distortion.
    """
    if model not in LENSES:
        raise InputError(f"Synthetic scenes have no lens {model!r}. Choose one of {', '.join(LENSES)}.")
    if name not in LAYOUTS:
        raise InputError(f"There is no synthetic scene {name!r}. Choose one of {', '.join(LAYOUTS)}.")
    build, default_images = LAYOUTS[name]
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    drawn_deg = rng.uniform(*FOV_RANGE_DEG)  # always drawn: a given field of view leaves the rest of the seed alone
    fov_deg = drawn_deg if fov_deg is None else fov_deg
    tan = np.tan(np.radians(min(fov_deg, MAX_LAYOUT_FOV_DEG)) / 2)
    solids, centres, targets, max_range = build(rng, n_images or default_images, tan)
    rotation = np.stack([look_at(c, t) for c, t in zip(centres, targets, strict=True)])  # [N, 3, 3]
    # A hand does not hold still: about 1.5 degrees about each axis, twice that in roll.
    jitter = rng.normal(0, np.radians([1.5, 1.5, 3.0]) * min(1.0, tan / 0.5), (len(centres), 3))
    rotation = np.stack([_rotation(w) @ r for w, r in zip(jitter, rotation, strict=True)])
    fisheye = is_fisheye(model)
    half = np.radians(fov_deg) / 2 if fisheye else np.tan(np.radians(fov_deg) / 2)
    focal_px = max(width, height) / 2 / half
    return Scene(
        name=name,
        solids=solids,
        rotation=rotation,
        translation=-np.einsum("nij,nj->ni", rotation, centres),
        intrinsics=np.tile([focal_px, focal_px, width / 2, height / 2], (len(centres), 1)),
        width=width,
        height=height,
        model=model,
        distortion=LENSES[model],
        max_range=max_range,
    )


def look_at(centre: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Rotation world to camera [3, 3] of an upright camera at `centre` that looks at `target`."""
    forward = (target - centre) / np.linalg.norm(target - centre)
    right = np.cross(forward, WORLD_UP)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(forward, right), forward])


def _object(rng: np.random.Generator, n: int, tan: float) -> Layout:
    """A heap of things on a table, seen from a cap of views, row by row as a robot arm would go (DTU)."""
    spheres = np.column_stack([rng.normal(0, [0.32, 0.0, 0.32], (14, 3)), rng.uniform(0.08, 0.26, 14)])
    spheres[:, 1] = -rng.uniform(0.0, 0.55, 14) - 0.3 * spheres[:, 3]
    boxes = _standing_boxes(rng, rng.normal(0, 0.3, (8, 2)), (0.06, 0.2), (0.08, 0.35), floor=0.0)
    table = [[0.0, 0.05, 0.0, 1.3, 0.05, 1.3, 0.0]]
    rows = max(2, round(np.sqrt(n / 2)))
    row, column = np.divmod(np.arange(n), int(np.ceil(n / rows)))
    u = column / max(column.max(), 1)
    u = np.where(row % 2 == 0, u, 1 - u)  # back and forth, so that consecutive views are neighbours
    azimuth = np.radians(-55 + 110 * u + rng.normal(0, 2, n))
    elevation = np.radians(18 + 40 * row / max(row.max(), 1) + rng.normal(0, 2, n))
    distance = (0.55 + 0.75 / tan) * rng.normal(1, 0.05, n).clip(0.85, 1.15)
    direction = np.stack(
        [np.sin(azimuth) * np.cos(elevation), -np.sin(elevation), -np.cos(azimuth) * np.cos(elevation)],
        axis=1,
    )
    targets = np.array([0, -0.2, 0]) + rng.normal(0, 0.05, (n, 3))
    centres = targets + distance[:, None] * direction
    solids = _clear_of(Solids(spheres=spheres, boxes=np.vstack([boxes, table])), centres, 0.2)
    return solids, centres, targets, float("inf")


def _ring(rng: np.random.Generator, n: int, tan: float) -> Layout:
    """Once around a centre piece, with things and walls behind it (Mip-NeRF 360)."""
    radius = 1.2 + 1.0 / tan
    piece = np.column_stack([rng.normal(0, [0.4, 0.0, 0.4], (16, 3)), rng.uniform(0.12, 0.35, 16)])
    piece[:, 1] = rng.uniform(-0.7, 0.7, 16)
    around = rng.uniform(0, 2 * np.pi, 28)
    reach = radius + rng.uniform(1.8, 4.0, 28)
    spheres = np.column_stack(
        [reach * np.cos(around), rng.uniform(-1, 0.6, 28), reach * np.sin(around), rng.uniform(0.3, 0.9, 28)]
    )
    corners = rng.uniform(0, 2 * np.pi, 12)
    where = (radius + rng.uniform(2.0, 4.0, (12, 1))) * np.stack([np.cos(corners), np.sin(corners)], axis=1)
    boxes = np.vstack(
        [
            _standing_boxes(rng, where, (0.3, 0.7), (0.4, 1.1), floor=0.9),
            _standing_boxes(rng, rng.normal(0, 0.4, (5, 2)), (0.12, 0.3), (0.2, 0.5), floor=0.9),
        ]
    )
    angle = 2 * np.pi * np.arange(6) / 6 + rng.uniform(0, 1)
    walls = np.stack([np.cos(angle), 0 * angle, np.sin(angle), 0 * angle + radius + 5.0], axis=1)
    planes = np.vstack([walls, [0, 1, 0, 0.9]])
    turn = 2 * np.pi * np.arange(n) / n + rng.normal(0, np.radians(1.0), n)
    distance = radius * rng.normal(1, 0.04, n).clip(0.88, 1.12)
    centres = np.stack(
        [
            distance * np.cos(turn),
            -0.6 + 0.25 * np.sin(3 * turn) + rng.normal(0, 0.08, n),
            distance * np.sin(turn),
        ],
        axis=1,
    )
    solids = _clear_of(Solids(spheres=np.vstack([piece, spheres]), boxes=boxes, planes=planes), centres, 0.4)
    return solids, centres, rng.normal(0, 0.08, (n, 3)), float("inf")


def _room(rng: np.random.Generator, n: int, tan: float) -> Layout:
    """A walk along one side of a furnished room, the gaze sweeping over the other (ETH3D indoors)."""
    planes = np.array(
        [[0, 1, 0, 1.3], [0, 1, 0, -1.7], [1, 0, 0, 5.0], [1, 0, 0, -5.0], [0, 0, 1, 5.0], [0, 0, 1, -5.0]],
        float,
    )
    where = np.stack([rng.uniform(-4.5, 4.5, 26), rng.uniform(-1.0, 4.6, 26)], axis=1)
    boxes = _standing_boxes(rng, where, (0.15, 0.6), (0.2, 1.1), floor=1.3)
    spheres = np.column_stack(
        [
            rng.uniform(-4.5, 4.5, 16),
            rng.uniform(-1.0, 1.0, 16),
            rng.uniform(-1, 4.6, 16),
            rng.uniform(0.15, 0.45, 16),
        ]
    )
    s = np.linspace(-1, 1, n)
    centres = np.stack(
        [3.6 * s, 0.15 * np.sin(5 * s), -3.6 + 0.7 * np.sin(2.5 * s + rng.uniform(0, 6))], axis=1
    ) + rng.normal(0, [0.05, 0.06, 0.08], (n, 3))
    # The gaze turns half a field of view away from where the walker stands, so views cross and loop back.
    sweep = 1.2 * np.sin(2 * np.pi * s * min(1.5, n / 30) + rng.uniform(0, 6))
    targets = np.stack([1.6 * s + sweep, 0.1 + 0 * s, 3.0 + 0 * s], axis=1) + rng.normal(0, [0.1, 0.08, 0], (n, 3))
    return (
        _clear_of(Solids(spheres=spheres, boxes=boxes, planes=planes), centres, 0.5),
        centres,
        targets,
        float("inf"),
    )


def _facade(rng: np.random.Generator, n: int, tan: float) -> Layout:
    """An exactly flat front seen from the street: no depth relief to hold the focal length."""
    wall = np.array([[0.0, 0.0, 0.5, 14.0, 9.0, 0.5, 0.0]])  # its front is the plane z = 0
    s = np.linspace(-1, 1, n)
    across = 3.5 * s + rng.normal(0, 0.25, n)
    distance = 3.2 / tan * rng.normal(1, 0.12, n).clip(0.75, 1.3)
    centres = np.stack([across, 0.8 + rng.normal(0, 0.4, n), -distance], axis=1)
    # Standing to one side and looking back gives the obliqueness that makes flat scenes solvable at all.
    centres[:, 0] += distance * rng.choice([-1, 1], n) * rng.uniform(0.1, 0.6, n)
    targets = np.stack([0.6 * across, rng.normal(-0.5, 0.4, n), 0 * s], axis=1)
    return Solids(boxes=wall), centres, targets, float("inf")


def _corridor(rng: np.random.Generator, n: int, tan: float) -> Layout:
    """A long corridor with boxes and balls on both sides, walked along looking ahead and a little sideways."""
    step = 0.3
    length = step * n + 8.0
    planes = np.array(
        [
            [1, 0, 0, 1.6],
            [1, 0, 0, -1.6],
            [0, 1, 0, 1.3],
            [0, 1, 0, -1.5],
            [0, 0, 1, length],
            [0, 0, 1, -4.0],
        ],
        float,
    )
    n_boxes, n_balls = int(1.6 * length), int(0.7 * length)
    side = rng.choice([-1, 1], n_boxes)
    where = np.stack([side * rng.uniform(1.0, 1.6, n_boxes), rng.uniform(0, length, n_boxes)], axis=1)
    boxes = _standing_boxes(rng, where, (0.12, 0.4), (0.15, 0.9), floor=1.3)
    spheres = np.column_stack(
        [
            rng.choice([-1, 1], n_balls) * rng.uniform(1.0, 1.6, n_balls),
            rng.uniform(-1.4, 1.0, n_balls),
            rng.uniform(0, length, n_balls),
            rng.uniform(0.1, 0.35, n_balls),
        ]
    )
    k = np.arange(n)
    centres = np.stack([0.25 * np.sin(k / 6 + rng.uniform(0, 6)), 0 * k, step * k], axis=1)
    centres += rng.normal(0, [0.05, 0.05, 0.04], (n, 3))
    yaw = np.radians(18) * min(1.0, tan / 0.5) * np.sin(k / 5 + rng.uniform(0, 6))
    targets = centres + np.stack([np.sin(yaw), 0.02 + 0 * yaw, np.cos(yaw)], axis=1)
    return (
        _clear_of(Solids(spheres=spheres, boxes=boxes, planes=planes), centres, 0.3),
        centres,
        targets,
        14.0,
    )


def _standing_boxes(
    rng: np.random.Generator,
    where: np.ndarray,  # [B, 2] x, z
    half_side: tuple[float, float],
    half_height: tuple[float, float],
    floor: float,
) -> np.ndarray:  # [B, 7]
    """Turned boxes that stand on the floor (y points down)."""
    n = len(where)
    side, high = rng.uniform(*half_side, (n, 2)), rng.uniform(*half_height, n)
    return np.column_stack(
        [where[:, 0], floor - high, where[:, 1], side[:, 0], high, side[:, 1], rng.uniform(0, np.pi, n)]
    )


def _clear_of(solids: Solids, centres: np.ndarray, margin: float) -> Solids:
    """Take away what a camera would touch."""

    def distance(places: np.ndarray) -> np.ndarray:
        return np.linalg.norm(places[:, None, :] - centres[None], axis=2).min(axis=1) if len(places) else np.zeros(0)

    spheres = distance(solids.spheres[:, :3]) > solids.spheres[:, 3] + margin
    away = np.abs(solids.boxes[:, None, :3] - centres[None]) - solids.boxes[:, None, 3:6]  # [B, N, 3], ignores yaw
    turned = np.hypot(solids.boxes[:, 3], solids.boxes[:, 5]) * (solids.boxes[:, 6] != 0)
    flat = np.hypot(*(solids.boxes[:, None, [0, 2]] - centres[None][:, :, [0, 2]]).transpose(2, 0, 1))  # [B, N]
    clear = np.where(turned[:, None] > 0, np.maximum(flat - turned[:, None], away[:, :, 1]), away.max(axis=2))
    return Solids(spheres=solids.spheres[spheres], boxes=solids.boxes[clear.min(axis=1) > margin], planes=solids.planes)


def _rotation(vector: np.ndarray) -> np.ndarray:
    """Rotation matrix [3, 3] of a rotation vector [3] (Rodrigues)."""
    angle = float(np.linalg.norm(vector))
    if angle < 1e-12:
        return np.eye(3)
    x, y, z = vector / angle
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


LAYOUTS: dict[str, tuple[Callable[[np.random.Generator, int, float], Layout], int]] = {
    "object": (_object, 40),
    "ring": (_ring, 36),
    "room": (_room, 40),
    "facade": (_facade, 24),
    "corridor": (_corridor, 50),
}
"""Builder and default number of images."""
