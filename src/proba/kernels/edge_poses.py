"""Relative poses of edges and their gradients: small loops that would cost more as batched matrix products."""

from __future__ import annotations

import numba as nb
import numpy as np
import torch


def edge_poses(world_from_cam: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """T_ji = T_rj^-1 T_ri of every edge: [B, N, 4, 4] float64, [E, 2] -> [B, E, 4, 4]."""
    out = np.empty((len(world_from_cam), len(edges), 4, 4))
    _edge_poses(world_from_cam.contiguous().numpy(), edges.numpy(), out)
    return torch.from_numpy(out)


def camera_gradient(
    grad_pose: torch.Tensor, j_from_i: torch.Tensor, edges: torch.Tensor, n_images: int
) -> torch.Tensor:
    """Gradients of T_ji [B, E, 3, 4] as covectors of right perturbations of both cameras, summed: [B, N, 6]."""
    out = np.zeros((len(grad_pose), n_images, 6))
    _camera_gradient(grad_pose.contiguous().numpy(), j_from_i.contiguous().numpy(), edges.numpy(), out)
    return torch.from_numpy(out)


@nb.njit(cache=True, nogil=True)
def _edge_poses(world_from_cam, edges, out):
    for b in range(out.shape[0]):
        for e in range(out.shape[1]):
            a, c, pose = world_from_cam[b, edges[e, 0]], world_from_cam[b, edges[e, 1]], out[b, e]
            for row in range(3):
                for column in range(3):
                    pose[row, column] = c[0, row] * a[0, column] + c[1, row] * a[1, column] + c[2, row] * a[2, column]
                pose[row, 3] = (
                    c[0, row] * (a[0, 3] - c[0, 3]) + c[1, row] * (a[1, 3] - c[1, 3]) + c[2, row] * (a[2, 3] - c[2, 3])
                )
                pose[3, row] = 0.0
            pose[3, 3] = 1.0


@nb.njit(cache=True, nogil=True)
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
