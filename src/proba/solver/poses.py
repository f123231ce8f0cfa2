"""Pose gradients from edges to the tree, and steps on the group."""

from __future__ import annotations

import torch

from proba.geometry import se3, so3

REFERENCE_TAN = 0.41421356  # tan(45 deg / 2): step sizes are stated for the paper's start field of view


def edge_poses(world_from_cam: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
    """T_ji = T_rj^-1 T_ri of every edge: [B, N, 4, 4], [E, 2] -> [B, E, 4, 4]."""
    return se3.inverse(world_from_cam[:, edges[:, 1]]) @ world_from_cam[:, edges[:, 0]]


def camera_gradient(
    grad_pose: torch.Tensor, j_from_i: torch.Tensor, edges: torch.Tensor, n_images: int
) -> torch.Tensor:
    """Gradients of T_ji [B, E, 3, 4] as covectors of right perturbations of both cameras, summed: [B, N, 6]."""
    rotation, translation = j_from_i[..., :3, :3], j_from_i[..., :3, 3]
    grad_r, grad_t = grad_pose[..., :3], grad_pose[..., 3]
    back = rotation.transpose(-1, -2)
    # T_ji exp(eps): the rotation moves by R hat(w), the translation by R v.
    of_i = torch.cat([(back @ grad_t[..., None])[..., 0], _antisymmetric(back @ grad_r)], -1)
    # exp(-eps) T_ji: everything moves rigidly the other way.
    moment = grad_r @ back + grad_t[..., :, None] * translation[..., None, :]
    of_j = -torch.cat([grad_t, _antisymmetric(moment)], -1)
    total = torch.zeros(grad_pose.shape[0], n_images, 6, dtype=grad_pose.dtype)
    total.index_add_(1, edges[:, 0], of_i)
    total.index_add_(1, edges[:, 1], of_j)
    return total


def _antisymmetric(a: torch.Tensor) -> torch.Tensor:
    """Gradient of <A, hat(w)> with respect to w."""
    return so3.vee(a - a.transpose(-1, -2))


def pivot_gradient(grad: torch.Tensor, pivot_depth: torch.Tensor) -> torch.Tensor:
    """Append the gradient along rotations about the scene point (0, 0, z): [B, N, 6], [B, N] -> [B, N, 9].

    The over-complete set of generators removes the narrow valley between rotating a camera and moving it sideways.
    """
    pivot = _pivot(pivot_depth)
    return torch.cat([grad, grad[..., 3:] + torch.linalg.cross(grad[..., :3], pivot)], -1)


def pivot_twist(step: torch.Tensor, pivot_depth: torch.Tensor, tan: torch.Tensor) -> torch.Tensor:
    """Combine nine generator steps into one twist; camera motion is scaled by the field of view: [B, N, 9] -> [B, N, 6]."""
    scale = (tan / REFERENCE_TAN).clamp(0.1, 1.5)[..., None]
    about = step[..., 6:]
    v = step[..., :3] * scale + torch.linalg.cross(_pivot(pivot_depth), about)
    return torch.cat([v, step[..., 3:6] * scale + about], -1)


def _pivot(depth: torch.Tensor) -> torch.Tensor:
    zero = torch.zeros_like(depth)
    return torch.stack([zero, zero, depth], -1)
