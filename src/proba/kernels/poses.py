"""The pose side of an iteration, from the tree to the edges and back: small loops instead of many small tensors.

The same as `geometry.Tree.compose`, `geometry.tree.node_gradient`, `geometry.se3.exp` and `right_jacobian`, which
remain the reference.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from proba.geometry import Tree
from proba.jit import cached_njit


class PoseTree:
    """A pose tree with its nodes in an order in which parents come first."""

    def __init__(self, tree: Tree, edges: torch.Tensor):
        self.order = np.argsort(tree.depth, kind="stable")  # [N], the root first
        self.parent = tree.parent.numpy()  # [N]
        self.edges = edges.numpy()  # [E, 2]

    def edge_poses(self, parent_from_child: torch.Tensor) -> torch.Tensor:
        """T_ji = T_rj^-1 T_ri of every edge: [B, N, 4, 4] float64 -> [B, E, 4, 4]."""
        out = np.empty((len(parent_from_child), len(self.edges), 4, 4))
        _edge_poses(parent_from_child.contiguous().numpy(), self.order, self.parent, self.edges, out)
        return torch.from_numpy(out)

    def gradient(
        self, grad_pose: torch.Tensor, j_from_i: torch.Tensor, parent_from_child: torch.Tensor
    ) -> torch.Tensor:
        """Gradients of T_ji [B, E, 3, 4] as covectors of right perturbations of parent_from_child, [B, N, 6]."""
        out = np.zeros((*parent_from_child.shape[:2], 6))
        _camera_gradient(grad_pose.contiguous().numpy(), j_from_i.numpy(), self.edges, out)
        _sum_to_root(parent_from_child.contiguous().numpy(), self.order, self.parent, out)
        return torch.from_numpy(out)


def move(poses: torch.Tensor, twist: torch.Tensor) -> None:
    """poses <- poses exp(twist) in place, [B, N, 4, 4] and [B, N, 6] float64, contiguous."""
    _move(poses.numpy().reshape(-1, 4, 4), twist.contiguous().numpy().reshape(-1, 6))


def twist_gradient(twist: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    """Covectors of right perturbations of exp(twist) as gradients of the twist itself, [B, N, 6] float64 both.

    That is `se3.right_jacobian(twist)` transposed, times `grad`.
    """
    out = np.empty(grad.shape)
    _twist_gradient(
        twist.contiguous().numpy().reshape(-1, 6), grad.contiguous().numpy().reshape(-1, 6), out.reshape(-1, 6)
    )
    return torch.from_numpy(out)


@cached_njit(nogil=True)
def _edge_poses(parent_from_child, order, parent, edges, out):
    world_from_cam = np.empty(parent_from_child.shape[1:])
    for b in range(out.shape[0]):
        world_from_cam[order[0]] = np.eye(4)
        for k in order[1:]:
            above, step, pose = world_from_cam[parent[k]], parent_from_child[b, k], world_from_cam[k]
            for row in range(3):
                for column in range(4):
                    pose[row, column] = (
                        above[row, 0] * step[0, column]
                        + above[row, 1] * step[1, column]
                        + above[row, 2] * step[2, column]
                    )
                pose[row, 3] += above[row, 3]
        for e in range(out.shape[1]):
            i, j, pose = world_from_cam[edges[e, 0]], world_from_cam[edges[e, 1]], out[b, e]
            for row in range(3):
                for column in range(3):
                    pose[row, column] = j[0, row] * i[0, column] + j[1, row] * i[1, column] + j[2, row] * i[2, column]
                pose[row, 3] = (
                    j[0, row] * (i[0, 3] - j[0, 3]) + j[1, row] * (i[1, 3] - j[1, 3]) + j[2, row] * (i[2, 3] - j[2, 3])
                )
                pose[3, row] = 0.0
            pose[3, 3] = 1.0


@cached_njit(nogil=True)
def _camera_gradient(grad_pose, j_from_i, edges, out):
    moved = np.empty((3, 3))
    for b in range(grad_pose.shape[0]):
        for e in range(grad_pose.shape[1]):
            pose, grad = j_from_i[b, e], grad_pose[b, e]
            of_i, of_j = out[b, edges[e, 0]], out[b, edges[e, 1]]
            # T_ji exp(eps): the rotation moves by R hat(w), the translation by R v.
            for row in range(3):
                of_i[row] += pose[0, row] * grad[0, 3] + pose[1, row] * grad[1, 3] + pose[2, row] * grad[2, 3]
                for column in range(3):
                    moved[row, column] = (
                        pose[0, row] * grad[0, column] + pose[1, row] * grad[1, column] + pose[2, row] * grad[2, column]
                    )
            of_i[3] += moved[2, 1] - moved[1, 2]
            of_i[4] += moved[0, 2] - moved[2, 0]
            of_i[5] += moved[1, 0] - moved[0, 1]
            # exp(-eps) T_ji: everything moves rigidly the other way.
            for row in range(3):
                of_j[row] -= grad[row, 3]
                for column in range(3):
                    moved[row, column] = (
                        grad[row, 0] * pose[column, 0]
                        + grad[row, 1] * pose[column, 1]
                        + grad[row, 2] * pose[column, 2]
                        + grad[row, 3] * pose[column, 3]
                    )
            of_j[3] -= moved[2, 1] - moved[1, 2]
            of_j[4] -= moved[0, 2] - moved[2, 0]
            of_j[5] -= moved[1, 0] - moved[0, 1]


@cached_njit(nogil=True)
def _sum_to_root(parent_from_child, order, parent, grad):
    """A node's gradient moves its parent's with the coadjoint of the step between them; leaves first."""
    for b in range(grad.shape[0]):
        for k in order[:0:-1]:
            step, own, above = parent_from_child[b, k], grad[b, k], grad[b, parent[k]]
            v0 = step[0, 0] * own[0] + step[0, 1] * own[1] + step[0, 2] * own[2]
            v1 = step[1, 0] * own[0] + step[1, 1] * own[1] + step[1, 2] * own[2]
            v2 = step[2, 0] * own[0] + step[2, 1] * own[1] + step[2, 2] * own[2]
            t0, t1, t2 = step[0, 3], step[1, 3], step[2, 3]
            above[0] += v0
            above[1] += v1
            above[2] += v2
            above[3] += t1 * v2 - t2 * v1 + step[0, 0] * own[3] + step[0, 1] * own[4] + step[0, 2] * own[5]
            above[4] += t2 * v0 - t0 * v2 + step[1, 0] * own[3] + step[1, 1] * own[4] + step[1, 2] * own[5]
            above[5] += t0 * v1 - t1 * v0 + step[2, 0] * own[3] + step[2, 1] * own[4] + step[2, 2] * own[5]
        grad[b, order[0]] = 0.0


@cached_njit(nogil=True)
def _move(poses, twist):
    step = np.empty((3, 4))
    old = np.empty((3, 4))
    for n in range(len(poses)):
        vx, vy, vz, x, y, z = twist[n]
        square = x * x + y * y + z * z
        if square < 1e-6:  # relative error of the series: 1e-14
            a, b, c = 1 - square / 6, 0.5 - square / 24, 1 / 6 - square / 120
        else:
            theta = math.sqrt(square)
            a, b = math.sin(theta) / theta, (1 - math.cos(theta)) / square
            c = (1 - a) / square
        # Rodrigues: W^2 = w w^T - |w|^2 I.
        step[0, 0], step[1, 1], step[2, 2] = (
            1 + b * (x * x - square),
            1 + b * (y * y - square),
            1 + b * (z * z - square),
        )
        step[0, 1], step[1, 0] = b * x * y - a * z, b * x * y + a * z
        step[0, 2], step[2, 0] = b * x * z + a * y, b * x * z - a * y
        step[1, 2], step[2, 1] = b * y * z - a * x, b * y * z + a * x
        dot = x * vx + y * vy + z * vz
        step[0, 3] = vx + b * (y * vz - z * vy) + c * (x * dot - square * vx)
        step[1, 3] = vy + b * (z * vx - x * vz) + c * (y * dot - square * vy)
        step[2, 3] = vz + b * (x * vy - y * vx) + c * (z * dot - square * vz)
        pose = poses[n]
        old[:] = pose[:3]
        for row in range(3):
            for column in range(4):
                pose[row, column] = (
                    old[row, 0] * step[0, column] + old[row, 1] * step[1, column] + old[row, 2] * step[2, column]
                )
            pose[row, 3] += old[row, 3]


@cached_njit(nogil=True)
def _coefficients(x):
    """(1 - cos t)/t^2, (t - sin t)/t^3 and the two that follow in Barfoot's eq. 7.86, of x = t^2."""
    if x < 0.04:  # the closed forms lose digits; relative error of the series: 1e-13
        b = 0.5 - x / 24 * (1 - x / 30 * (1 - x / 56 * (1 - x / 90)))
        c = 1 / 6 - x / 120 * (1 - x / 42 * (1 - x / 72 * (1 - x / 110)))
        e = 1 / 24 - x / 720 * (1 - x / 56 * (1 - x / 90 * (1 - x / 132)))
        f = 1 / 120 - x / 2520 + x * x / 120960 - x * x * x / 9979200
        return b, c, e, f
    theta = math.sqrt(x)
    sin, cos = math.sin(theta), math.cos(theta)
    e = (x / 2 + cos - 1) / (x * x)
    f = (2 * theta - 3 * sin + theta * cos) / (2 * theta * x * x)
    return (1 - cos) / x, (theta - sin) / (theta * x), e, f


@cached_njit(nogil=True)
def _cross(a, b, out):
    out[0], out[1], out[2] = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@cached_njit(nogil=True)
def _twist_gradient(twist, grad, out):
    # Transposed, hat(w) becomes -hat(w), and products of matrices are chains of cross products with the covector g.
    chain = np.empty((12, 3))
    wg, vg, wwg, wh, wwh, vwg = chain[0], chain[1], chain[2], chain[3], chain[4], chain[5]
    wvg, wvwg, wwvg, vwwg, wwvwg, wvwwg = chain[6], chain[7], chain[8], chain[9], chain[10], chain[11]
    for n in range(len(twist)):
        v, w, g, h = twist[n, :3], twist[n, 3:], grad[n, :3], grad[n, 3:]
        b, c, e, f = _coefficients(w[0] * w[0] + w[1] * w[1] + w[2] * w[2])
        _cross(w, g, wg)
        _cross(v, g, vg)
        _cross(w, wg, wwg)
        _cross(w, h, wh)
        _cross(w, wh, wwh)
        _cross(v, wg, vwg)
        _cross(w, vg, wvg)
        _cross(w, vwg, wvwg)
        _cross(w, wvg, wwvg)
        _cross(v, wwg, vwwg)
        _cross(w, wvwg, wwvwg)
        _cross(w, vwwg, wvwwg)
        for k in range(3):
            # The corner block is Barfoot's eq. 7.86 of (-v, -w), transposed.
            corner = (
                0.5 * vg[k]
                + c * (vwg[k] + wvg[k] + wvwg[k])
                + e * (vwwg[k] + wwvg[k] - 3 * wvwg[k])
                + f * (wwvwg[k] + wvwwg[k])
            )
            out[n, k] = g[k] + b * wg[k] + c * wwg[k]
            out[n, 3 + k] = corner + h[k] + b * wh[k] + c * wwh[k]
