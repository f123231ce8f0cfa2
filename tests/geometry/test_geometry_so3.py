"""Rotations: group axioms, round trips at the singular angles, Jacobians, gradients."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from scipy.spatial.transform import Rotation

from proba.geometry import so3

CRITICAL_ANGLES = [0.0, 1e-12, 1e-8, 1e-4, 0.7, math.sqrt(2.0), 1.5, 3.0, math.pi - 1e-3, math.pi - 1e-6, math.pi]
AXES = [(1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0), (0.6, -0.8, 0.0), (0.48, 0.6, -0.64)]

components = st.floats(-1, 1, allow_subnormal=False)
axes = st.tuples(components, components, components).filter(lambda a: np.linalg.norm(a) > 1e-2)
angles = st.one_of(st.sampled_from(CRITICAL_ANGLES), st.floats(0, math.pi))


@st.composite
def rotation_vectors(draw) -> torch.Tensor:
    axis = torch.tensor(draw(axes), dtype=torch.float64)
    return axis / axis.norm() * draw(angles)


def rotation_vector(axis: tuple, angle: float, dtype=torch.float64) -> torch.Tensor:
    return torch.tensor(axis, dtype=dtype) * angle


def vee(W: torch.Tensor) -> torch.Tensor:
    """Inverse of `so3.hat`, of the skew-symmetric part of W [3, 3]."""
    return 0.5 * torch.stack([W[2, 1] - W[1, 2], W[0, 2] - W[2, 0], W[1, 0] - W[0, 1]])


@given(w=rotation_vectors(), a=st.tuples(components, components, components))
def test_hat_is_the_cross_product(w, a):
    a = torch.tensor(a, dtype=torch.float64)
    torch.testing.assert_close(so3.hat(w) @ a, torch.linalg.cross(w, a))


@given(a=rotation_vectors(), b=rotation_vectors())
def test_exp_is_a_rotation_and_the_group_is_closed(a, b):
    eye = torch.eye(3, dtype=torch.float64)
    product = so3.exp(a) @ so3.exp(b)
    torch.testing.assert_close(product @ product.T, eye)
    torch.testing.assert_close(torch.linalg.det(product), torch.tensor(1.0, dtype=torch.float64))
    torch.testing.assert_close(so3.exp(a) @ so3.exp(-a), eye)
    torch.testing.assert_close(so3.exp(torch.zeros(3, dtype=torch.float64)), eye)


@given(w=rotation_vectors())
def test_exp_agrees_with_scipy(w):
    expected = Rotation.from_rotvec(w.numpy()).as_matrix()
    np.testing.assert_allclose(so3.exp(w).numpy(), expected, atol=1e-14)


@given(w=rotation_vectors())
@settings(max_examples=300)
def test_log_then_exp_gives_the_rotation_back(w):
    R = so3.exp(w)
    assert so3.log(R).norm() <= math.pi + 1e-12
    torch.testing.assert_close(so3.exp(so3.log(R)), R, rtol=0, atol=1e-14)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("angle", CRITICAL_ANGLES)
def test_exp_then_log_gives_the_vector_back(axis, angle):
    w = rotation_vector(axis, angle)
    recovered = so3.log(so3.exp(w))
    # At pi both signs of the axis are right.
    if angle == math.pi and recovered @ w < 0:
        recovered = -recovered
    torch.testing.assert_close(recovered, w, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("angle", [0.0, 1e-6, 0.3, 3.0, math.pi - 1e-4])
def test_single_precision_keeps_its_dtype_and_accuracy(axis, angle):
    w = rotation_vector(axis, angle, torch.float32)
    R = so3.exp(w)
    recovered = so3.log(R)
    assert R.dtype == recovered.dtype == so3.right_jacobian(w).dtype == torch.float32
    torch.testing.assert_close(recovered, w, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("angle", CRITICAL_ANGLES)
def test_gradients_are_finite_and_right_at_the_critical_angles(axis, angle):
    """d log(R exp(e)) / de at e = 0 is the inverse right Jacobian, at 0 and near pi too."""
    w = rotation_vector(axis, angle)
    R = so3.exp(w)
    zero = torch.zeros(3, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda e: so3.log(R @ so3.exp(e)), zero)
    torch.testing.assert_close(jacobian, so3.right_jacobian_inverse(so3.log(R)), rtol=1e-8, atol=1e-8)


@given(w=rotation_vectors())
def test_right_jacobian_is_the_derivative_of_exp(w):
    R_inverse = so3.exp(w).T
    zero = torch.zeros(3, dtype=torch.float64)
    derivative = torch.autograd.functional.jacobian(lambda e: vee(R_inverse @ so3.exp(w + e)), zero)
    torch.testing.assert_close(so3.right_jacobian(w), derivative, rtol=0, atol=1e-12)


@given(w=rotation_vectors())
def test_right_jacobian_inverse_is_its_inverse(w):
    product = so3.right_jacobian(w) @ so3.right_jacobian_inverse(w)
    torch.testing.assert_close(product, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-12)


def test_series_and_closed_form_meet_at_the_bounds():
    for bound in (0.5, 2.0):
        below, above = (torch.tensor([math.sqrt(bound * (1 + s)), 0, 0], dtype=torch.float64) for s in (-1e-12, 1e-12))
        for function in (so3.exp, so3.right_jacobian, so3.right_jacobian_inverse):
            torch.testing.assert_close(function(below), function(above), rtol=0, atol=1e-11)


@given(w=rotation_vectors())
def test_quaternions_agree_with_scipy(w):
    R = so3.exp(w)
    q = so3.to_quaternion(R)
    x, y, z, s = Rotation.from_matrix(R.numpy()).as_quat()
    assert q[0] >= 0
    np.testing.assert_allclose(abs(q.numpy() @ np.array([s, x, y, z])), 1, atol=1e-14)


@given(w=rotation_vectors(), noise=st.lists(st.floats(-0.1, 0.1), min_size=9, max_size=9))
def test_project_returns_the_nearest_rotation(w, noise):
    M = so3.exp(w) + torch.tensor(noise, dtype=torch.float64).reshape(3, 3)
    nearest = so3.project(M)
    torch.testing.assert_close(nearest @ nearest.T, torch.eye(3, dtype=torch.float64))
    assert torch.linalg.det(nearest) > 0
    for direction in torch.eye(3, dtype=torch.float64):
        for step in (-1e-2, 1e-2):
            assert (nearest - M).norm() <= (nearest @ so3.exp(step * direction) - M).norm() + 1e-12


def test_project_never_returns_a_reflection():
    M = torch.diag(torch.tensor([1.0, 1.0, -0.9]))
    assert torch.linalg.det(so3.project(M)) > 0.99


def test_leading_dimensions_are_batched():
    w = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for function in (so3.exp, so3.right_jacobian, so3.right_jacobian_inverse):
        assert function(w).shape == (2, 5, 3, 3)
        torch.testing.assert_close(function(w)[1, 3], function(w[1, 3]))
    assert so3.to_quaternion(so3.exp(w)).shape == (2, 5, 4)
    torch.testing.assert_close(so3.log(so3.exp(w))[0, 2], so3.log(so3.exp(w[0, 2])))
