"""Rotations: exponential, logarithm, Jacobians, quaternions. Batched, differentiable, stable at 0 and pi."""

from __future__ import annotations

from math import factorial

import torch
from torch import Tensor

# Below this squared angle (rad^2) ten Taylor terms are exact to double precision, and free of cancellation.
_SERIES_BOUND = 2.0
_N_TERMS = 10
# Row k: coefficients of x^k, x = angle^2, of A, B and C of `coefficients`.
_SERIES_ABC = [[(-1) ** k / factorial(2 * k + n) for n in (1, 2, 3)] for k in range(_N_TERMS)]
# |Bernoulli(2k + 2)| / (2k + 2)!, of a series that converges more slowly.
_SERIES_D_BOUND = 0.5
_SERIES_D = [
    [1 / 12],
    [1 / 720],
    [1 / 30240],
    [1 / 1209600],
    [1 / 47900160],
    [691 / 1307674368000],
    [1 / 74724249600],
    [3617 / 10670622842880000],
]


def hat(w: Tensor) -> Tensor:
    """Cross-product matrix of w [..., 3]: hat(w) @ a = w x a. Returns [..., 3, 3]."""
    x, y, z = w.unbind(-1)
    o = torch.zeros_like(x)
    return torch.stack([o, -z, y, z, o, -x, -y, x, o], dim=-1).unflatten(-1, (3, 3))


def polynomials(series: list[list[float]], x: Tensor) -> Tensor:
    """sum_k series[k][p] x^k of x [...] by Horner's rule, for all P polynomials at once. Returns [..., P]."""
    coefficient = torch.tensor(series, dtype=x.dtype, device=x.device)  # [K, P]
    x = x.unsqueeze(-1)  # [..., 1]
    value = coefficient[-1]  # [P]
    for c in coefficient[:-1].flip(0).unbind(0):
        value = torch.addcmul(c, value, x)  # [..., P]
    return value


def split_small(x: Tensor, bound: float = _SERIES_BOUND) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For squared angles x: whether to use the series, x for the series, x and the angle for the closed form.

    Each branch gets a harmless argument where the other one is used, so that no gradient becomes NaN.
    """
    small = x < bound
    x_closed = x.masked_fill(small, 1.0)
    return small, x.masked_fill(~small, 0.0), x_closed, x_closed.sqrt()


def coefficients(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rodrigues coefficients of the squared angle x [...], theta = sqrt(x), each [...].

    A = sin(theta) / theta, B = (1 - cos(theta)) / theta^2, C = (theta - sin(theta)) / theta^3.
    """
    small, x_series, x_closed, theta = split_small(x)
    a = theta.sin() / theta
    closed = torch.stack([a, (1 - theta.cos()) / x_closed, (1 - a) / x_closed], dim=-1)  # [..., 3]
    a, b, c = torch.where(small.unsqueeze(-1), polynomials(_SERIES_ABC, x_series), closed).unbind(-1)
    return a, b, c


def linear_in_hat(w: Tensor, identity: Tensor, skew: Tensor, outer: Tensor) -> Tensor:
    """identity * I + skew * hat(w) + outer * w w^T [..., 3, 3] for w [..., 3] and three scalars [...].

    With hat(w)^2 = w w^T - |w|^2 I, every Rodrigues formula has this form and needs no matrix product.
    """
    eye = torch.eye(3, dtype=w.dtype, device=w.device)
    w_outer = (outer.unsqueeze(-1) * w).unsqueeze(-1) * w.unsqueeze(-2)  # [..., 3, 3]
    return identity[..., None, None] * eye + hat(skew.unsqueeze(-1) * w) + w_outer


def exp(w: Tensor) -> Tensor:
    """Rotation matrix [..., 3, 3] of the rotation vector w [..., 3]."""
    x = (w * w).sum(-1)
    a, b, _ = coefficients(x)
    return linear_in_hat(w, 1 - b * x, a, b)


def log(R: Tensor) -> Tensor:
    """Rotation vector [..., 3], of length at most pi, of R [..., 3, 3].

    It goes through the quaternion, where neither 0 nor pi is a singular point. At pi the axis has two signs;
    one of them is returned, and the gradient is that of its branch.
    """
    q = to_quaternion(R)  # [..., 4], w >= 0
    w, v = q[..., 0], q[..., 1:]
    s2 = (v * v).sum(-1)  # squared sine of half the angle
    small = s2 < 1e-12
    s = s2.masked_fill(small, 1.0).sqrt()
    # atan(s / w) / s; its series in s^2 / w^2 needs two terms only so close to zero.
    w_series = w.masked_fill(~small, 1.0)
    near_zero = (1 - s2 / (3 * w_series.square())) / w_series
    half_angle_over_sine = torch.where(small, near_zero, torch.atan2(s, w) / s)
    return 2 * half_angle_over_sine[..., None] * v


def right_jacobian(w: Tensor) -> Tensor:
    """J [..., 3, 3] of w [..., 3] with exp(w + e) = exp(w) exp(J e) to first order."""
    a, b, c = coefficients((w * w).sum(-1))
    return linear_in_hat(w, a, -b, c)


def right_jacobian_inverse(w: Tensor) -> Tensor:
    """Inverse of `right_jacobian`, [..., 3, 3]; it exists for angles below 2 pi."""
    x = (w * w).sum(-1)
    d = _inverse_coefficient(x)
    return linear_in_hat(w, 1 - d * x, torch.full_like(d, 0.5), d)


def project(M: Tensor) -> Tensor:
    """Rotation [..., 3, 3] nearest to M [..., 3, 3] in the Frobenius norm."""
    U, _, Vh = torch.linalg.svd(M)
    sign = torch.linalg.det(U @ Vh).sign()  # [...]
    signs = torch.stack([torch.ones_like(sign), torch.ones_like(sign), sign], dim=-1)  # [..., 3]
    return (U * signs[..., None, :]) @ Vh


def to_quaternion(R: Tensor) -> Tensor:
    """Unit quaternion (w, x, y, z) [..., 4] of R [..., 3, 3], with w >= 0.

    The rows of 4 q q^T are linear in R; the one with the largest diagonal entry is normalised.
    """
    (r00, r01, r02), (r10, r11, r12), (r20, r21, r22) = (row.unbind(-1) for row in R.unbind(-2))
    wx, wy, wz = r21 - r12, r02 - r20, r10 - r01
    xy, xz, yz = r01 + r10, r02 + r20, r12 + r21
    outer = torch.stack(
        [
            torch.stack([1 + r00 + r11 + r22, wx, wy, wz], dim=-1),
            torch.stack([wx, 1 + r00 - r11 - r22, xy, xz], dim=-1),
            torch.stack([wy, xy, 1 - r00 + r11 - r22, yz], dim=-1),
            torch.stack([wz, xz, yz, 1 - r00 - r11 + r22], dim=-1),
        ],
        dim=-2,
    )  # [..., 4, 4]
    largest = outer.detach().diagonal(dim1=-2, dim2=-1).argmax(-1)  # [...]
    row = outer.gather(-2, largest[..., None, None].expand(*largest.shape, 1, 4)).squeeze(-2)  # [..., 4]
    row = torch.where(row[..., :1] < 0, -row, row)
    return row / row.norm(dim=-1, keepdim=True)


def _inverse_coefficient(x: Tensor) -> Tensor:
    """(1 - A / (2 B)) / theta^2 of the squared angle x [...], with A and B as in `coefficients`."""
    small, x_series, x_closed, theta = split_small(x, _SERIES_D_BOUND)
    half_cot = theta * theta.sin() / (2 * (1 - theta.cos()))  # A / (2 B)
    return torch.where(small, polynomials(_SERIES_D, x_series).squeeze(-1), (1 - half_cot) / x_closed)
