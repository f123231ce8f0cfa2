"""AdamW's direction in one pass over memory."""

from __future__ import annotations

import numpy as np

from proba.jit import cached_njit

EPS = 1e-12
"""Losses are means over matches, so gradients of single map cells are tiny; the usual 1e-8 would swallow them."""


def direction(
    grad: np.ndarray, first: np.ndarray, second: np.ndarray, *, beta1: float, beta2: float, count: int
) -> None:
    """Update the moments with `grad` and overwrite it with the bias-corrected step of unit size; contiguous arrays."""
    kind = grad.dtype.type
    _direction(
        grad.reshape(-1),
        first.reshape(-1),
        second.reshape(-1),
        kind(beta1),
        kind(beta2),
        kind(1 / (1 - beta1**count)),
        kind(1 / (1 - beta2**count)),
        kind(EPS),
        kind(1),
    )


@cached_njit(nogil=True, error_model="numpy")
def _direction(grad, first, second, beta1, beta2, correct1, correct2, eps, one):
    for k in range(len(grad)):
        g = grad[k]
        m = beta1 * first[k] + (one - beta1) * g
        v = beta2 * second[k] + (one - beta2) * g * g
        first[k] = m
        second[k] = v
        grad[k] = m * correct1 / (np.sqrt(v * correct2) + eps)
