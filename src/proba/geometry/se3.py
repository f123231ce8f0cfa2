"""Rigid motions as 4x4 matrices. Twists are xi = (v, w): translation first, rotation second."""

from __future__ import annotations

from math import factorial

import torch
from torch import Tensor

from proba.geometry import so3

MIRROR_SIGNS = (-1.0, -1.0, 1.0, -1.0, -1.0, 1.0)
"""log(M T M) = MIRROR_SIGNS * log(T) for the paper's M = diag(-1, -1, 1, 1)."""

# Row k: coefficients of x^k, x = angle^2, of the two higher coefficients of `_block_coefficients`.
_SERIES_EF = [[(-1) ** k / factorial(2 * k + 4), (-1) ** k * (k + 1) / factorial(2 * k + 5)] for k in range(10)]


def from_rotation_translation(R: Tensor, t: Tensor) -> Tensor:
    """Pose [..., 4, 4] of R [..., 3, 3] and t [..., 3]."""
    top = torch.cat([R, t.unsqueeze(-1)], dim=-1)  # [..., 3, 4]
    bottom = torch.tensor([0.0, 0.0, 0.0, 1.0], dtype=R.dtype, device=R.device)
    return torch.cat([top, bottom.expand(*top.shape[:-2], 1, 4)], dim=-2)


def inverse(T: Tensor) -> Tensor:
    """Inverse of T [..., 4, 4]."""
    R_inverse = T[..., :3, :3].transpose(-1, -2)  # [..., 3, 3]
    return from_rotation_translation(R_inverse, -(R_inverse @ T[..., :3, 3:]).squeeze(-1))


def exp(xi: Tensor) -> Tensor:
    """Pose [..., 4, 4] of the twist xi [..., 6]."""
    v, w = xi[..., :3], xi[..., 3:]
    x = (w * w).sum(-1)
    a, b, c = so3.coefficients(x)
    along = c * (w * v).sum(-1)  # [...]
    # The left Jacobian of w times v, by its Rodrigues formula.
    t = a.unsqueeze(-1) * v + b.unsqueeze(-1) * torch.linalg.cross(w, v) + along.unsqueeze(-1) * w  # [..., 3]
    return from_rotation_translation(so3.linear_in_hat(w, 1 - b * x, a, b), t)


def log(T: Tensor) -> Tensor:
    """Twist [..., 6] of T [..., 4, 4]."""
    w = so3.log(T[..., :3, :3])  # [..., 3]
    # The left Jacobian of w is the right Jacobian of -w.
    v = so3.right_jacobian_inverse(-w) @ T[..., :3, 3:]  # [..., 3, 1]
    return torch.cat([v.squeeze(-1), w], dim=-1)


def adjoint(T: Tensor) -> Tensor:
    """Ad [..., 6, 6] of T [..., 4, 4], with T exp(xi) = exp(Ad xi) T."""
    R = T[..., :3, :3]
    return _block_upper(R, so3.hat(T[..., :3, 3]) @ R)


def coadjoint(T: Tensor, covector: Tensor) -> Tensor:
    """adjoint(T)^T @ covector for T [..., 4, 4] and covector [..., 6], without forming the 6x6 matrix.

    It takes a gradient with respect to left perturbations exp(xi) T to one for right perturbations T exp(xi).
    """
    R, t = T[..., :3, :3], T[..., :3, 3]
    g_v, g_w = covector[..., :3], covector[..., 3:]
    columns = torch.stack([g_v, g_w - torch.linalg.cross(t, g_v)], dim=-1)  # [..., 3, 2]
    return (R.transpose(-1, -2) @ columns).transpose(-1, -2).flatten(-2)


def right_jacobian(xi: Tensor) -> Tensor:
    """J [..., 6, 6] of xi [..., 6] with exp(xi + e) = exp(xi) exp(J e) to first order."""
    v, w = xi[..., :3], xi[..., 3:]
    return _block_upper(so3.right_jacobian(w), _translation_block(-v, -w))


def transform(T: Tensor, points: Tensor) -> Tensor:
    """T [..., 4, 4] applied to points [..., P, 3]."""
    return points @ T[..., :3, :3].transpose(-1, -2) + T[..., None, :3, 3]


def mirror(T: Tensor) -> Tensor:
    """Mirror conjugate M T M of T [..., 4, 4], M = diag(-1, -1, 1, 1) (paper, section 3.4)."""
    upper, lower = T[..., :2, :].split(2, -1), T[..., 2:, :].split(2, -1)
    return torch.cat([torch.cat([upper[0], -upper[1]], -1), torch.cat([-lower[0], lower[1]], -1)], -2)


def _translation_block(v: Tensor, w: Tensor) -> Tensor:
    """Upper right block [..., 3, 3] of the left Jacobian of (v, w) (Barfoot, State Estimation, eq. 7.86)."""
    c, e, f = (k[..., None, None] for k in _block_coefficients((w * w).sum(-1)))
    V, W = so3.hat(v), so3.hat(w)  # [..., 3, 3]
    WV, VW = W @ V, V @ W
    WVW = WV @ W
    return (
        0.5 * V
        + c * (WV + VW + WVW)
        + e * (W @ WV + VW @ W - 3 * WVW)
        + f * (WVW @ W + W @ WVW)
    )  # fmt: skip


def _block_coefficients(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """C of `so3.coefficients` and the two higher coefficients of the translation block, each [...]."""
    small, x_series, x_closed, theta = so3.split_small(x)
    sin, cos = theta.sin(), theta.cos()
    e_closed = (x_closed / 2 + cos - 1) / x_closed**2
    f_closed = (2 * theta - 3 * sin + theta * cos) / (2 * theta * x_closed**2)
    closed = torch.stack([e_closed, f_closed], dim=-1)  # [..., 2]
    e, f = torch.where(small.unsqueeze(-1), so3.polynomials(_SERIES_EF, x_series), closed).unbind(-1)
    return so3.coefficients(x)[2], e, f


def _block_upper(diagonal: Tensor, corner: Tensor) -> Tensor:
    """[[diagonal, corner], [0, diagonal]] of two [..., 3, 3]."""
    top = torch.cat([diagonal, corner], dim=-1)  # [..., 3, 6]
    bottom = torch.cat([torch.zeros_like(corner), diagonal], dim=-1)  # [..., 3, 6]
    return torch.cat([top, bottom], dim=-2)
