"""Adaptive edge weights, on graphs small enough to do by hand."""

import torch

from proba.objective import edge_weights as weights

TRIANGLE = torch.tensor([[0, 1], [0, 2], [1, 2]], dtype=torch.int32)


def test_reliability_by_hand():
    score = weights.reliability(TRIANGLE, torch.tensor([[1.0, 3.0, 3.0]]), 3)
    # At nodes 0 and 1 the losses are 1 and 3: normalised -1 and +1. At node 2 both are 3: normalised 0.
    one = torch.sigmoid(torch.tensor(1.0)).item()
    expected = torch.tensor([[one, 0.5 * (1 - one) + 0.25, 0.5 * (1 - one) + 0.25]])
    torch.testing.assert_close(score, expected)


def test_reliability_ignores_scale_and_offset_of_the_losses():
    torch.manual_seed(0)
    loss = torch.randn(4, 3)
    torch.testing.assert_close(
        weights.reliability(TRIANGLE, loss, 3), weights.reliability(TRIANGLE, 5 * loss - 7, 3), rtol=1e-4, atol=1e-5
    )


def test_single_edge_is_neutral():
    score = weights.reliability(torch.tensor([[0, 1]]), torch.tensor([[123.0]]), 2)
    assert score.item() == 0.5


def test_weights_carry_no_gradient():
    loss = torch.randn(1, 3, requires_grad=True)
    updated = weights.ema_update(torch.ones(1, 3), weights.reliability(TRIANGLE, loss, 3), 0.1)
    assert not updated.requires_grad


def test_ema_moves_towards_the_reliability():
    updated = weights.ema_update(torch.tensor([1.0]), torch.tensor([0.0]), 0.25)
    assert updated.item() == 0.75
