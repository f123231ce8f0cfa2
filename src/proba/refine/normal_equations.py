"""Normal equations of the adjustment with the points eliminated, compiled.

Parameters of a camera: a small rotation of the camera about its own axes, a shift of its centre along the world's
axes, and the free ones of its intrinsics. Nothing fixes the world. The tracks are split among the threads, whose sums
are added in a fixed order: the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numba
import numpy as np
from scipy.sparse import csr_array, tril

from proba.geometry.camera import WIDTH
from proba.jit import cached_njit
from proba.kernels.rows import LANES, add_rows, set_row
from proba.memory import PROGRAM_BYTES, allowed_bytes, require
from proba.refine.block_matrix import BLOCK, BlockMatrix, Blocks, coupled_blocks, place_of
from proba.refine.bundle import Bundle, observed_depths
from proba.refine.elimination import Plan, plan_elimination
from proba.refine.lens_derivatives import FAST_MATH, PLAIN, inlined, lenses_of, rich_derivatives, rich_pixel
from proba.threads import in_parallel

N_POSE = 6
FIRST_DAMPING = 1e-4
MAX_PRODUCT = 1e200  # of numbers below 1e100
MIN_DEPTH, BEHIND_PX = 1e-9, 1e3
"""What is behind a camera at the beginning takes no part; what a step would bring there costs as much as this error."""
PAIRS_OF_OBSERVATION = 40
"""What an observation costs by itself, in pairs of observations of one point, over the functions of a step."""
MATRICES = 10
"""Dense matrices of all cameras in memory at a time, at most: where their inverse is made for the uncertainties."""
LEAST_BYTES = 8 * BLOCK * 100
"""Of an image in a sparse system: blocks with a dozen others, in several copies."""

compiled = cached_njit(nogil=True, error_model="numpy", fastmath=FAST_MATH)


@dataclass(frozen=True, eq=False)
class Reduced:
    """The equations of the cameras alone: system @ step = -gradient."""

    system: BlockMatrix  # [D, D]
    gradients: np.ndarray  # [G, D], what each group of points adds to the gradient
    pull: np.ndarray  # [D], what the priors of intrinsics and poses add to it
    slope: np.ndarray  # [D], the gradient while the points stay
    diagonal: np.ndarray  # [D], of the normal matrix while the points stay; zero for what nothing observes

    @property
    def gradient(self) -> np.ndarray:  # [D]
        return self.gradients.sum(axis=0) + self.pull


def require_memory(n_images: int, pairs: np.ndarray | None = None) -> None:
    """Refuse an adjustment that cannot fit, before anything is solved.

    `pairs` [E, 2] are those of the view graph: points couple images that are two steps apart in it, and hardly farther
    ones. Without them the least is asked for that so many images need.
    """
    whole = MATRICES * 8 * (N_POSE * n_images) ** 2
    if whole + PROGRAM_BYTES > allowed_bytes():
        least = LEAST_BYTES * n_images if pairs is None else _sparse_bytes(n_images, pairs)
        require(
            min(whole, least),
            f"The adjustment of {n_images} photos in one piece",
            "Allow more with --memory, or reconstruct fewer photos at a time.",
        )


def _sparse_bytes(n_images: int, pairs: np.ndarray) -> int:
    """What the blocks of a system take, with a copy for each thread and some more, and its factor."""
    ends = np.concatenate([pairs, pairs[:, ::-1], np.repeat(np.arange(n_images)[:, None], 2, axis=1)]).T  # [2, 2 E + N]
    links = csr_array((np.ones(ends.shape[1], bool), (ends[0], ends[1])), shape=(n_images, n_images))
    near = tril(links @ links, format="csr")
    near.sort_indices()
    blocks = Blocks(np.full(n_images, N_POSE), near.indptr.astype(np.int64), near.indices.astype(np.int64))
    plan = plan_elimination(blocks)
    factor = MATRICES * 8 * blocks.n_columns**2 if plan is None else plan.held_bytes
    return 8 * BLOCK * blocks.n_stored * (numba.get_num_threads() + 3) + factor


class Equations:
    """The observations `used` [K] bool of a bundle, with Cauchy weights, and the columns of its cameras.

    Columns: the poses of all images, then the `free` [C, WIDTH] bool intrinsics, at most LANES of a camera. Points need
    two observations. `noise_px` is the standard deviation of a coordinate, against which the priors of the intrinsics
    are weighed. `blocks` are those of the system, if they are to be more than these observations couple.
    """

    def __init__(
        self,
        bundle: Bundle,
        used: np.ndarray,
        free: np.ndarray,
        loss_px: float,
        noise_px: float,
        blocks: Blocks | None = None,
    ):
        tracks = bundle.tracks
        owner = tracks.track_of_observation  # [K]
        used = used & (observed_depths(bundle) > MIN_DEPTH)
        length = np.bincount(owner[used], minlength=tracks.n_tracks)  # [T]
        self.used = used & (length >= 2)[owner]  # [K]
        self.points = np.flatnonzero(length >= 2)  # [P]
        self.offset = np.concatenate([[0], np.cumsum(length[self.points])])  # [P + 1]
        self.image, self.xy = tracks.image[self.used], tracks.xy[self.used]  # [U], [U, 2]
        self.n_columns = N_POSE * bundle.n_images + int(free.sum())
        self.columns = np.full(free.shape, -1)  # [C, WIDTH], of each intrinsic; -1: fixed
        self.columns[free] = np.arange(N_POSE * bundle.n_images, self.n_columns)
        self.prior = np.where(free, bundle.prior, 0.0) * noise_px**2  # [C, WIDTH]
        seen = np.bincount(self.image, minlength=bundle.n_images) > 0  # [N]
        known = None if bundle.pose_prior is None else bundle.pose_prior.precision
        self.pose_prior = None if known is None else np.where(seen[:, None], known, 0.0) * noise_px**2  # [N, 6]
        held = None if bundle.rig is None else bundle.rig.precision  # [S, 6]
        self.rig_prior = np.zeros((0, N_POSE)) if held is None else held * noise_px**2  # [S, 6]
        self.cameras = (
            bundle.camera_of_image,
            bundle.one_focal,  # [C] bool
            np.argsort(~free, axis=1, kind="stable"),  # [C, WIDTH], the free intrinsics first,
            free.sum(axis=1),  # [C], how many there are
            np.where(free.any(axis=1), self.columns.max(axis=1) + 1 - free.sum(axis=1), 0),  # [C], their first column
            float(loss_px) ** 2,
        )
        length = length[self.points]  # [P]
        work = np.cumsum(length * (length + PAIRS_OF_OBSERVATION))  # [P]
        shares = np.linspace(0, work[-1] if len(work) else 0, numba.get_num_threads() + 1)[1:-1]
        self.borders = [0, *np.searchsorted(work, shares).tolist(), len(work)]  # points of each thread
        self._blocks = blocks

    @cached_property
    def blocks(self) -> Blocks:
        """Which blocks the system of the cameras has."""
        if self._blocks is not None:
            return self._blocks
        return coupled_blocks(self.offset, self.image, self.cameras[0], self.cameras[3], N_POSE)

    @cached_property
    def plan(self) -> Plan | None:
        """How the system is factorised; None: as a dense one."""
        return plan_elimination(self.blocks)

    def cost(self, bundle: Bundle) -> float:
        """Robust cost of all observations, and of the distance of intrinsics and poses from their priors."""
        apart = bundle.intrinsics - bundle.expected  # [C, WIDTH]
        priors = float((self.prior * apart**2).sum())
        if bundle.pose_prior is not None:
            priors += float((self.pose_prior * bundle.pose_prior.residual(bundle.cam_from_world) ** 2).sum())
        if bundle.rig is not None and len(self.rig_prior):
            priors += float((self.rig_prior * bundle.rig.residual() ** 2).sum())
        return sum(self._share(_cost, bundle)) + 0.5 * priors

    def reduced(self, bundle: Bundle, damping: float = 0.0, group: np.ndarray | None = None) -> Reduced:
        """The equations, with the diagonal raised by the share `damping`; `group` [P] is the one of each point."""
        group = np.zeros(len(self.points), np.int64) if group is None else group
        blocks = self.blocks
        stored = blocks.start, blocks.column
        values, vectors = self._summed(_reduce, bundle, stored, damping, group, int(group.max(initial=0)) + 1)
        vectors = vectors[:, blocks.counts]  # [G + 2, D]
        gradients, slope, diagonal = vectors[:-2], vectors[-2], vectors[-1]
        half = values[blocks.diagonal]  # [B', LANES, LANES]
        values[blocks.diagonal] = half + half.transpose(0, 2, 1)
        free, pull, prior = (
            self.columns >= 0,
            np.zeros(self.n_columns),
            np.zeros(self.n_columns),
        )  # [C, WIDTH], [D], [D]
        columns = self.columns[free]
        prior[columns] = self.prior[free]
        pull[columns] = (self.prior * (bundle.intrinsics - bundle.expected))[free]
        if bundle.pose_prior is not None and self.pose_prior is not None:
            poses, off = slice(N_POSE * bundle.n_images), bundle.pose_prior.residual(bundle.cam_from_world)
            prior[poses], pull[poses] = self.pose_prior.ravel(), (self.pose_prior * off).ravel()
        system = BlockMatrix(blocks, values).raised(damping * diagonal).raised(prior)
        return Reduced(system, gradients, pull, slope + pull, diagonal)

    def follow(self, bundle: Bundle, step: np.ndarray, damping: float) -> tuple[np.ndarray, float]:
        """Steps [P, 3] of the points when the cameras make theirs, and how much they add to the promised fall."""
        parts = self._share(_follow, bundle, damping, step)
        return np.concatenate([shift for shift, _ in parts]), sum(promise for _, promise in parts)

    def settled_points(self, bundle: Bundle, iterations: int) -> np.ndarray:  # [P, 3]
        """The points after some steps of each by itself while the cameras stay."""
        return np.concatenate(self._share(_settle_points, bundle, iterations))

    def point_variances(self, bundle: Bundle, noise2: float, covariance: BlockMatrix) -> np.ndarray:  # [P]
        """Variance of each point, summed over the axes: of its observations, and of the cameras that see it, whose
        covariance must have the blocks of these equations."""
        stored = covariance.blocks.start, covariance.blocks.column
        return np.concatenate(self._share(_point_variances, bundle, stored, noise2, covariance.values.reshape(-1)))

    def _summed(self, function: Callable, bundle: Bundle, *arguments: object) -> tuple[np.ndarray, ...]:
        """Sums of the arrays that a compiled function gives for the points of each thread, in the threads' order. Where
        those of all threads would not fit into memory, one after the other: the same bits."""
        fits = len(self.borders) * 8 * BLOCK * self.blocks.n_stored < allowed_bytes()
        parts = iter(self._share(function, bundle, *arguments)) if fits else self._parts(function, bundle, *arguments)
        total = next(parts)
        for part in parts:
            for whole, more in zip(total, part, strict=True):
                whole += more
        return total

    def _share(self, function: Callable, bundle: Bundle, *arguments: object) -> list:
        """Results of a compiled function for the points of each thread."""
        scene = self._scene(bundle)
        return in_parallel(lambda part: function(*part, scene, self.cameras, *arguments), list(pairwise(self.borders)))

    def _parts(self, function: Callable, bundle: Bundle, *arguments: object) -> Iterator[tuple[np.ndarray, ...]]:
        """The same, one after the other."""
        scene = self._scene(bundle)
        return (function(*part, scene, self.cameras, *arguments) for part in pairwise(self.borders))

    def _scene(self, bundle: Bundle) -> tuple[np.ndarray, ...]:
        """Observations, cameras and points, as the compiled functions want them."""
        return (
            self.offset,
            self.image,
            self.xy,
            np.ascontiguousarray(bundle.cam_from_world[:, :3]),
            lenses_of(bundle)[bundle.camera_of_image],
            bundle.xyz[self.points],
        )


@compiled
def _cost(first, last, scene, cameras):
    cost = 0.0
    for t in range(first, last):
        cost += _cost_of_point(t, scene[5][t], scene, cameras[5])
    return cost


@inlined
def _cost_of_point(t, point, scene, loss2):
    """Robust cost of the observations of point t if it were there."""
    offset, image, xy, cam_from_world, intrinsics, _ = scene
    cost, product = 0.0, 1.0  # the logarithm of a product is cheaper than a sum of logarithms
    for u in range(offset[t], offset[t + 1]):
        pose, k = cam_from_world[image[u]], intrinsics[image[u]]
        x, y, z = _in_camera(pose, point)
        square = BEHIND_PX**2
        if k[WIDTH] > PLAIN:
            seen, right, down = rich_pixel(x, y, z, k)
            right, down = right - xy[u, 0], down - xy[u, 1]
            if seen:
                square = min(right * right + down * down, BEHIND_PX**2)
        elif z > MIN_DEPTH:
            a, b = x / z, y / z
            square = a * a + b * b
            factor = 1 + square * (k[4] + square * k[5])
            right = k[0] * factor * a + k[2] - xy[u, 0]
            down = k[1] * factor * b + k[3] - xy[u, 1]
            square = min(right * right + down * down, BEHIND_PX**2)
        product *= 1 + square / loss2
        if product > MAX_PRODUCT:
            cost += np.log(product)
            product = 1.0
    return 0.5 * loss2 * (cost + np.log(product))


@compiled
def _settle_points(first, last, scene, cameras, iterations):
    xyz, loss2 = scene[5], cameras[5]
    scratch = _scratch(first, last, scene[0])
    _, _, _, _, _, _, _, _, inverse, slope, _, _ = scratch
    settled, moved = xyz[first:last].copy(), np.zeros(3)
    for t in range(first, last):
        point, damping = settled[t - first], FIRST_DAMPING
        cost = _cost_of_point(t, point, scene, loss2)
        for _ in range(iterations):
            _linearise(t, point, scene, cameras, damping, scratch)
            for i in range(3):
                moved[i] = point[i] - (inverse[i, 0] * slope[0] + inverse[i, 1] * slope[1] + inverse[i, 2] * slope[2])
            now = _cost_of_point(t, moved, scene, loss2)
            if now < cost:
                cost, damping = now, damping * 0.1
                point[:] = moved
            else:
                damping *= 100
    return settled


@compiled
def _reduce(first, last, scene, cameras, stored, damping, group, groups):
    """Of some points: the `stored` blocks [S, LANES, LANES] of the system, halved on the diagonal: the system has these
    and their transpose; and the vectors [G + 2, B, LANES] of `Reduced`: the gradients of the groups, the slope and the
    diagonal.
    """
    image, camera_of_image, wide = scene[1], cameras[0], cameras[3]
    n_images, width = len(scene[3]), (len(scene[3]) + len(wide)) * LANES
    values, vectors = np.zeros(len(stored[1]) * BLOCK), np.zeros((groups + 2) * width)
    scratch = _scratch(first, last, scene[0])
    by_pose, by_lens, residual, coupling, block, _, _, _, _, by_itself, _, _ = scratch
    moved = np.zeros(len(coupling))  # inverse @ coupling
    for t in range(first, last):
        begin, count, own = scene[0][t], scene[0][t + 1] - scene[0][t], group[t] * width
        nodes = _linearise(t, scene[5][t], scene, cameras, damping, scratch)
        for m in range(count):
            n, camera = image[begin + m], camera_of_image[image[begin + m]]
            pose, lens, rows = n * LANES, (n_images + camera) * LANES, _rows(2 * m)
            right, down, weight = residual[m, 0], residual[m, 1], residual[m, 2]
            for vector in (own, groups * width):
                add_rows(vectors, vector + pose, (weight * right, weight * down), by_pose, rows)
                add_rows(vectors, vector + lens, (weight * right, weight * down), by_lens, rows)
            at = place_of(stored[0], stored[1], n, n) * BLOCK
            for a in range(N_POSE):
                right, down = by_pose[rows[0] + a], by_pose[rows[1] + a]
                vectors[(groups + 1) * width + pose + a] += weight * (right * right + down * down)
                add_rows(values, at + a * LANES, (0.5 * weight * right, 0.5 * weight * down), by_pose, rows)
            if not wide[camera]:
                continue
            mixed = place_of(stored[0], stored[1], n_images + camera, n) * BLOCK
            at = place_of(stored[0], stored[1], n_images + camera, n_images + camera) * BLOCK
            for a in range(wide[camera]):
                right, down = by_lens[rows[0] + a], by_lens[rows[1] + a]
                vectors[(groups + 1) * width + lens + a] += weight * (right * right + down * down)
                add_rows(values, mixed + a * LANES, (weight * right, weight * down), by_pose, rows)
                add_rows(values, at + a * LANES, (0.5 * weight * right, 0.5 * weight * down), by_lens, rows)
        _eliminate_point(nodes, scratch, moved, stored, values)
        for one in range(nodes):
            pull = (-by_itself[0], -by_itself[1], -by_itself[2])
            add_rows(vectors, own + block[one] * LANES, pull, moved, _three_rows(3 * one))
    return values.reshape(-1, LANES, LANES), vectors.reshape(groups + 2, n_images + len(wide), LANES)


@inlined
def _eliminate_point(nodes, scratch, moved, stored, values):
    """Take from the blocks what the point takes away, since it follows; `moved` becomes inverse @ coupling."""
    _, _, _, coupling, block, _, size, _, inverse, _, _, _ = scratch
    for one in range(nodes):
        rows = _three_rows(3 * one)
        for i in range(3):
            set_row(moved, rows[i], (inverse[i, 0], inverse[i, 1], inverse[i, 2]), coupling, rows)
        for other in range(one + 1):
            low, high = (other, one) if block[other] <= block[one] else (one, other)
            at, part = place_of(stored[0], stored[1], block[high], block[low]) * BLOCK, 0.5 if one == other else 1.0
            rows, across = _three_rows(3 * high), _three_rows(3 * low)
            for a in range(size[high]):
                x, y, z = -moved[rows[0] + a], -moved[rows[1] + a], -moved[rows[2] + a]
                add_rows(values, at + a * LANES, (part * x, part * y, part * z), coupling, across)


@inlined
def _rows(first):
    return first * LANES, (first + 1) * LANES


@inlined
def _three_rows(first):
    return first * LANES, (first + 1) * LANES, (first + 2) * LANES


@compiled
def _follow(first, last, scene, cameras, damping, step):
    shifts, promise = np.zeros((last - first, 3)), 0.0
    scratch = _scratch(first, last, scene[0])
    _, _, _, coupling, _, place, size, normal, inverse, by_itself, _, _ = scratch
    for t in range(first, last):
        nodes = _linearise(t, scene[5][t], scene, cameras, damping, scratch)
        x, y, z = by_itself
        for one in range(nodes):
            for a in range(size[one]):
                x += coupling[3 * one * LANES + a] * step[place[one] + a]
                y += coupling[(3 * one + 1) * LANES + a] * step[place[one] + a]
                z += coupling[(3 * one + 2) * LANES + a] * step[place[one] + a]
        for i in range(3):
            shift = -(inverse[i, 0] * x + inverse[i, 1] * y + inverse[i, 2] * z)
            shifts[t - first, i] = shift
            promise += 0.5 * shift * (damping * normal[i, i] * shift - by_itself[i])
    return shifts, promise


@compiled
def _point_variances(first, last, scene, cameras, stored, noise2, covariance):
    variance = np.zeros(last - first)
    scratch = _scratch(first, last, scene[0])
    _, _, _, coupling, block, place, size, _, inverse, _, _, _ = scratch
    gain = np.zeros((len(place), LANES, 3))
    for t in range(first, last):
        nodes = _linearise(t, scene[5][t], scene, cameras, 0.0, scratch)
        total = noise2 * (inverse[0, 0] + inverse[1, 1] + inverse[2, 2])
        for one in range(nodes):
            for a in range(size[one]):
                for i in range(3):
                    along = 0.0
                    for j in range(3):
                        along += coupling[(3 * one + j) * LANES + a] * inverse[j, i]
                    gain[one, a, i] = along
            for other in range(one + 1):
                twice = 1.0 if other == one else 2.0
                low, high = (other, one) if block[other] <= block[one] else (one, other)
                at = place_of(stored[0], stored[1], block[high], block[low]) * BLOCK
                for a in range(size[high]):
                    for b in range(size[low]):
                        along = gain[high, a, 0] * gain[low, b, 0]
                        along += gain[high, a, 1] * gain[low, b, 1]
                        along += gain[high, a, 2] * gain[low, b, 2]
                        total += twice * along * covariance[at + a * LANES + b]
        variance[t - first] = total
    return variance


@compiled
def _scratch(first, last, offset):
    """Where `_linearise` writes to: of each observation the derivatives by its pose and by the free intrinsics of its
    camera [2, LANES], and residual and weight [3]; of each node the coupling with the point [3, LANES], its block of
    columns, the first of these and their number; of the point the normal matrix [3, 3], its damped inverse, and the
    gradient [3]; derivatives of one observation."""
    longest = 1
    for t in range(first, last):
        longest = max(longest, offset[t + 1] - offset[t])
    return (
        np.zeros(2 * LANES * longest),
        np.zeros(2 * LANES * longest),
        np.zeros((longest, 3)),
        np.zeros(2 * 3 * LANES * longest),
        np.zeros(2 * longest, np.int64),
        np.zeros(2 * longest, np.int64),
        np.zeros(2 * longest, np.int64),
        np.zeros((3, 3)),
        np.zeros((3, 3)),
        np.zeros(3),
        np.zeros((2, N_POSE + WIDTH)),
        np.zeros((2, 3)),
    )


@inlined
def _linearise(t, point, scene, cameras, damping, scratch):
    """Linearise the observations of point t where it is said to be. Returns how many nodes it couples: the poses that
    see it, and the intrinsics of their cameras, each once."""
    offset, image, xy, cam_from_world, intrinsics, _ = scene
    camera_of_image, one_focal, kind, wide, start, loss2 = cameras
    by_pose, by_lens, residual, coupling, block, place, size, normal, inverse, slope, full, by_point = scratch
    begin, count = offset[t], offset[t + 1] - offset[t]
    nodes = count
    normal[:] = 0
    slope[:] = 0
    for m in range(count):
        n = image[begin + m]
        camera = camera_of_image[n]
        right, down, weight = derivatives(
            cam_from_world[n], intrinsics[n], one_focal[camera], point, xy[begin + m], loss2, full, by_point
        )
        residual[m, 0], residual[m, 1], residual[m, 2] = right, down, weight
        for i in range(3):
            slope[i] += weight * (by_point[0, i] * right + by_point[1, i] * down)
            for j in range(3):
                normal[i, j] += weight * (by_point[0, i] * by_point[0, j] + by_point[1, i] * by_point[1, j])
        rows, lens = _rows(2 * m), len(cam_from_world) + camera
        for a in range(LANES):
            free, column = a < wide[camera], N_POSE + kind[camera, a]
            for row in range(2):
                by_pose[rows[row] + a] = full[row, a] if a < N_POSE else 0.0
                by_lens[rows[row] + a] = full[row, column] if free else 0.0
        block[m], place[m], size[m] = n, N_POSE * n, N_POSE
        own = count
        while own < nodes and block[own] != lens:
            own += 1
        if own == nodes and wide[camera]:
            block[own], place[own], size[own] = lens, start[camera], wide[camera]
            coupling[3 * own * LANES : 3 * (own + 1) * LANES] = 0
            nodes += 1
        for i in range(3):
            factors = weight * by_point[0, i], weight * by_point[1, i]
            set_row(coupling, (3 * m + i) * LANES, factors, by_pose, rows)
            if wide[camera]:
                add_rows(coupling, (3 * own + i) * LANES, factors, by_lens, rows)
    _damped_inverse(normal, damping, inverse)
    return nodes


@inlined
def _in_camera(pose, point):
    """A point in the frame of a camera [3, 4]."""
    x = pose[0, 0] * point[0] + pose[0, 1] * point[1] + pose[0, 2] * point[2] + pose[0, 3]
    y = pose[1, 0] * point[0] + pose[1, 1] * point[1] + pose[1, 2] * point[2] + pose[1, 3]
    z = pose[2, 0] * point[0] + pose[2, 1] * point[1] + pose[2, 2] * point[2] + pose[2, 3]
    return x, y, z


@inlined
def derivatives(pose, k, one_focal, point, xy, loss2, full, by_point):
    """Residual right and down, and its weight; derivatives by camera [2, N_POSE + WIDTH] and point [2, 3] are written
    in place."""
    x, y, z = _in_camera(pose, point)
    if k[WIDTH] > PLAIN:
        return rich_derivatives(x, y, z, pose, k, one_focal, xy, loss2, full, by_point)
    if z <= MIN_DEPTH:
        full[:] = 0
        by_point[:] = 0
        return 0.0, 0.0, 0.0
    a, b = x / z, y / z
    square = a * a + b * b
    factor = 1 + square * (k[4] + square * k[5])
    slope = 2 * (k[4] + 2 * square * k[5])
    right = k[0] * factor * a + k[2] - xy[0]
    down = k[1] * factor * b + k[3] - xy[1]
    for row in range(2):
        ray, across, focal = (a, b, k[0]) if row == 0 else (b, a, k[1])
        along = focal * (factor + slope * ray * ray)
        cross = focal * slope * ray * across
        by_a, by_b = (along, cross) if row == 0 else (cross, along)
        by_x, by_y, by_z = by_a / z, by_b / z, -(by_a * a + by_b * b) / z
        for i in range(3):
            by_point[row, i] = by_x * pose[0, i] + by_y * pose[1, i] + by_z * pose[2, i]
            full[row, 3 + i] = -by_point[row, i]
        full[row, 0] = by_z * y - by_y * z
        full[row, 1] = by_x * z - by_z * x
        full[row, 2] = by_y * x - by_x * y
        by_focal = factor * ray
        full[row, 6] = by_focal if row == 0 or one_focal else 0.0
        full[row, 7] = by_focal if row == 1 and not one_focal else 0.0
        full[row, 8], full[row, 9] = 1.0 - row, 1.0 * row
        full[row, 10] = focal * ray * square
        full[row, 11] = focal * ray * square * square
        full[row, 12:] = 0.0
    return right, down, 1 / (1 + (right * right + down * down) / loss2)


@inlined
def _damped_inverse(normal, damping, inverse):
    """Inverse of a symmetric matrix [3, 3] whose diagonal is raised by the share `damping`, in place."""
    a, d, f = (
        normal[0, 0] * (1 + damping) + 1e-12, normal[1, 1] * (1 + damping) + 1e-12, normal[2, 2] * (1 + damping) + 1e-12
    )  # fmt: skip
    b, c, e = normal[0, 1], normal[0, 2], normal[1, 2]
    inverse[0, 0], inverse[0, 1], inverse[0, 2] = d * f - e * e, c * e - b * f, b * e - c * d
    inverse[1, 1], inverse[1, 2], inverse[2, 2] = a * f - c * c, b * c - a * e, a * d - b * b
    inverse[1, 0], inverse[2, 0], inverse[2, 1] = inverse[0, 1], inverse[0, 2], inverse[1, 2]
    inverse /= max(a * inverse[0, 0] + b * inverse[0, 1] + c * inverse[0, 2], 1e-300)
