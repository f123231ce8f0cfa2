"""A city of streets and blocks: sets of a hundred to ten thousand images with exact truth, as matches alone.

A walker goes along every street between two crossings, and turns once around at every crossing. So all streets hang
together in loops. Time and memory grow with the number of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from proba.errors import InputError
from proba.graph.topology import strongest_of_rows, unique_pairs
from proba.io.ground_truth import GroundTruth
from proba.matches import ImageInfo, Matches
from proba.synthetic.layouts import look_at

PITCH_M, STREET_M, HEIGHT_M = 46.0, 14.0, 10.0
"""Distance of two crossings, width of a street, height of a house."""
RANGE_M = 40.0
"""Nothing farther away is recognised. Less than PITCH_M, so that only the nine blocks around can hide something."""
ROUND, ALONG = 16, 12
"""Images of a turn at a crossing, and along a street."""
RING_M, MARGIN_M = 2.0, 5.0
"""Radius of the turn, and how far from the crossing a street begins."""
SIDES = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # normals of the facades, x and z
MAX_GRAZE_DEG, MAX_TURN_DEG, MAX_ZOOM = 80.0, 45.0, 2.0
"""Farthest angle from a facade's normal at which it shows texture; farthest angle and largest ratio of distances
between two views that a matcher overcomes."""
LOOK_ALIKE_PAIRS = 1  # of each image that has look-alikes


@dataclass(frozen=True, kw_only=True)
class CityOptions:
    """How hard a city is."""

    images: int = 1000
    """How many images: the first ones of a walk through a city that is just large enough."""
    fov_deg: float = 70.0
    """Field of view along the longest side, degrees."""
    size_px: tuple[int, int] = (1024, 768)
    """Width and height, pixels."""
    facade_points: int = 500
    """Scene points of a facade; an image sees about as many."""
    repeatability: float = 0.7
    """Share of the points in view that an image has a keypoint of."""
    noise_px: float = 0.7
    """Standard deviation of a keypoint's coordinates, pixels; the same in all pairs, as of a detector."""
    outliers: float = 0.1
    """Share of the matches of each pair that lead to another keypoint."""
    look_alike: float = 0.1
    """Share of the blocks that look like another one. Their images match each other, with geometry that fits."""
    look_alike_found: float = 0.25
    """Share of the points of a look-alike that a matcher takes for the same."""
    neighbours: int = 10
    """Each image is matched with as many others, which share most points with it."""
    min_matches: int = 30
    """Pairs of fewer matches are left out."""

    def __post_init__(self) -> None:
        if self.images < 2:
            raise InputError(f"A city needs at least 2 images, not {self.images}.")


@dataclass(frozen=True, kw_only=True, eq=False)
class City:
    """Cameras, scene points, and which image has a keypoint of which. Metres; OpenCV axes, y points down."""

    options: CityOptions
    seed: int
    cam_from_world: np.ndarray  # [N, 4, 4] float64
    xyz: np.ndarray  # [P, 3] float64
    appearance: np.ndarray  # [P] int64, what a point looks like: look-alikes have equal ones
    first: np.ndarray  # [N + 1] int64, keypoints of image n are first[n]:first[n + 1]
    point: np.ndarray  # [K] int64, scene point of each keypoint, ascending within an image
    xy: np.ndarray  # [K, 2] float32, pixels, with noise

    @property
    def n_images(self) -> int:
        return len(self.cam_from_world)

    @property
    def focal_px(self) -> float:
        return focal_px(self.options)

    def centre(self, image: int) -> np.ndarray:  # [3]
        return -self.cam_from_world[image, :3, :3].T @ self.cam_from_world[image, :3, 3]

    @property
    def image_names(self) -> list[str]:
        return [f"{k:05d}.png" for k in range(self.n_images)]

    def ground_truth(self) -> GroundTruth:
        width, height = self.options.size_px
        intrinsics = [self.focal_px, self.focal_px, width / 2, height / 2]
        return GroundTruth(
            names=self.image_names,
            cam_from_world=self.cam_from_world,
            intrinsics=np.tile(intrinsics, (self.n_images, 1)),
            width=np.full(self.n_images, width),
            height=np.full(self.n_images, height),
            metres_per_unit=1.0,
        )


def make_city(options: CityOptions | None = None, *, seed: int = 0) -> City:
    """A city of just enough crossings, and what a walk through it sees."""
    options = options or CityOptions()
    side = next(s for s in range(1, options.images + 1) if len(_walk(s)) >= options.images)
    rng = np.random.default_rng([seed, 4])
    steps = _walk(side)[: options.images]  # [N, 4]
    centres = np.stack([steps[:, 0], -1.6 + rng.normal(0, 0.1, len(steps)), steps[:, 1]], axis=1)  # [N, 3]
    centres[:, [0, 2]] += rng.normal(0, 0.2, (len(steps), 2))
    yaw = np.arctan2(steps[:, 3], steps[:, 2]) + rng.normal(0, np.radians(6), len(steps))  # [N]
    ahead = np.stack([np.cos(yaw), rng.normal(-0.08, 0.03, len(steps)), np.sin(yaw)], axis=1)  # [N, 3], slightly up
    cam_from_world = np.tile(np.eye(4), (len(steps), 1, 1))
    for pose, centre, gaze in zip(cam_from_world, centres, ahead, strict=True):
        pose[:3, :3] = look_at(centre, centre + gaze)
        pose[:3, 3] = -pose[:3, :3] @ centre
    xyz, normal, appearance = _facades(side, options, rng)
    first, point, xy = _keypoints(cam_from_world, xyz, normal, options, rng)
    return City(
        options=options,
        seed=seed,
        cam_from_world=cam_from_world,
        xyz=xyz,
        appearance=appearance,
        first=first,
        point=point,
        xy=xy,
    )


def focal_px(options: CityOptions) -> float:
    return max(options.size_px) / 2 / np.tan(np.radians(options.fov_deg) / 2)


def _walk(side: int) -> np.ndarray:  # [N, 4]
    """Places x, z and directions x, z of all images of `side` times `side` crossings, in the order they are taken.

    Every street is walked from its older crossing on, so that any first part of the walk hangs together.
    """
    parts = []
    along = np.linspace(MARGIN_M, PITCH_M - MARGIN_M, ALONG)[:, None]  # [ALONG, 1]
    angle = 2 * np.pi * np.arange(ROUND) / ROUND
    outward = np.stack([np.cos(angle), np.sin(angle)], axis=1)  # [ROUND, 2]
    for row in range(side):
        for column in range(side):
            crossing = PITCH_M * np.array([column, row])
            for back in np.array([[1.0, 0.0]] * (column > 0) + [[0.0, 1.0]] * (row > 0)):
                places = crossing - PITCH_M * back + along * back  # [ALONG, 2]
                parts.append(np.concatenate([places, np.tile(back, (ALONG, 1))], axis=1))
            parts.append(np.concatenate([crossing + RING_M * outward, outward], axis=1))
    return np.concatenate(parts)


def _facades(
    side: int, options: CityOptions, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # [P, 3], [P, 3], [P]
    """Points, their facade's normal, and what they look like. Look-alikes come in twos, far from each other."""
    blocks = np.stack(np.meshgrid(np.arange(-1, side), np.arange(-1, side)), axis=-1).reshape(-1, 2)  # [B, 2]
    per_block, count = len(SIDES) * options.facade_points, len(blocks)
    half = (PITCH_M - STREET_M) / 2
    style = np.arange(count)  # [B]
    twins = rng.permutation(count)[: 2 * round(options.look_alike * count / 2)].reshape(-1, 2)  # [., 2]
    style[twins[:, 1]] = style[twins[:, 0]]
    xyz, normal = np.zeros((count, per_block, 3)), np.zeros((count, per_block, 3))
    out = np.repeat(SIDES, options.facade_points, axis=0)  # [Q, 2]
    drawn = int(rng.integers(2**31))
    for block in range(count):
        own = np.random.default_rng([drawn, int(style[block])])  # by its style: twins are drawn alike
        sideways = own.uniform(-half, half, per_block)[:, None] * out[:, ::-1]  # [Q, 2]
        # Balconies and signs: a facade that is one plane would not tell the focal length.
        relief = 0.05 + own.uniform(0, 1, per_block)[:, None] ** 3 * 1.5
        centre = PITCH_M * (blocks[block] + 0.5)
        xyz[block][:, [0, 2]] = centre + (half + relief) * out + sideways
        xyz[block][:, 1] = -own.uniform(0, HEIGHT_M, per_block)
        normal[block][:, [0, 2]] = out
    appearance = (style[:, None] * per_block + np.arange(per_block)).reshape(-1)
    return xyz.reshape(-1, 3), normal.reshape(-1, 3), appearance


def _keypoints(
    cam_from_world: np.ndarray, xyz: np.ndarray, normal: np.ndarray, options: CityOptions, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`first`, `point` and `xy` of a City."""
    tree, size = cKDTree(xyz[:, [0, 2]]), np.array(options.size_px, float)
    points, places = [], []
    for pose in cam_from_world:
        centre = -pose[:3, :3].T @ pose[:3, 3]
        near = np.array(sorted(tree.query_ball_point(centre[[0, 2]], RANGE_M)), np.int64)  # [M]
        in_camera = xyz[near] @ pose[:3, :3].T + pose[:3, 3]  # [M, 3]
        depth = np.where(in_camera[:, 2] > 0.5, in_camera[:, 2], np.nan)
        xy = focal_px(options) * in_camera[:, :2] / depth[:, None] + size / 2  # [M, 2]
        to_point = xyz[near] - centre  # [M, 3]
        facing = -np.einsum("mi,mi->m", to_point, normal[near]) / np.linalg.norm(to_point, axis=1)
        seen = ((xy > 0) & (xy < size)).all(axis=1) & (facing > np.cos(np.radians(MAX_GRAZE_DEG)))
        seen &= rng.random(len(near)) < options.repeatability
        seen[seen] = ~_hidden(centre[[0, 2]], xyz[near[seen]][:, [0, 2]])
        points.append(near[seen])
        places.append(xy[seen] + rng.normal(0, options.noise_px, (int(seen.sum()), 2)))
    first = np.concatenate([[0], np.cumsum([len(p) for p in points])])
    return first, np.concatenate(points), np.concatenate(places).astype(np.float32)


def _hidden(centre: np.ndarray, targets: np.ndarray) -> np.ndarray:  # [M] bool
    """Whether a block stands between a place [2] in a street and targets [M, 2], in the plan of the city."""
    offsets = np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1]), axis=-1).reshape(-1, 2)
    middle = PITCH_M * (np.floor(centre / PITCH_M) + 0.5 + offsets)  # [9, 2], of the blocks around
    half = (PITCH_M - STREET_M) / 2
    step = targets - centre  # [M, 2]
    step = np.where(np.abs(step) > 1e-9, step, 1e-9)
    low, high = ((middle + sign * half - centre)[None] / step[:, None] for sign in (-1, 1))  # [M, 9, 2]
    enters, leaves = np.minimum(low, high).max(axis=2), np.maximum(low, high).min(axis=2)  # [M, 9]
    return ((enters < leaves) & (leaves > 0) & (enters < 1)).any(axis=1)


def city_matches(city: City) -> Matches:
    """Matches of the pairs that share most points, with wrong matches in every pair, and of pairs of look-alikes."""
    options = city.options
    width, height = options.size_px
    infos = [ImageInfo(name=name, width=width, height=height, camera_key="city") for name in city.image_names]
    matches = Matches(images=infos)
    look, same = city.appearance[city.point], _shared(city, city.point)  # [K], [N, N]
    true_pairs = _strongest(same, options.neighbours)  # [E, 2]
    for i, j, row, column in _keypoint_pairs(city, city.point, true_pairs):
        keep = _recognised(city, i, j, row)
        _add(matches, city, (i, j), row[keep], column[keep])
    for i, j, row, column in _keypoint_pairs(city, look, _strongest(_shared(city, look) - same, LOOK_ALIKE_PAIRS)):
        rng = np.random.default_rng([city.seed, 7, i, j])
        other = (city.point[row] != city.point[column]) & (rng.random(len(row)) < options.look_alike_found)
        _add(matches, city, (i, j), row[other], column[other])
    return matches


def _shared(city: City, label: np.ndarray) -> csr_array:  # [N, N]
    """How many keypoints of an equal `label` [K] two images have."""
    shape = city.n_images, int(label.max(initial=0)) + 1
    has = csr_array((np.ones(len(label), np.int32), label, city.first), shape=shape)  # [N, L]
    return has @ has.T


def _strongest(shared: csr_array, count: int) -> np.ndarray:  # [E, 2]
    """Pairs of each image and the `count` others that share most with it."""
    links = shared.tocoo()
    apart = (links.row != links.col) & (links.data > 0)
    row, column, data = links.row[apart], links.col[apart], links.data[apart]
    chosen = strongest_of_rows(row, column, data, count)
    return unique_pairs(np.stack([row[chosen], column[chosen]], axis=1).astype(np.int64))


def _keypoint_pairs(
    city: City, label: np.ndarray, pairs: np.ndarray
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Each of the pairs [E, 2] with the keypoints [M] of i and of j whose `label` [K] is equal."""
    for i, j in pairs.tolist():
        one, other = slice(*city.first[i : i + 2]), slice(*city.first[j : j + 2])
        _, row, column = np.intersect1d(label[one], label[other], return_indices=True)
        yield i, j, city.first[i] + row, city.first[j] + column


def _recognised(city: City, i: int, j: int, keypoint: np.ndarray) -> np.ndarray:  # [M] bool
    """Whether a matcher would know the points of keypoints [M] of i again in j."""
    to_i, to_j = (city.xyz[city.point[keypoint]] - city.centre(k) for k in (i, j))  # [M, 3]
    far_i, far_j = np.linalg.norm(to_i, axis=1), np.linalg.norm(to_j, axis=1)
    cosine = np.einsum("mi,mi->m", to_i, to_j) / (far_i * far_j)
    return (cosine > np.cos(np.radians(MAX_TURN_DEG))) & (np.abs(np.log(far_i / far_j)) < np.log(MAX_ZOOM))


def _add(matches: Matches, city: City, pair: tuple[int, int], row: np.ndarray, column: np.ndarray) -> None:
    """The matches of two keypoint lists [M], some of them led astray."""
    if len(row) < city.options.min_matches:
        return
    i, j = pair
    rng = np.random.default_rng([city.seed, 6, i, j])
    wrong = rng.permutation(len(row))[: round(city.options.outliers * len(row))]
    column = column.copy()
    column[wrong] = rng.integers(city.first[j], city.first[j + 1], len(wrong))
    matches.add(i, j, city.xy[row], city.xy[column])
