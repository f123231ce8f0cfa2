"""Whether the rows of photos were read one after the other while the camera moved.

Of a rolling shutter each row has a pose of its own. To first order an observation moves by s J m: s is its row from the
middle of the photo, in heights; J are the derivatives of its pixel by a turn and a shift of the camera; m is how far
the camera turns and moves while the photo is read. Poses, points, lenses and zooms take up a part of that, so all are
free beside m in one linear system. What lens models lack looks much like a motion along the rows, but as much like one
along the columns, which no shutter does. So it counts what rows explain beyond columns, against what columns explain
beyond rows. In photos whose names are in the order of time one read-out time for all, m = readout times the step from
photo to photo, is a far sharper question.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import bsr_array, coo_array, csr_array, hstack
from scipy.spatial.transform import Rotation
from scipy.stats import f as f_distribution

from proba.geometry.camera import FX, FY, UNIT_SIDE_PX, derivatives, narrowed, widened
from proba.reconstruction import Reconstruction
from proba.refine.options import ShutterOptions

POSE, _LENS = 6, 9
"""Unknowns of a motion, and of a lens: fx, fy, cx, cy, k1, k2, p1, p2, and how far its axes are from square."""
_CAUCHY = 2.0
"""Scale of the robust loss in standard deviations of the noise."""
_RIDGE = 1e-8
"""Share by which diagonals are raised, as nothing fixes the world."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RollingShutter:
    """What the rows of photos say."""

    images: np.ndarray  # [S], those that were asked
    motion: np.ndarray  # [S, 6], turn (rad) and shift (scene units) along the camera's axes while a photo is read
    ratio: float
    """How many times as much rows explain beyond columns as columns beyond rows; 1 without a shutter."""
    chance: float
    """How often the ratio is as large without one."""
    readout: float
    """Time to read a photo as a share of the time between photos, if names are in the order of time."""
    readout_std: float
    bend_px: float
    """Root mean square of what it moves observations by, pixels of an image of 1024 px; 0 where there is none."""
    ordered: bool
    """Whether one read-out time for all photos, in the order of their names, explains the rows."""
    found: bool
    """Whether there is a rolling shutter."""
    modelled: bool = False
    """Whether the cameras of the result are those of the middle rows, and not bent by it."""

    def numbers(self) -> dict[str, float | bool]:
        """For report.json."""
        return {
            "found": self.found,
            "modelled": self.modelled,
            "ordered": self.ordered,
            "readout": self.readout,
            "readout_std": self.readout_std,
            "ratio": self.ratio,
            "chance": self.chance,
            "bend_px": self.bend_px,
        }


def rolling_shutter(reconstruction: Reconstruction, options: ShutterOptions) -> RollingShutter | None:
    """What the rows of the photos say; None where too little is seen."""
    asked = _asked(reconstruction, options)
    if len(asked.images) < options.min_images or len(asked.observations) < options.min_observations:
        return None
    system = _System(_linearised(reconstruction, asked), asked)
    prior = _prior(system, options)
    rows, columns = system.reduced(system.rows, prior), system.reduced(system.columns, prior)
    both = system.reduced(np.concatenate([system.rows, system.columns]), np.concatenate([prior, prior]))
    more_rows = (both.gain - columns.gain) / (both.effective - columns.effective)
    more_columns = (both.gain - rows.gain) / (both.effective - rows.effective)
    ratio = more_rows / max(more_columns, 1e-9)
    chance = f_distribution.sf(ratio, both.effective - columns.effective, both.effective - rows.effective)
    step = photo_steps(reconstruction.cam_from_world[asked.images]).ravel()  # [6 S]
    spread = max(1.0, columns.gain / columns.effective, more_columns)  # residuals are not independent
    readout, readout_std = rows.along(step, spread)
    across = columns.along(step, spread)[0]
    sharp = abs(readout) > options.min_sigmas * readout_std and abs(readout) < options.max_readout
    ordered = sharp and abs(across) * options.clear < abs(readout)
    found = ordered or (chance < options.max_chance and ratio > options.min_ratio)
    # Steps towards the least of a robust loss are too short by what its curvature lacks of its weights.
    motion = system.stretch * (readout * step if ordered else rows.best)
    bend2 = system.moved(motion) if found else 0.0
    if found and not ordered:
        bend2 -= more_columns * rows.noise_of(system.grams)
    return RollingShutter(
        images=asked.images,
        motion=motion.reshape(-1, POSE),
        ratio=float(ratio),
        chance=float(chance),
        readout=float(system.stretch * readout),
        readout_std=float(system.stretch * readout_std),
        bend_px=float(np.sqrt(max(bend2, 0.0))),
        ordered=bool(ordered),
        found=bool(found),
    )


def photo_steps(cam_from_world: np.ndarray) -> np.ndarray:  # [S, 6]
    """Turn and shift along the camera's axes from photo to photo, of poses [S, 4, 4] in the order of time."""
    last = len(cam_from_world) - 1
    before, after = np.maximum(np.arange(last + 1) - 1, 0), np.minimum(np.arange(last + 1) + 1, last)
    step = cam_from_world[after] @ np.linalg.inv(cam_from_world[before])  # [S, 4, 4]
    motion = np.concatenate([Rotation.from_matrix(step[:, :3, :3]).as_rotvec(), step[:, :3, 3]], axis=1)
    return motion / (after - before)[:, None]


@dataclass(frozen=True, eq=False)
class _Asked:
    """Observations that are asked: K of S images and T points."""

    images: np.ndarray  # [S], in the order of their names
    observations: np.ndarray  # [K], of the reconstruction
    image: np.ndarray  # [K], position in `images`
    point: np.ndarray  # [K], 0 to T - 1
    n_points: int


def _asked(reconstruction: Reconstruction, options: ShutterOptions) -> _Asked:
    """The images in the middle of the order of names, and points that most of them see."""
    points, order = reconstruction.points, np.argsort(reconstruction.image_names, kind="stable")
    begin = max(0, (len(order) - options.images) // 2)
    images = order[begin : begin + options.images]
    place = np.full(len(reconstruction), -1)
    place[images] = np.arange(len(images))
    here = place[points.obs_image] >= 0  # [all]
    length = np.bincount(points.obs_point[here], minlength=len(points.xyz))
    # A point of two views says little: its depth takes up most of what rows do.
    ranked = np.lexsort((np.random.default_rng(0).permutation(len(length)), -np.minimum(length, 3)))
    ranked = ranked[length[ranked] >= 2]
    chosen = ranked[np.cumsum(length[ranked]) <= options.observations]
    number = np.full(len(points.xyz), -1)
    number[chosen] = np.arange(len(chosen))
    observations = np.flatnonzero(here & (number[points.obs_point] >= 0))
    return _Asked(
        images=images,
        observations=observations,
        image=place[points.obs_image[observations]],
        point=number[points.obs_point[observations]],
        n_points=len(chosen),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Linear:
    """Residuals and their derivatives, pixels of an image of 1024 px."""

    residual: np.ndarray  # [K, 2]
    place: np.ndarray  # [K, 2], from the middle of the photo, in widths and heights
    by_pose: np.ndarray  # [K, 2, 6], turn and shift along the camera's axes
    by_point: np.ndarray  # [K, 2, 3]
    by_lens: np.ndarray  # [K, 2, 9]
    camera: np.ndarray  # [K]
    depth: float
    """Median distance of a point from a camera."""


def _linearised(reconstruction: Reconstruction, asked: _Asked) -> _Linear:
    points, n = reconstruction.points, len(asked.observations)
    image = points.obs_image[asked.observations]
    pose = reconstruction.cam_from_world[image]  # [K, 4, 4]
    inside = np.einsum("kij,kj->ki", pose[:, :3, :3], points.xyz[points.obs_point[asked.observations]]) + pose[:, :3, 3]
    residual, place = np.zeros((n, 2)), np.zeros((n, 2))
    by_inside, by_lens = np.zeros((n, 2, 3)), np.zeros((n, 2, _LENS))
    camera_of = reconstruction.camera_of_image[image]  # [K]
    for c in np.unique(camera_of).tolist():
        camera, mine = reconstruction.cameras[c], camera_of == c
        size = np.array([camera.width, camera.height])
        model = "THIN_PRISM_FISHEYE" if camera.is_fisheye else "FULL_OPENCV"
        with np.errstate(invalid="ignore"):
            seen = camera.project(inside[mine])
            parts = derivatives(model, narrowed(model, widened(camera.model, camera.params)), inside[mine])
        unit = size.max() / UNIT_SIDE_PX
        # The row that is seen would correlate with its own noise.
        place[mine] = seen / size - 0.5
        residual[mine] = (points.obs_xy[asked.observations[mine]] - seen) / unit
        by_inside[mine], by_lens[mine, :, : _LENS - 1] = parts[0] / unit, parts[1][:, :, : _LENS - 1] / unit
        by_lens[mine, 0, _LENS - 1] = parts[1][:, 1, FY] / unit
    lost = ~(np.isfinite(residual).all(axis=1) & np.isfinite(by_inside).all(axis=(1, 2)))
    for values in (residual, place, by_inside, by_lens):
        values[lost] = 0.0
    x, y, z = inside.T
    turned = np.zeros((n, 3, 3))  # -[inside]x, since inside moves by w x inside
    turned[:, 0, 1], turned[:, 0, 2], turned[:, 1, 2] = z, -y, x
    turned -= turned.transpose(0, 2, 1)
    return _Linear(
        residual=residual,
        place=place,
        by_pose=np.concatenate([by_inside @ turned, by_inside], axis=2),
        by_point=by_inside @ pose[:, :3, :3],
        by_lens=by_lens,
        camera=np.unique(camera_of, return_inverse=True)[1],
        depth=float(np.median(np.linalg.norm(inside, axis=1))),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Reduced:
    """A linear system of motions, after all else is eliminated."""

    system: np.ndarray  # [D, D]
    slope: np.ndarray  # [D]
    noise: float
    raised: np.ndarray  # [D, D], the system and its prior
    best: np.ndarray  # [D]
    effective: float
    """Parameters that the photos decide, not the prior."""

    @property
    def gain(self) -> float:
        """What the squares fall by, in variances of the noise."""
        return float(self.slope @ self.best) / self.noise**2

    def along(self, step: np.ndarray, spread: float) -> tuple[float, float]:
        """The multiple of a motion [D] that fits best, and its standard deviation."""
        information = max(float(step @ self.system @ step), 1e-30)
        return float(step @ self.slope) / information, self.noise * float(np.sqrt(spread / information))

    def noise_of(self, grams: np.ndarray) -> float:
        """Mean square of displacements with the matrix `grams` [D, D] that noise alone would give."""
        back = np.linalg.solve(self.raised, grams)
        return self.noise**2 * float(np.trace(back @ np.linalg.solve(self.raised, self.system)))


class _System:
    """The normal equations of poses, zooms, lenses and motions along rows and columns, without points."""

    def __init__(self, linear: _Linear, asked: _Asked):
        size = np.linalg.norm(linear.residual, axis=1)  # [K]
        self.noise = max(float(np.median(size)) / np.sqrt(2 * np.log(2)), 1e-6)
        weight = 1 / (1 + (size / (_CAUCHY * self.noise)) ** 2)  # [K]
        self.stretch = float(weight.mean() / (weight**2).mean())
        self.depth, images, pose = linear.depth, len(asked.images), linear.by_pose
        zoom = np.stack([linear.by_lens[:, 0, FX], linear.by_lens[:, 1, FY]], axis=1)[:, :, None]  # [K, 2, 1]
        lens = linear.by_lens / np.maximum(np.abs(linear.by_lens).mean(axis=(0, 1)), 1e-12)
        self._by_rows = pose * linear.place[:, 1, None, None]
        self._image = asked.image
        parts = [
            (pose, asked.image, images),
            (zoom / max(np.abs(zoom).mean(), 1e-12), asked.image, images),
            (lens, linear.camera, int(linear.camera.max()) + 1),
            (self._by_rows, asked.image, images),
            (pose * linear.place[:, 0, None, None], asked.image, images),
        ]
        root = np.sqrt(weight)[:, None]  # [K, 1]
        columns = hstack([_spread_out(part * root[:, :, None], index, n) for part, index, n in parts]).tocsr()
        by_point = _spread_out(linear.by_point * root[:, :, None], asked.point, asked.n_points).tocsr()
        residual = (linear.residual * root).ravel()
        factor = _factors(linear.by_point, weight, asked)
        coupled = csr_array(csr_array(columns.T @ by_point) @ factor)
        self._normal = (columns.T @ columns).toarray() - (coupled @ coupled.T).toarray()
        self._slope = columns.T @ residual - coupled @ (factor.T @ (by_point.T @ residual))
        many = POSE * images
        self.rows, self.columns = (np.arange(many) + self._normal.shape[0] - k * many for k in (2, 1))
        other = np.arange(self.rows[0])
        kept = self._normal[np.ix_(other, other)]
        self._other, self._factor = other, cho_factor(kept + np.diag(_RIDGE * np.diag(kept) + 1e-12))

    def reduced(self, chosen: np.ndarray, prior: np.ndarray) -> _Reduced:
        """The system of the unknowns `chosen` [D], with a prior [D]."""
        across = self._normal[np.ix_(self._other, chosen)]
        back = cho_solve(self._factor, across)
        system = self._normal[np.ix_(chosen, chosen)] - across.T @ back
        slope = self._slope[chosen] - back.T @ self._slope[self._other]
        raised = system + np.diag(prior)
        return _Reduced(
            system=system,
            slope=slope,
            noise=self.noise,
            raised=raised,
            best=np.linalg.solve(raised, slope),
            effective=float(np.trace(np.linalg.solve(raised, system))),
        )

    def moved(self, motion: np.ndarray) -> float:
        """Mean square of what a motion [6 S] along the rows moves observations by."""
        moved = np.einsum("kai,ki->ka", self._by_rows, motion.reshape(-1, POSE)[self._image])
        return float((moved**2).sum(axis=1).mean())

    @property
    def grams(self) -> np.ndarray:  # [6 S, 6 S]
        """The matrix of `moved`."""
        images = len(self.rows) // POSE
        blocks = np.zeros((images, POSE, POSE))
        np.add.at(blocks, self._image, np.einsum("kai,kaj->kij", self._by_rows, self._by_rows) / len(self._image))
        grams = np.zeros((images, POSE, images, POSE))
        grams[np.arange(images), :, np.arange(images)] = blocks
        return grams.reshape(POSE * images, POSE * images)


def _prior(system: _System, options: ShutterOptions) -> np.ndarray:  # [6 S]
    """What is known of motions beforehand, in units of the system."""
    sigma = np.repeat([options.turn, options.shift * system.depth], POSE // 2)
    return np.tile(system.noise**2 / sigma**2, len(system.rows) // POSE)


def _spread_out(part: np.ndarray, index: np.ndarray, n: int) -> coo_array:
    """Derivatives [K, 2, P] by the unknowns of `index` [K] as a sparse matrix [2 K, n P]."""
    width, rows = part.shape[2], 2 * len(part)
    row = np.broadcast_to(np.arange(rows).reshape(-1, 2, 1), part.shape)
    column = np.broadcast_to(width * index[:, None, None] + np.arange(width), part.shape)
    return coo_array((part.ravel(), (row.ravel(), column.ravel())), shape=(rows, n * width))


def _factors(by_point: np.ndarray, weight: np.ndarray, asked: _Asked) -> csr_array:
    """Lower factors of the inverse normal matrices of the points, block by block."""
    normal = np.zeros((asked.n_points, 3, 3))
    np.add.at(normal, asked.point, np.einsum("k,kai,kaj->kij", weight, by_point, by_point))
    scale = np.trace(normal, axis1=1, axis2=2)[:, None, None]
    lower = np.linalg.cholesky(np.linalg.inv(normal + np.eye(3) * (1e-9 * scale + 1e-12)))
    many = np.arange(asked.n_points + 1)
    return bsr_array((lower, many[:-1], many), shape=(3 * asked.n_points,) * 2).tocsr()
