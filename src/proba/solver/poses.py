"""Pose steps on the group along an over-complete set of generators."""

from __future__ import annotations

import torch

REFERENCE_TAN = 0.41421356  # tan(45 deg / 2): step sizes are stated for the paper's start field of view


def pivot_gradient(grad: torch.Tensor, pivot_depth: torch.Tensor) -> torch.Tensor:
    """Append the gradient along rotations about the scene point (0, 0, z): [B, N, 6], [B, N] -> [B, N, 9].

    The over-complete set of generators removes the narrow valley between rotating a camera and moving it sideways.
    """
    pivot = _pivot(pivot_depth)
    return torch.cat([grad, grad[..., 3:] + torch.linalg.cross(grad[..., :3], pivot)], -1)


def pivot_twist(step: torch.Tensor, pivot_depth: torch.Tensor, tan: torch.Tensor) -> torch.Tensor:
    """One twist of nine generator steps, [B, N, 9] -> [B, N, 6]; camera motion is scaled by the field of view."""
    scale = (tan / REFERENCE_TAN).clamp(0.1, 1.5)[..., None]
    about = step[..., 6:]
    v = step[..., :3] * scale + torch.linalg.cross(_pivot(pivot_depth), about)
    return torch.cat([v, step[..., 3:6] * scale + about], -1)


def _pivot(depth: torch.Tensor) -> torch.Tensor:
    zero = torch.zeros_like(depth)
    return torch.stack([zero, zero, depth], -1)
