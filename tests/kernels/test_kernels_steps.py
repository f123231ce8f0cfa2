"""Optimiser steps against torch."""

import numpy as np
import pytest
import torch

from proba.geometry import se3
from proba.kernels import adamw
from proba.kernels.maps import move_maps
from proba.kernels.poses import twist_gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_direction_is_that_of_torch_adamw(dtype):
    generator = torch.Generator().manual_seed(0)
    parameter = torch.zeros(50, dtype=dtype, requires_grad=True)
    optimiser = torch.optim.AdamW([parameter], lr=1.0, betas=(0.9, 0.99), eps=adamw.EPS, weight_decay=0.0)
    first, second = np.zeros(50, parameter.detach().numpy().dtype), np.zeros(50, parameter.detach().numpy().dtype)
    for count in range(1, 8):
        grad = torch.randn(50, generator=generator, dtype=dtype)
        before = parameter.detach().clone()
        parameter.grad = grad.clone()
        optimiser.step()
        step = grad.numpy().copy()
        adamw.direction(step, first, second, beta1=0.9, beta2=0.99, count=count)
        np.testing.assert_allclose(step, (before - parameter.detach()).numpy(), rtol=2e-5, atol=2e-6)


def test_maps_move_then_lose_their_mean_depth_and_keep_their_padding():
    rng = np.random.default_rng(0)
    maps = np.zeros((2, 3, 5, 5, 2), np.float32)
    maps[:, :, :4, :4] = rng.normal(size=(2, 3, 4, 4, 2))
    before, direction = maps.copy(), rng.normal(size=maps.shape).astype(np.float32)
    shift = move_maps(maps, direction, depth_rate=0.1, variance_rate=0.2, decay=0.5)
    moved = before[:, :, :4, :4] - np.float32([0.1, 0.2]) * (direction + 0.5 * before)[:, :, :4, :4]
    np.testing.assert_allclose(shift, moved[..., 0].mean((1, 2, 3)), rtol=1e-5)
    expected = moved - shift[:, None, None, None, None] * [1, 2]
    np.testing.assert_allclose(maps[:, :, :4, :4], expected, atol=1e-5)
    assert not maps[:, :, 4].any() and not maps[:, :, :, 4].any()


def test_maps_stay_within_bounds():
    maps = np.zeros((1, 1, 3, 3, 2), np.float32)
    direction = np.zeros_like(maps)
    direction[0, 0, 0, 0] = 1
    direction[0, 0, 1, 1] = -1
    move_maps(maps, direction, depth_rate=100, variance_rate=100, decay=0)
    assert np.abs(maps[..., 0]).max() == 5
    assert maps[..., 1].min() == -18 and maps[..., 1].max() == 6


def test_without_gauge_maps_move_and_keep_their_mean():
    rng = np.random.default_rng(0)
    maps, direction = (rng.normal(size=(2, 3, 5, 5, 2)).astype(np.float32) for _ in range(2))
    maps[:, :, 4], maps[:, :, :, 4] = 0, 0
    before = maps.copy()
    shift = move_maps(maps, direction, depth_rate=0.1, variance_rate=0.2, decay=0, gauge=False)
    expected = (before - np.float32([0.1, 0.2]) * direction)[:, :, :4, :4]
    np.testing.assert_allclose(maps[:, :, :4, :4], expected, atol=1e-6)
    assert not shift.any() and abs(maps[:, :, :4, :4, 0].mean()) > 1e-3


@pytest.mark.parametrize("angle", [0.0, 1e-4, 0.19, 0.21, 1.5, 3.0])
def test_gradient_of_a_twist_is_that_of_the_right_jacobian(angle):
    generator = torch.Generator().manual_seed(1)
    twist, grad = (torch.randn(2, 9, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    twist[..., 3:] *= angle / twist[..., 3:].norm(dim=-1, keepdim=True)
    expected = (se3.right_jacobian(twist).mT @ grad[..., None])[..., 0]
    torch.testing.assert_close(twist_gradient(twist, grad), expected, rtol=1e-11, atol=1e-11)
