"""The pose side of an iteration, from the tree to the edges and back: small loops instead of many small tensors.

The formulas of one pose, edge or node are `formula`s, which the GPU's kernels are compiled from as well. The whole is
the same as `geometry.Tree.compose`, `geometry.tree.node_gradient`, `geometry.se3.exp` and `right_jacobian`, which
remain the reference.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np
import torch

from proba.geometry import Tree
from proba.jit import cached_njit

formula = nb.njit(nogil=True, forceinline=True)


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


@formula
def chain(above, step, pose):
    """pose = above step, rows [3 or 4, 4]; the last row is left alone."""
    for row in range(3):
        for column in range(4):
            pose[row, column] = (
                above[row, 0] * step[0, column] + above[row, 1] * step[1, column] + above[row, 2] * step[2, column]
            )
        pose[row, 3] += above[row, 3]


@formula
def edge_pose(i, j, pose):
    """pose = j^-1 i [4, 4] of world_from_cam i and j."""
    for row in range(3):
        for column in range(3):
            pose[row, column] = j[0, row] * i[0, column] + j[1, row] * i[1, column] + j[2, row] * i[2, column]
        pose[row, 3] = (
            j[0, row] * (i[0, 3] - j[0, 3]) + j[1, row] * (i[1, 3] - j[1, 3]) + j[2, row] * (i[2, 3] - j[2, 3])
        )
        pose[3, row] = 0.0
    pose[3, 3] = 1.0


@formula
def pull_on_i(pose, grad, out):
    """T_ji exp(eps) [4, 4], grad [3, 4]: the rotation moves by R hat(w), the translation by R v. Adds to out [6]."""
    for row in range(3):
        out[row] += pose[0, row] * grad[0, 3] + pose[1, row] * grad[1, 3] + pose[2, row] * grad[2, 3]
    for k in range(3):
        a, b = (k + 1) % 3, (k + 2) % 3
        forth = pose[0, b] * grad[0, a] + pose[1, b] * grad[1, a] + pose[2, b] * grad[2, a]
        back = pose[0, a] * grad[0, b] + pose[1, a] * grad[1, b] + pose[2, a] * grad[2, b]
        out[3 + k] += forth - back


@formula
def pull_on_j(pose, grad, out):
    """exp(-eps) T_ji [4, 4], grad [3, 4]: everything moves rigidly the other way. Adds to out [6]."""
    for k in range(3):
        out[k] -= grad[k, 3]
        a, b = (k + 1) % 3, (k + 2) % 3
        forth = grad[b, 0] * pose[a, 0] + grad[b, 1] * pose[a, 1] + grad[b, 2] * pose[a, 2] + grad[b, 3] * pose[a, 3]
        back = grad[a, 0] * pose[b, 0] + grad[a, 1] * pose[b, 1] + grad[a, 2] * pose[b, 2] + grad[a, 3] * pose[b, 3]
        out[3 + k] -= forth - back


@formula
def pass_up(step, own, above):
    """Add a node's gradient [6] to its parent's, with the coadjoint of the step [4, 4] between them."""
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


@formula
def rodrigues(square):
    """sin t / t, (1 - cos t) / t^2 and (t - sin t) / t^3 of square = t^2."""
    if square < 1e-6:  # relative error of the series: 1e-14
        return 1 - square / 6, 0.5 - square / 24, 1 / 6 - square / 120
    theta = math.sqrt(square)
    a = math.sin(theta) / theta
    return a, (1 - math.cos(theta)) / square, (1 - a) / square


@formula
def push(pose, twist):
    """pose <- pose exp(twist) in place, [4, 4] and [6]."""
    vx, vy, vz, x, y, z = twist[0], twist[1], twist[2], twist[3], twist[4], twist[5]
    square = x * x + y * y + z * z
    a, b, c = rodrigues(square)
    # Rodrigues: W^2 = w w^T - |w|^2 I.
    s_xx, s_yy, s_zz = 1 + b * (x * x - square), 1 + b * (y * y - square), 1 + b * (z * z - square)
    s_xy, s_yx = b * x * y - a * z, b * x * y + a * z
    s_xz, s_zx = b * x * z + a * y, b * x * z - a * y
    s_yz, s_zy = b * y * z - a * x, b * y * z + a * x
    dot = x * vx + y * vy + z * vz
    s_x = vx + b * (y * vz - z * vy) + c * (x * dot - square * vx)
    s_y = vy + b * (z * vx - x * vz) + c * (y * dot - square * vy)
    s_z = vz + b * (x * vy - y * vx) + c * (z * dot - square * vz)
    for row in range(3):
        r_x, r_y, r_z = pose[row, 0], pose[row, 1], pose[row, 2]
        pose[row, 0] = r_x * s_xx + r_y * s_yx + r_z * s_zx
        pose[row, 1] = r_x * s_xy + r_y * s_yy + r_z * s_zy
        pose[row, 2] = r_x * s_xz + r_y * s_yz + r_z * s_zz
        pose[row, 3] += r_x * s_x + r_y * s_y + r_z * s_z


@formula
def coefficients(x):
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


@formula
def cross(a, b):
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@formula
def covector(twist, grad, out):
    """out = right_jacobian(twist)^T grad, [6] each.

    Transposed, hat(w) becomes -hat(w), and products of matrices are chains of cross products with the covector g.
    """
    v, w = (twist[0], twist[1], twist[2]), (twist[3], twist[4], twist[5])
    g, h = (grad[0], grad[1], grad[2]), (grad[3], grad[4], grad[5])
    b, c, e, f = coefficients(w[0] * w[0] + w[1] * w[1] + w[2] * w[2])
    wg, vg, wh = cross(w, g), cross(v, g), cross(w, h)
    wwg, wwh, vwg, wvg = cross(w, wg), cross(w, wh), cross(v, wg), cross(w, vg)
    wvwg, wwvg, vwwg = cross(w, vwg), cross(w, wvg), cross(v, wwg)
    wwvwg, wvwwg = cross(w, wvwg), cross(w, vwwg)
    for k in range(3):
        # The corner block is Barfoot's eq. 7.86 of (-v, -w), transposed.
        corner = (
            0.5 * vg[k]
            + c * (vwg[k] + wvg[k] + wvwg[k])
            + e * (vwwg[k] + wwvg[k] - 3 * wvwg[k])
            + f * (wwvwg[k] + wvwwg[k])
        )
        out[k] = g[k] + b * wg[k] + c * wwg[k]
        out[3 + k] = corner + h[k] + b * wh[k] + c * wwh[k]


@cached_njit(nogil=True)
def _edge_poses(parent_from_child, order, parent, edges, out):
    world_from_cam = np.empty(parent_from_child.shape[1:])
    for b in range(out.shape[0]):
        world_from_cam[order[0]] = np.eye(4)
        for k in order[1:]:
            chain(world_from_cam[parent[k]], parent_from_child[b, k], world_from_cam[k])
        for e in range(out.shape[1]):
            edge_pose(world_from_cam[edges[e, 0]], world_from_cam[edges[e, 1]], out[b, e])


@cached_njit(nogil=True)
def _camera_gradient(grad_pose, j_from_i, edges, out):
    for b in range(grad_pose.shape[0]):
        for e in range(grad_pose.shape[1]):
            pull_on_i(j_from_i[b, e], grad_pose[b, e], out[b, edges[e, 0]])
            pull_on_j(j_from_i[b, e], grad_pose[b, e], out[b, edges[e, 1]])


@cached_njit(nogil=True)
def _sum_to_root(parent_from_child, order, parent, grad):
    """A node's gradient moves its parent's; leaves first."""
    for b in range(grad.shape[0]):
        for k in order[:0:-1]:
            pass_up(parent_from_child[b, k], grad[b, k], grad[b, parent[k]])
        grad[b, order[0]] = 0.0


@cached_njit(nogil=True)
def _move(poses, twist):
    for n in range(len(poses)):
        push(poses[n], twist[n])


@cached_njit(nogil=True)
def _twist_gradient(twist, grad, out):
    for n in range(len(twist)):
        covector(twist[n], grad[n], out[n])
