"""Rigid motions: group axioms, round trips, adjoint, Jacobian, mirror."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from proba.geometry import se3, so3

ANGLES = [0.0, 1e-12, 1e-8, 1e-3, 1.0, math.sqrt(2.0), 2.5, math.pi - 1e-6]

components = st.floats(-1, 1, allow_subnormal=False)
vectors = st.tuples(components, components, components)
axes = vectors.filter(lambda a: np.linalg.norm(a) > 1e-2)
angles = st.one_of(st.sampled_from(ANGLES), st.floats(0, 3.1))


@st.composite
def twists(draw) -> torch.Tensor:
    axis = torch.tensor(draw(axes), dtype=torch.float64)
    v = 5 * torch.tensor(draw(vectors), dtype=torch.float64)
    return torch.cat([v, axis / axis.norm() * draw(angles)])


def close(actual: torch.Tensor, expected: torch.Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@given(a=twists(), b=twists(), c=twists())
def test_group_axioms(a, b, c):
    A, B, C = se3.exp(a), se3.exp(b), se3.exp(c)
    eye = torch.eye(4, dtype=torch.float64)
    close((A @ B) @ C, A @ (B @ C))
    close(A @ se3.inverse(A), eye)
    close(se3.inverse(A) @ A, eye)
    close(se3.inverse(A @ B), se3.inverse(B) @ se3.inverse(A))
    close(se3.exp(-a), se3.inverse(A))


@given(xi=twists())
def test_exp_is_the_matrix_exponential(xi):
    generator = torch.zeros(4, 4, dtype=torch.float64)
    generator[:3, :3], generator[:3, 3] = so3.hat(xi[3:]), xi[:3]
    close(se3.exp(xi), torch.linalg.matrix_exp(generator), atol=1e-13)


@given(xi=twists())
@settings(max_examples=300)
def test_exp_log_round_trips(xi):
    T = se3.exp(xi)
    close(se3.log(T), xi, atol=1e-11)
    close(se3.exp(se3.log(T)), T)


def test_round_trip_at_a_half_turn():
    for axis in torch.eye(3, dtype=torch.float64):
        T = se3.exp(torch.cat([torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), math.pi * axis]))
        close(se3.exp(se3.log(T)), T)


@given(a=twists(), xi=twists())
def test_adjoint_moves_a_twist_from_right_to_left(a, xi):
    T = se3.exp(a)
    close(T @ se3.exp(xi), se3.exp(se3.adjoint(T) @ xi) @ T, atol=1e-10)


@given(a=twists(), b=twists(), g=twists())
def test_adjoint_is_a_homomorphism_and_coadjoint_its_transpose(a, b, g):
    A, B = se3.exp(a), se3.exp(b)
    close(se3.adjoint(A @ B), se3.adjoint(A) @ se3.adjoint(B), atol=1e-11)
    close(se3.coadjoint(A, g), se3.adjoint(A).T @ g, atol=1e-11)


@given(xi=twists())
def test_right_jacobian_is_the_derivative_of_exp(xi):
    T_inverse = se3.inverse(se3.exp(xi))
    zero = torch.zeros(6, dtype=torch.float64)
    local = lambda e: se3.log(T_inverse @ se3.exp(xi + e))
    close(se3.right_jacobian(xi), torch.autograd.functional.jacobian(local, zero), atol=1e-10)


@pytest.mark.parametrize("angle", ANGLES)
def test_right_jacobian_against_finite_differences(angle):
    xi = torch.tensor([0.3, -2.0, 1.1, 0.48 * angle, 0.6 * angle, -0.64 * angle], dtype=torch.float64)
    T_inverse, h = se3.inverse(se3.exp(xi)), 1e-6
    columns = [
        (se3.log(T_inverse @ se3.exp(xi + h * e)) - se3.log(T_inverse @ se3.exp(xi - h * e))) / (2 * h)
        for e in torch.eye(6, dtype=torch.float64)
    ]
    close(se3.right_jacobian(xi), torch.stack(columns, dim=1), atol=1e-8)


def test_single_precision_jacobian_has_no_cancellation():
    for angle in torch.logspace(-6, math.log10(3.0), 40, dtype=torch.float64):
        xi = torch.tensor([1.0, -2.0, 0.5, 0.48, 0.6, -0.64], dtype=torch.float64)
        xi[3:] *= angle
        single = se3.right_jacobian(xi.float())
        assert single.dtype == torch.float32
        close(single.double(), se3.right_jacobian(xi), atol=2e-6)


@given(xi=twists())
def test_mirror_is_a_sign_flip_of_the_twist(xi):
    M = torch.diag(torch.tensor([-1.0, -1.0, 1.0, 1.0], dtype=torch.float64))
    T = se3.exp(xi)
    close(se3.mirror(T), M @ T @ M, atol=0)
    close(se3.log(se3.mirror(T)), torch.tensor(se3.MIRROR_SIGNS, dtype=torch.float64) * se3.log(T), atol=1e-10)


@given(a=twists(), b=twists())
def test_transform_is_a_group_action(a, b):
    A, B = se3.exp(a), se3.exp(b)
    points = torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.0, 0.5]], dtype=torch.float64)
    close(se3.transform(A @ B, points), se3.transform(A, se3.transform(B, points)), atol=1e-11)
    homogeneous = torch.cat([points, torch.ones(2, 1, dtype=torch.float64)], dim=1)
    close(se3.transform(A, points), (homogeneous @ A.T)[:, :3])


def test_leading_dimensions_and_gradients_at_zero():
    xi = torch.zeros(2, 3, 6, requires_grad=True)
    T = se3.exp(xi)
    assert T.shape == (2, 3, 4, 4) and T.dtype == torch.float32
    assert se3.adjoint(T).shape == se3.right_jacobian(xi).shape == (2, 3, 6, 6)
    assert se3.transform(T, torch.ones(2, 3, 7, 3)).shape == (2, 3, 7, 3)
    (gradient,) = torch.autograd.grad(se3.log(T).sum(), xi)
    close(gradient, torch.ones_like(gradient), atol=1e-6)
