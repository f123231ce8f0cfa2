"""Each term against a second derivation of the same quantity."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from proba.geometry import se3
from proba.objective import terms

DOUBLE = torch.float64


def random_gaussian(channels: int, matches: int = 7, seed: int = 0) -> terms.Gaussian:
    random = torch.Generator().manual_seed(seed)
    x, y = torch.rand(2, 1, matches, generator=random, dtype=DOUBLE) - 0.5
    sampled = torch.randn(1, 1, channels, matches, generator=random, dtype=DOUBLE) * 0.5
    return terms.unproject(x, y, torch.tensor([[[-0.4, -0.6]]], dtype=DOUBLE), sampled)


@pytest.mark.parametrize("cells", [1, 2, 5, 32])
def test_sample_maps_is_grid_sample(cells):
    torch.manual_seed(0)
    maps = torch.randn(2, 3, cells + 1, cells + 1, 2, dtype=DOUBLE)
    extent = torch.tensor([[1.0, 0.5], [0.75, 1.0], [1.0, 1.0]], dtype=DOUBLE)
    image = torch.tensor([0, 2, 1, 1])
    x, y = 2.4 * torch.rand(2, 4, 50, dtype=DOUBLE) - 1.2  # some outside the image
    sampled = terms.sample_maps(maps, image, x, y, extent)  # [2, 4, 2, 50]
    for b in range(2):
        for e, n in enumerate(image):
            grid = torch.stack((x[e] / extent[n, 0], y[e] / extent[n, 1]), dim=-1)[None, None]  # [1, 1, 50, 2]
            cell_values = maps[b, n, :cells, :cells].movedim(-1, 0)[None]  # [1, 2, L, L]
            expected = torch.nn.functional.grid_sample(cell_values, grid, padding_mode="border", align_corners=False)
            torch.testing.assert_close(sampled[b, e], expected[0, :, 0])


def test_unproject_then_project_is_the_identity():
    x, y = torch.tensor([[0.3, -0.2]], dtype=DOUBLE), torch.tensor([[0.1, 0.9]], dtype=DOUBLE)
    log_tan = torch.tensor([[[math.log(0.5), math.log(0.7)]]], dtype=DOUBLE)
    gaussian = terms.unproject(x, y, log_tan, torch.tensor([[[[0.5, 1.0], [0.0, 0.0]]]], dtype=DOUBLE))
    p = gaussian.mean[0, 0]
    torch.testing.assert_close(p[0] / p[2] / 0.5, x[0])
    torch.testing.assert_close(p[1] / p[2] / 0.7, y[0])
    torch.testing.assert_close(p[2], torch.tensor([0.5, 1.0], dtype=DOUBLE).exp())


@pytest.mark.parametrize("channels", [2, 8])
def test_reprojection_is_the_normal_density_of_the_projected_gaussian(channels):
    gaussian = random_gaussian(channels)
    pose = se3.exp(torch.tensor([0.1, -0.2, 0.3, 0.2, 0.1, -0.3], dtype=DOUBLE))
    rotation = pose[None, None, :3, :3]
    point = rotation @ gaussian.mean + pose[:3, 3:]
    log_tan = torch.tensor([[[-0.3, -0.5]]], dtype=DOUBLE)
    x, y = 0.3 * torch.ones(1, 7, dtype=DOUBLE), -0.1 * torch.ones(1, 7, dtype=DOUBLE)
    loss = terms.reprojection_nll(point, x, y, log_tan, gaussian, rotation, z_min=0.02)
    sigma = terms.covariance(gaussian)
    for k in range(7):
        project = lambda p: p[:2] / p[2] * (-log_tan[0, 0]).exp()
        jacobian = torch.autograd.functional.jacobian(project, point[0, 0, :, k])  # [2, 3]
        sigma_2d = jacobian @ (pose[:3, :3] @ sigma[0, 0, k] @ pose[:3, :3].T) @ jacobian.T
        density = MultivariateNormal(project(point[0, 0, :, k]), sigma_2d)
        expected = -density.log_prob(torch.stack((x[0, k], y[0, k]))) - math.log(2 * math.pi)
        torch.testing.assert_close(loss[0, 0, k], expected)


@pytest.mark.parametrize("channels", [2, 8])
def test_overlap_is_the_normal_density_of_the_difference(channels):
    gaussian_i, gaussian_j = random_gaussian(channels, seed=1), random_gaussian(channels, seed=2)
    pose = se3.exp(torch.tensor([0.1, -0.2, 0.3, 0.2, 0.1, -0.3], dtype=DOUBLE))
    rotation = pose[None, None, :3, :3]
    i_in_j = rotation @ gaussian_i.mean + pose[:3, 3:]
    loss = terms.overlap_nll(i_in_j, gaussian_i, gaussian_j, rotation)
    sigma = pose[:3, :3] @ terms.covariance(gaussian_i)[0, 0] @ pose[:3, :3].T + terms.covariance(gaussian_j)[0, 0]
    density = MultivariateNormal(gaussian_j.mean[0, 0].T, sigma)
    expected = -density.log_prob(i_in_j[0, 0].T) - 1.5 * math.log(2 * math.pi)
    torch.testing.assert_close(loss[0, 0], expected)


def test_equal_axes_make_the_anisotropic_gaussian_isotropic():
    torch.manual_seed(0)
    log_variance = torch.randn(1, 1, 7, dtype=DOUBLE)
    mean, log_depth = torch.randn(1, 1, 3, 7, dtype=DOUBLE), torch.randn(1, 1, 7, dtype=DOUBLE)
    quaternion = torch.randn(1, 1, 4, 7, dtype=DOUBLE)
    isotropic = terms.Gaussian(mean, log_depth, log_variance, None)
    anisotropic = terms.Gaussian(mean, log_depth, log_variance[:, :, None].expand(1, 1, 3, 7), quaternion)
    torch.testing.assert_close(terms.covariance(anisotropic), terms.covariance(isotropic))


def test_neutral_measure_does_not_reward_a_smaller_scene():
    """L_3D of a scene shrunk with its variances: `paper` falls for ever, `neutral` stays."""
    gaussian_i, gaussian_j = random_gaussian(2, seed=1), random_gaussian(2, seed=2)
    log_tan = torch.zeros(1, 1, 2, dtype=DOUBLE)
    rotation = torch.eye(3, dtype=DOUBLE)[None, None]

    def losses(log_scale: float) -> tuple[torch.Tensor, torch.Tensor]:
        i, j = (
            terms.Gaussian(g.mean * math.exp(log_scale), g.log_depth + log_scale, g.log_variance + 2 * log_scale, None)
            for g in (gaussian_i, gaussian_j)
        )
        overlap = terms.overlap_nll(i.mean, i, j, rotation)
        return overlap, overlap + terms.volume_measure(i.log_depth, j.log_depth, log_tan, log_tan)

    paper, neutral = losses(0.0)
    smaller_paper, smaller_neutral = losses(-2.0)
    assert (smaller_paper < paper - 1).all()
    torch.testing.assert_close(smaller_neutral, neutral)


def test_point_behind_the_camera_has_neither_loss_nor_gradient():
    gaussian = random_gaussian(2)
    point = gaussian.mean.clone()
    point[..., 2, :4] = torch.tensor([-1.0, 0.0, 0.0199, -1e-30], dtype=DOUBLE)
    point.requires_grad_()
    x = y = torch.zeros(1, 7, dtype=DOUBLE)
    log_tan = torch.zeros(1, 1, 2, dtype=DOUBLE)
    rotation = torch.eye(3, dtype=DOUBLE)[None, None]
    loss = terms.reprojection_nll(point, x, y, log_tan, gaussian, rotation, z_min=0.02)
    loss.sum().backward()
    assert (loss[..., :4] == 0).all() and (loss[..., 4:] != 0).all()
    assert (point.grad[..., :4] == 0).all() and point.grad.isfinite().all()


def test_inlier_posterior():
    nll = torch.tensor([[[-50.0, 3.0, 5.0, 2000.0]]], dtype=DOUBLE, requires_grad=True)
    robust, inlier = terms.inlier_posterior(nll, torch.tensor([5.0]))
    torch.testing.assert_close(robust[0, 0, 2], torch.tensor(5 - math.log(2), dtype=DOUBLE))
    torch.testing.assert_close(robust[0, 0, 3], torch.tensor(5.0, dtype=DOUBLE))
    (gradient,) = torch.autograd.grad(robust.sum(), nll)
    torch.testing.assert_close(gradient, inlier)
    robust, inlier = terms.inlier_posterior(nll, torch.tensor([math.inf]))
    torch.testing.assert_close(robust, nll)
    assert (inlier == 1).all()
