"""The scalar closed forms against numpy and against autograd of the textbook formulas."""

from math import floor

import numba as nb
import numpy as np
import pytest
import torch
from llvmlite.binding import get_host_cpu_features

from proba.kernels import math as closed
from proba.kernels.simd import WIDTH, lane_sums, load, load_first, select, store
from proba.objective import terms

DOUBLE = torch.float64


@nb.njit
def _check_whole(x):
    if len(x) % WIDTH:
        raise ValueError("whole vectors only")


@nb.njit
def _map_exp(x):
    _check_whole(x)
    out = np.empty_like(x)
    for k in range(0, len(x), WIDTH):
        store(out, k, closed.exp(load(x, k)))
    return out


@nb.njit
def _map_log(x):
    _check_whole(x)
    out = np.empty_like(x)
    for k in range(0, len(x), WIDTH):
        store(out, k, closed.log(load(x, k)))
    return out


@nb.njit
def _map_posterior(x, level):
    _check_whole(x)
    robust, inlier = np.empty_like(x), np.empty_like(x)
    for k in range(0, len(x), WIDTH):
        least, both, i = closed.posterior(load(x, k), level)
        store(robust, k, least - closed.log(both))
        store(inlier, k, i)
    return robust, inlier


@nb.njit
def _map_reprojection(values, precision, z_min):
    """Of q and o in the rows of values [5, WIDTH]; returns the nine results, [9, WIDTH]."""
    out = np.empty(9 * WIDTH, np.float32)
    q_x, q_y, q_z = load(values[0], 0), load(values[1], 0), load(values[2], 0)
    o_x, o_y = load(values[3], 0), load(values[4], 0)
    inverse_norm, inverse_z = closed.inverses(q_x, q_y, q_z, z_min)
    results = closed.reprojection(q_x, q_y, q_z, o_x, o_y, load(precision, 0), z_min, inverse_norm, inverse_z)
    for k, result in enumerate(results):
        store(out, WIDTH * k, result)
    return out.reshape(9, WIDTH)


@nb.njit
def _reprojection(q, o, precision, z_min):
    inverse_norm, inverse_z = closed.inverses(q[0], q[1], q[2], z_min)
    return closed.reprojection(q[0], q[1], q[2], o[0], o[1], precision, z_min, inverse_norm, inverse_z)


def test_exp():
    x = np.linspace(-40, 40, 200_000).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    assert np.max(np.abs(_map_exp(x) / exact - 1)) < 4e-7


def test_log():
    x = np.exp(np.linspace(-80, 80, 200_000)).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    assert np.max(np.abs(_map_log(x) - exact) / np.maximum(np.abs(exact), 1)) < 2e-7


def test_lanes_become_vector_instructions():
    if not get_host_cpu_features().get("fma"):
        pytest.skip("this processor has no fused multiply-add")
    _map_exp(np.ones(WIDTH, np.float32))
    assembly = next(iter(_map_exp.inspect_asm().values()))
    assert any("ymm" in line or "zmm" in line for line in assembly.splitlines() if "vfmadd" in line)


@pytest.mark.parametrize("level", [-3.0, 20.0, 1000.0])
def test_posterior(level):
    losses = [-1e6, -90.0, level - 50, level - 1, level, level + 1, level + 50, 1e7]
    loss = np.tile(np.float32(losses), WIDTH // 8)  # whole vectors
    robust, inlier = _map_posterior(loss, np.float32(level))
    exact = torch.tensor(loss, dtype=DOUBLE)[None, None]
    expected_robust, expected_inlier = terms.inlier_posterior(exact, torch.tensor([level], dtype=DOUBLE))
    np.testing.assert_allclose(robust, expected_robust[0, 0], rtol=2e-7, atol=1e-6)
    np.testing.assert_allclose(inlier, expected_inlier[0, 0], rtol=1e-6, atol=1e-20)


def test_2d_closed_form_is_the_textbook_formula():
    """maha = |q x o|^2 q_z^2 / (|q|^2 v): no inverse of J J^T; and all of its derivatives."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        q = rng.normal([0, 0, 1.5], 0.5)
        observed, log_variance, log_tan = rng.uniform(-1, 1, 2), rng.normal(-2, 1), rng.normal(-0.5, 0.2, 2)
        leaves = [torch.tensor(v, dtype=DOUBLE, requires_grad=True) for v in (q, observed, log_variance)]
        point, ray, log_v = leaves
        tan = torch.tensor(log_tan, dtype=DOUBLE).exp()
        gaussian = terms.Gaussian(point.detach(), point.detach(), log_v.reshape(1, 1, 1), None)
        loss = terms.reprojection_nll(
            point.reshape(1, 1, 3, 1),
            (ray[0] / tan[0]).reshape(1, 1),
            (ray[1] / tan[1]).reshape(1, 1),
            torch.tensor(log_tan, dtype=DOUBLE).reshape(1, 1, 2),
            gaussian,
            torch.eye(3, dtype=DOUBLE)[None, None],
            z_min=0.02,
        )
        g_q, g_o, g_v = torch.autograd.grad(loss.sum(), leaves)
        front, maha, density, along_q, *gradient = _reprojection(
            q.astype(np.float32), observed.astype(np.float32), np.float32(np.exp(-log_variance)), np.float32(0.02)
        )
        value = front * (maha / 2 + log_variance - log_tan.sum()) - np.log(density) / 2
        np.testing.assert_allclose(value, loss.item(), rtol=1e-5, atol=1e-5)
        expected = torch.cat((g_q, g_o)).numpy()
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        np.testing.assert_allclose(along_q, q @ expected[:3], rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        np.testing.assert_allclose(front - maha / 2, g_v.item(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("q_z", [-1.0, 0.0, 0.0199])
def test_2d_term_is_zero_behind_the_camera(q_z):
    q, o = np.array([0.3, 0.1, q_z], np.float32), np.array([0.2, 0.2], np.float32)
    front, maha, density, along_q, *gradient = _reprojection(q, o, np.float32(1e5), np.float32(0.02))
    assert front == 0 and maha == 0 and along_q == 0 and np.log(density) == 0
    assert not np.any(gradient)


def test_lanes_and_numbers_give_the_same():
    """A GPU thread works on numbers, the CPU on lanes."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(5, WIDTH)).astype(np.float32)
    precision, z_min = rng.uniform(0.1, 10, WIDTH).astype(np.float32), np.float32(0.3)
    assert (values[2] < z_min).any() and (values[2] > z_min).any()
    lanes = _map_reprojection(values, precision, z_min)
    for k in range(WIDTH):
        number = _reprojection(values[:3, k].copy(), values[3:, k].copy(), precision[k], z_min)
        np.testing.assert_allclose(lanes[:, k], number, rtol=2e-6, atol=2e-6)


@nb.njit
def _operations(x, y, count):
    out = np.empty(8 * WIDTH, np.float32)
    a, b, one = load(x, 0), load(y, 0), np.float32(1)
    results = (min(a, b), max(a, one), -a / b, abs(a), floor(a), select(a >= b, a, b), select(a < one, one, a))
    for k, result in enumerate(results):
        store(out, k * WIDTH, result)
    store(out, 7 * WIDTH, load_first(x, 0, count))
    return out.reshape(8, WIDTH)


@pytest.mark.parametrize("count", [1, 7, 8, 20])
def test_operations_on_lanes(count):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, WIDTH)).astype(np.float32)
    results = _operations(x, y, count)
    first = np.where(np.arange(WIDTH) < count, x, 0)
    expected = (
        np.minimum(x, y),
        np.maximum(x, 1),
        -x / y,
        abs(x),
        np.floor(x),
        np.maximum(x, y),
        np.maximum(x, 1),
        first,
    )
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_array_equal(got, want)


@nb.njit
def _sums(x):
    out = np.empty(WIDTH, np.float32)
    store(out, 0, lane_sums(x, 0))
    return out


def test_sums_over_lanes():
    x = np.random.default_rng(3).normal(size=(WIDTH, WIDTH)).astype(np.float32)
    np.testing.assert_allclose(_sums(x.reshape(-1)), x.sum(axis=1), rtol=1e-5, atol=1e-6)
