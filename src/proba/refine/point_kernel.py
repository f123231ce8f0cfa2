"""Levenberg-Marquardt for many single points, compiled: the cameras stay as they are."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True)
def refine_points_kernel(offset, image, xy, alive, xyz, cam_from_world, intrinsics, loss_px, iterations):
    """Points [T, 3] after some steps on the Cauchy cost of their observations that hold.

    `cam_from_world` [N, 3, 4] and `intrinsics` [N, 6] (fx, fy, cx, cy, k1, k2) are those of the images.
    """
    refined = xyz.copy()
    normal, gradient, step = np.zeros((3, 3)), np.zeros(3), np.zeros(3)
    for t in range(len(offset) - 1):
        damping = 1e-4
        cost = _accumulate(
            t, refined[t], offset, image, xy, alive, cam_from_world, intrinsics, loss_px, normal, gradient
        )
        for _ in range(iterations):
            _solve(normal, gradient, damping, step)
            moved = refined[t] - step
            new = _accumulate(t, moved, offset, image, xy, alive, cam_from_world, intrinsics, loss_px, normal, gradient)
            if new < cost:
                cost = new
                refined[t] = moved
                damping *= 0.1
            else:
                damping *= 100
                # The equations belong to the place that was refused.
                _accumulate(
                    t, refined[t], offset, image, xy, alive, cam_from_world, intrinsics, loss_px, normal, gradient
                )
    return refined


@numba.njit(cache=True)
def _accumulate(t, point, offset, image, xy, alive, cam_from_world, intrinsics, loss_px, normal, gradient):
    """Robust cost of a place for track t; its normal matrix [3, 3] and gradient [3] are written in place."""
    normal[:] = 0
    gradient[:] = 0
    cost = 0.0
    for k in range(offset[t], offset[t + 1]):
        if not alive[k]:
            continue
        pose, camera = cam_from_world[image[k]], intrinsics[image[k]]
        x = pose[0, 0] * point[0] + pose[0, 1] * point[1] + pose[0, 2] * point[2] + pose[0, 3]
        y = pose[1, 0] * point[0] + pose[1, 1] * point[1] + pose[1, 2] * point[2] + pose[1, 3]
        z = pose[2, 0] * point[0] + pose[2, 1] * point[1] + pose[2, 2] * point[2] + pose[2, 3]
        if z < 1e-9:
            return np.inf
        a, b = x / z, y / z
        square = a * a + b * b
        factor = 1 + square * (camera[4] + square * camera[5])
        slope = 2 * (camera[4] + 2 * square * camera[5])
        right = camera[0] * factor * a + camera[2] - xy[k, 0]
        down = camera[1] * factor * b + camera[3] - xy[k, 1]
        error2 = (right * right + down * down) / (loss_px * loss_px)
        cost += np.log1p(error2)
        weight = 1 / (1 + error2)
        right_a, right_b = camera[0] * (factor + slope * a * a), camera[0] * slope * a * b
        down_a, down_b = camera[1] * slope * a * b, camera[1] * (factor + slope * b * b)
        for i in range(3):
            ray_a = (pose[0, i] - a * pose[2, i]) / z
            ray_b = (pose[1, i] - b * pose[2, i]) / z
            right_i = right_a * ray_a + right_b * ray_b
            down_i = down_a * ray_a + down_b * ray_b
            gradient[i] += weight * (right_i * right + down_i * down)
            for j in range(i + 1):
                ray_a = (pose[0, j] - a * pose[2, j]) / z
                ray_b = (pose[1, j] - b * pose[2, j]) / z
                right_j = right_a * ray_a + right_b * ray_b
                down_j = down_a * ray_a + down_b * ray_b
                normal[i, j] += weight * (right_i * right_j + down_i * down_j)
    return cost


@numba.njit(cache=True)
def _solve(normal, gradient, damping, step):
    """Damped step [3] of the lower triangle `normal` [3, 3] by Cholesky factors, in place; zero if singular."""
    a = normal[0, 0] * (1 + damping) + 1e-12
    b = normal[1, 0]
    c = normal[2, 0]
    l00 = np.sqrt(a)
    l10, l20 = b / l00, c / l00
    d = normal[1, 1] * (1 + damping) + 1e-12 - l10 * l10
    if d <= 0:
        step[:] = 0
        return
    l11 = np.sqrt(d)
    l21 = (normal[2, 1] - l20 * l10) / l11
    e = normal[2, 2] * (1 + damping) + 1e-12 - l20 * l20 - l21 * l21
    if e <= 0:
        step[:] = 0
        return
    l22 = np.sqrt(e)
    u = gradient[0] / l00
    v = (gradient[1] - l10 * u) / l11
    w = (gradient[2] - l20 * u - l21 * v) / l22
    step[2] = w / l22
    step[1] = (v - l21 * step[2]) / l11
    step[0] = (u - l10 * step[1] - l20 * step[2]) / l00
