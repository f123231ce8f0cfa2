"""Windows, averages and gradients of the reference objective."""

import math
from dataclasses import replace

import pytest
import torch

from proba.bench.kernel import random_problem
from proba.objective import ObjectiveOptions, PackedMatches, edge_losses, evaluate, world_losses

DOUBLE = torch.float64


def packed_ramp(count: list[int]) -> PackedMatches:
    """Matches whose x_i is their own index."""
    size, total = torch.tensor(count), sum(count)
    ramp = torch.arange(total, dtype=torch.float32)
    return PackedMatches(
        edges=torch.tensor([[0, 1]] * len(count), dtype=torch.int32),
        offset=size.cumsum(0) - size,
        count=size,
        x_i=ramp,
        y_i=ramp,
        x_j=ramp,
        y_j=ramp,
        extent=torch.ones(2, 2),
    )


def test_window_wraps_around_within_its_edge():
    window = packed_ramp([5, 3, 0, 1]).window(torch.tensor([3, 0, 0, 0]), 4)
    assert window.size.tolist() == [4, 3, 0, 1]
    rows = [window.x_i[e][window.inside[e]].tolist() for e in range(4)]
    assert rows == [[3, 4, 0, 1], [5, 6, 7], [], [8]]


def test_window_of_nothing():
    window = packed_ramp([0, 0]).window(torch.tensor([0, 0]), 4)
    assert window.size.tolist() == [0, 0] and window.x_i.shape == (2, 0)


@pytest.mark.parametrize("options", [ObjectiveOptions(), ObjectiveOptions(gaussians="anisotropic", measure="paper")])
def test_gradients_agree_with_finite_differences(options):
    channels = 2 if options.gaussians == "isotropic" else 8
    problem = random_problem(
        images=3, edges=3, matches=[4, 0, 3], worlds=1, cells=2, batch=3, channels=channels, dtype=DOUBLE
    )
    result = evaluate(problem, options)
    matches = problem.packed.window(problem.start, problem.batch)

    def loss(maps, log_tan, j_from_i):
        values = edge_losses(
            matches,
            problem.packed.edges,
            problem.packed.extent,
            maps,
            log_tan,
            j_from_i,
            problem.outlier_level,
            options,
        )
        return world_losses(problem.edge_weight, values[0]).sum()

    leaves = [problem.maps, problem.log_tan, problem.j_from_i[..., :3, :]]
    for k, gradient in enumerate((result.grad_maps, result.grad_log_tan, result.grad_pose)):
        direction = torch.randn(leaves[k].shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(k))
        step = 1e-6
        ahead, behind = ([*leaves[:k], leaves[k] + s * direction, *leaves[k + 1 :]] for s in (step, -step))
        slope = (loss(*ahead) - loss(*behind)) / (2 * step)
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-6, atol=1e-8)


def test_edge_without_matches_has_no_loss_and_no_gradient():
    problem = random_problem(images=3, edges=3, matches=[4, 0, 3], worlds=2, cells=2, dtype=DOUBLE)
    result = evaluate(problem)
    assert (result.edge_loss[:, 1] == 0).all() and (result.inlier_share[:, 1] == 0).all()
    assert (result.grad_pose[:, 1] == 0).all() and (result.grad_pose[:, 0] != 0).any()


def test_padding_cells_have_no_gradient():
    problem = random_problem(images=4, edges=5, matches=50, worlds=2, cells=3, dtype=DOUBLE)
    gradient = evaluate(problem).grad_maps
    assert (gradient[:, :, -1] == 0).all() and (gradient[:, :, :, -1] == 0).all()
    assert (gradient[:, :, :-1, :-1] != 0).all()


def test_loss_is_the_mean_over_the_window():
    """Of windows that cover each edge twice over, halves average to the whole."""
    problem = random_problem(images=3, edges=2, matches=8, worlds=1, cells=2, batch=4, dtype=DOUBLE)
    halves = [evaluate(replace(problem, start=torch.tensor([k, k]))).edge_loss for k in (1, 5)]
    whole = evaluate(replace(problem, start=torch.tensor([0, 0]), batch=8)).edge_loss
    torch.testing.assert_close((halves[0] + halves[1]) / 2, whole)


def test_outliers_are_left_out_of_the_inlier_loss():
    problem = random_problem(images=2, edges=1, matches=10, worlds=1, cells=2, outlier_level=math.inf, dtype=DOUBLE)
    everything = evaluate(problem)
    torch.testing.assert_close(everything.inlier_loss, everything.edge_loss)
    level = everything.edge_loss[0]  # about half the matches are worse than the mean
    some = evaluate(replace(problem, outlier_level=level))
    assert (some.inlier_loss < everything.inlier_loss).all()
    assert 0.05 < some.inlier_share.item() < 0.95
