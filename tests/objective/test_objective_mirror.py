"""Mirror symmetry regularisation."""

import pytest
import torch

from proba.geometry import se3
from proba.objective import mirror


def poses(seed: int, scale: float = 0.3) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    return se3.exp(torch.randn(2, 5, 6, generator=random, dtype=torch.float64) * scale)


def test_exact_mirror_has_no_distance():
    primary = poses(0)
    distance = mirror.mirror_distance(primary, se3.mirror(primary))
    torch.testing.assert_close(distance, torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-9)
    assert (mirror.mirror_distance(primary, primary) > 0.1).all()


def test_distance_is_the_l1_norm_of_the_twists():
    twist = torch.tensor([0.1, -0.2, 0.3, 0.2, 0.1, -0.3], dtype=torch.float64)
    identity = torch.eye(4, dtype=torch.float64)[None, None]
    distance = mirror.mirror_distance(identity, se3.exp(twist)[None, None])
    torch.testing.assert_close(distance[0], twist.abs().sum())


def test_primary_gets_no_gradient():
    primary, mirrored = poses(0).requires_grad_(), poses(1).requires_grad_()
    mirror.mirror_distance(primary, mirrored).sum().backward()
    assert primary.grad is None
    assert (mirrored.grad != 0).any()


@pytest.mark.parametrize(("iteration", "weight"), [(0, 100.0), (500, 75.0), (2000, 0.0), (9000, 0.0)])
def test_weight_decays_linearly(iteration, weight):
    assert mirror.mirror_weight(iteration) == weight
