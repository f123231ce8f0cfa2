"""Bundle adjustment by the method of Levenberg and Marquardt, with the points eliminated.

The parameters of a camera are those of `linearise`. Nothing fixes the world: the damping alone keeps it in place.
The tracks are split among the threads, whose sums are added in a fixed order: the same bits every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numba
import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.spatial.transform import Rotation

from proba.refine.bundle import FX, FY, Bundle, points_in_cameras
from proba.refine.linearise import N_POSE
from proba.refine.normal_equations import free_columns
from proba.threads import pool

FIRST_DAMPING, MAX_DAMPING = 1e-4, 1e10
MIN_GAIN = 1e-3
"""A step is taken when the cost falls by this part of what the quadratic model promises."""
MIN_DEPTH, BEHIND_PX = 1e-9, 1e3
"""What is behind a camera at the beginning takes no part; what a step would bring there costs as much as this error."""


def minimise(
    bundle: Bundle, used: np.ndarray, free: np.ndarray, *, loss_px: float, iterations: int, tolerance: float
) -> Bundle:
    """Cameras and points at a minimum of the Cauchy cost of the observations `used` [K] bool.

    Images without such observations stay. `free` [C, 6] bool are the intrinsics that may change. Ends when a step
    lowers the cost by less than the share `tolerance`.
    """
    problem = _Problem(bundle, used, free, loss_px)
    cost, damping, harder = problem.cost(bundle), FIRST_DAMPING, 2.0
    for _ in range(iterations):
        moved, promise = problem.step(bundle, damping)
        now = problem.cost(moved) if promise > 0 else np.inf
        gain = (cost - now) / promise if promise > 0 else -1.0
        if gain > MIN_GAIN:
            done = cost - now < tolerance * cost
            bundle, cost, harder = moved, now, 2.0
            damping *= max(1 / 3, 1 - (2 * gain - 1) ** 3)
            if done:
                break
        else:
            damping *= harder
            harder *= 2
            if damping > MAX_DAMPING:
                break
    return bundle


class _Problem:
    """The observations that take part, and the columns of the cameras in the system."""

    def __init__(self, bundle: Bundle, used: np.ndarray, free: np.ndarray, loss_px: float):
        tracks = bundle.tracks
        owner = tracks.track_of_observation  # [K]
        used = used & (points_in_cameras(bundle)[:, 2] > MIN_DEPTH)
        length = np.bincount(owner[used], minlength=tracks.n_tracks)  # [T]
        used = used & (length >= 2)[owner]
        self.points = np.flatnonzero(length >= 2)  # [P]
        self.offset = np.concatenate([[0], np.cumsum(length[self.points])])  # [P + 1]
        self.image, self.xy = tracks.image[used], tracks.xy[used]  # [U], [U, 2]
        self.columns = free_columns(bundle, free)  # [C, 6]
        self.n_columns = N_POSE * bundle.n_images + int(free.sum())
        self.loss2 = float(loss_px) ** 2
        self.cameras = (
            bundle.camera_of_image,
            bundle.one_focal,  # [C] bool
            np.argsort(~free, axis=1, kind="stable"),  # [C, 6], the free intrinsics first,
            free.sum(axis=1),  # [C], how many there are
            np.where(free.any(axis=1), self.columns.max(axis=1) + 1 - free.sum(axis=1), 0),  # [C], their first column
            self.loss2,
        )
        work = np.cumsum(length[self.points] ** 2)  # [P], pairs of observations
        shares = np.linspace(0, work[-1] if len(work) else 0, numba.get_num_threads() + 1)[1:-1]
        self.borders = [0, *np.searchsorted(work, shares).tolist(), len(work)]  # tracks of each thread

    def cost(self, bundle: Bundle) -> float:
        """Robust cost of all observations that take part."""
        return sum(self._share(_cost, bundle, self.loss2))

    def step(self, bundle: Bundle, damping: float) -> tuple[Bundle, float]:
        """The bundle after a damped step, and how much the quadratic model says that this lowers the cost."""
        n = self.n_columns
        parts = self._share(_reduce, bundle, *self.cameras, damping, n)
        half, reduced, gradient, diagonal = (sum(arrays) for arrays in zip(*parts, strict=True))
        system = half + half.T
        fixed = np.flatnonzero(diagonal == 0)
        system[fixed, fixed] = 1.0
        system[np.diag_indices(n)] += damping * diagonal
        try:
            step = -cho_solve(cho_factor(system, lower=True, overwrite_a=True, check_finite=False), reduced)
        except LinAlgError:
            return bundle, 0.0
        parts = self._share(_place_points, bundle, *self.cameras, damping, step)
        xyz = bundle.xyz.copy()
        xyz[self.points] += np.concatenate([shift for shift, _ in parts])
        promise = 0.5 * float(step @ (damping * diagonal * step - gradient)) + sum(own for _, own in parts)
        return replace(move_cameras(bundle, self.columns, step), xyz=xyz), promise

    def _share(self, function: Callable, bundle: Bundle, *arguments: object) -> list:
        """Results of a compiled function for the tracks of each thread."""
        inputs = (
            self.offset, self.image, self.xy, np.ascontiguousarray(bundle.cam_from_world[:, :3]),
            np.ascontiguousarray(bundle.intrinsics[bundle.camera_of_image]), bundle.xyz[self.points], *arguments,
        )  # fmt: skip
        jobs = [pool().submit(function, first, last, *inputs) for first, last in pairwise(self.borders)]
        return [job.result() for job in jobs]


def move_cameras(bundle: Bundle, columns: np.ndarray, step: np.ndarray) -> Bundle:
    """The bundle with its cameras moved by `step` [D]; `columns` [C, 6] are those of the intrinsics in it."""
    pose = step[: N_POSE * bundle.n_images].reshape(-1, N_POSE)  # [N, 6]
    rotation = Rotation.from_rotvec(pose[:, :3]).as_matrix() @ bundle.cam_from_world[:, :3, :3]  # [N, 3, 3]
    centres = bundle.centres + pose[:, 3:]  # [N, 3]
    cam_from_world = bundle.cam_from_world.copy()
    cam_from_world[:, :3, :3] = rotation
    cam_from_world[:, :3, 3] = -np.einsum("nij,nj->ni", rotation, centres)
    free = columns >= 0  # [C, 6]
    intrinsics = bundle.intrinsics.copy()
    intrinsics[free] += step[columns[free]]
    intrinsics[bundle.one_focal, FY] = intrinsics[bundle.one_focal, FX]
    return replace(bundle, cam_from_world=cam_from_world, intrinsics=intrinsics)


@numba.njit(cache=True, nogil=True)
def _cost(first, last, offset, image, xy, cam_from_world, intrinsics, xyz, loss2):
    """Robust cost of the tracks from `first` to `last`."""
    cost = 0.0
    for t in range(first, last):
        for u in range(offset[t], offset[t + 1]):
            pose, k = cam_from_world[image[u]], intrinsics[image[u]]
            x, y, z = _in_camera(pose, xyz[t])
            square = BEHIND_PX**2
            if z > MIN_DEPTH:
                a, b = x / z, y / z
                square = a * a + b * b
                factor = 1 + square * (k[4] + square * k[5])
                right = k[0] * factor * a + k[2] - xy[u, 0]
                down = k[1] * factor * b + k[3] - xy[u, 1]
                square = min(right * right + down * down, BEHIND_PX**2)
            cost += 0.5 * loss2 * np.log1p(square / loss2)
    return cost


@numba.njit(cache=True, nogil=True)
def _reduce(
    first, last, offset, image, xy, cam_from_world, intrinsics, xyz,
    camera_of_image, one_focal, kind, wide, start, loss2, damping, n,
):  # fmt: skip
    """Of the tracks from `first` to `last`: a matrix [D, D] that gives the system when its transpose is added, the
    gradient [D] without the points, the gradient [D], and the diagonal [D] of the cameras' own normal matrix.

    The points couple nodes: the poses of a track, and the intrinsics of the cameras among them, each once.
    """
    half, reduced, gradient, diagonal = np.zeros((n, n)), np.zeros(n), np.zeros(n), np.zeros(n)
    longest = 1
    for t in range(first, last):
        longest = max(longest, offset[t + 1] - offset[t])
    full, by_point, normal, inverse = np.zeros((2, 12)), np.zeros((2, 3)), np.zeros((3, 3)), np.zeros((3, 3))
    slope, by_node = np.zeros(3), np.zeros((2, 12))
    coupling = np.zeros((2 * longest, 3, 6))  # point against each node
    place, size = (
        np.zeros(2 * longest, np.int64),
        np.zeros(2 * longest, np.int64),
    )  # first column and width of each node
    for t in range(first, last):
        begin, count = offset[t], offset[t + 1] - offset[t]
        nodes = count
        normal[:] = 0
        slope[:] = 0
        for m in range(count):
            n_image = image[begin + m]
            camera = camera_of_image[n_image]
            right, down, weight = _derivatives(
                cam_from_world[n_image], intrinsics[n_image], one_focal[camera], xyz[t], xy[begin + m], loss2,
                full, by_point,
            )  # fmt: skip
            for i in range(3):
                slope[i] += weight * (by_point[0, i] * right + by_point[1, i] * down)
                for j in range(3):
                    normal[i, j] += weight * (by_point[0, i] * by_point[0, j] + by_point[1, i] * by_point[1, j])
            place[m], size[m] = 6 * n_image, 6
            node = count
            while node < nodes and place[node] != start[camera]:
                node += 1
            if node == nodes and wide[camera]:
                place[node], size[node] = start[camera], wide[camera]
                coupling[node] = 0
                nodes += 1
            for a in range(6):
                by_node[0, a], by_node[1, a] = full[0, a], full[1, a]
            for a in range(wide[camera]):
                by_node[0, 6 + a], by_node[1, 6 + a] = full[0, 6 + kind[camera, a]], full[1, 6 + kind[camera, a]]
            for a in range(6 + wide[camera]):
                column = 6 * n_image + a if a < 6 else start[camera] + a - 6
                w_right, w_down = weight * by_node[0, a], weight * by_node[1, a]
                gradient[column] += w_right * right + w_down * down
                diagonal[column] += w_right * by_node[0, a] + w_down * by_node[1, a]
                row = half[column]
                for i in range(3):
                    value = w_right * by_point[0, i] + w_down * by_point[1, i]
                    if a < 6:
                        coupling[m, i, a] = value
                    else:
                        coupling[node, i, a - 6] += value
                share = 0.5 if a < 6 else 1.0
                for b in range(6):
                    row[6 * n_image + b] += share * (w_right * by_node[0, b] + w_down * by_node[1, b])
                if a >= 6:
                    for b in range(wide[camera]):
                        row[start[camera] + b] += 0.5 * (w_right * by_node[0, 6 + b] + w_down * by_node[1, 6 + b])
        _damped_inverse(normal, damping, inverse)
        for one in range(nodes):
            for a in range(size[one]):
                x, y, z = 0.0, 0.0, 0.0
                for i in range(3):
                    x += coupling[one, i, a] * inverse[i, 0]
                    y += coupling[one, i, a] * inverse[i, 1]
                    z += coupling[one, i, a] * inverse[i, 2]
                reduced[place[one] + a] -= x * slope[0] + y * slope[1] + z * slope[2]
                row = half[place[one] + a]
                for other in range(one):
                    first_column = place[other]
                    if size[other] == 6:  # a known length makes vector instructions
                        for b in range(6):
                            row[first_column + b] -= (
                                x * coupling[other, 0, b] + y * coupling[other, 1, b] + z * coupling[other, 2, b]
                            )
                    else:
                        for b in range(size[other]):
                            row[first_column + b] -= (
                                x * coupling[other, 0, b] + y * coupling[other, 1, b] + z * coupling[other, 2, b]
                            )
                for b in range(size[one]):
                    row[place[one] + b] -= 0.5 * (
                        x * coupling[one, 0, b] + y * coupling[one, 1, b] + z * coupling[one, 2, b]
                    )
    return half, reduced + gradient, gradient, diagonal


@numba.njit(cache=True, nogil=True)
def _place_points(
    first, last, offset, image, xy, cam_from_world, intrinsics, xyz,
    camera_of_image, one_focal, kind, wide, start, loss2, damping, step,
):  # fmt: skip
    """Steps [last - first, 3] of the points when the cameras make theirs, and what they add to the promised fall."""
    shifts, promise = np.zeros((last - first, 3)), 0.0
    full, by_point, normal, inverse = np.zeros((2, 12)), np.zeros((2, 3)), np.zeros((3, 3)), np.zeros((3, 3))
    slope = np.zeros(3)
    for t in range(first, last):
        normal[:] = 0
        slope[:] = 0
        pull = np.zeros(3)
        for u in range(offset[t], offset[t + 1]):
            n_image = image[u]
            camera = camera_of_image[n_image]
            right, down, weight = _derivatives(
                cam_from_world[n_image], intrinsics[n_image], one_focal[camera], xyz[t], xy[u], loss2, full, by_point
            )
            to_right, to_down = 0.0, 0.0  # where the step of the camera moves the projection
            for a in range(6):
                to_right += full[0, a] * step[6 * n_image + a]
                to_down += full[1, a] * step[6 * n_image + a]
            for a in range(wide[camera]):
                to_right += full[0, 6 + kind[camera, a]] * step[start[camera] + a]
                to_down += full[1, 6 + kind[camera, a]] * step[start[camera] + a]
            for i in range(3):
                slope[i] += weight * (by_point[0, i] * right + by_point[1, i] * down)
                pull[i] += weight * (by_point[0, i] * to_right + by_point[1, i] * to_down)
                for j in range(3):
                    normal[i, j] += weight * (by_point[0, i] * by_point[0, j] + by_point[1, i] * by_point[1, j])
        _damped_inverse(normal, damping, inverse)
        for i in range(3):
            for j in range(3):
                shifts[t - first, i] -= inverse[i, j] * (slope[j] + pull[j])
            shift = shifts[t - first, i]
            promise += 0.5 * shift * (damping * normal[i, i] * shift - slope[i])
    return shifts, promise


@numba.njit(cache=True, nogil=True, inline="always")
def _in_camera(pose, point):
    """A point in the frame of a camera [3, 4]."""
    x = pose[0, 0] * point[0] + pose[0, 1] * point[1] + pose[0, 2] * point[2] + pose[0, 3]
    y = pose[1, 0] * point[0] + pose[1, 1] * point[1] + pose[1, 2] * point[2] + pose[1, 3]
    z = pose[2, 0] * point[0] + pose[2, 1] * point[1] + pose[2, 2] * point[2] + pose[2, 3]
    return x, y, z


@numba.njit(cache=True, nogil=True)
def _derivatives(pose, k, one_focal, point, xy, loss2, full, by_point):
    """Residual right and down, and its weight; derivatives by camera [2, 12] and point [2, 3] are written in place."""
    x, y, z = _in_camera(pose, point)
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
    return right, down, 1 / (1 + (right * right + down * down) / loss2)


@numba.njit(cache=True, nogil=True)
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
