"""Mirror symmetry regularisation, Section 3.4 of the paper."""

from __future__ import annotations

from torch import Tensor

from proba.geometry import se3


def mirror_weight(iteration: int, *, strength: float = 100.0, duration: int = 2000) -> float:
    """lambda_mir(t): decays linearly to zero over the first `duration` iterations."""
    return strength * max(1.0 - iteration / duration, 0.0)


def mirror_distance(primary: Tensor, mirrored: Tensor) -> Tensor:
    """Mean L1 distance of the twists of `mirrored` [P, E, 4, 4] to those of the reflected `primary`, [P].

    Eq. `reg_loss` without its weight: the primary's poses [P, E, 4, 4] get no gradient from it.
    """
    target = se3.log(se3.mirror(primary)).detach()  # [P, E, 6]
    return (target - se3.log(mirrored)).abs().sum(-1).mean(-1)
