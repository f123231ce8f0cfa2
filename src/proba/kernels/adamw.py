"""AdamW's direction in one pass over memory."""

from __future__ import annotations

import math

import numba as nb
import numpy as np

from proba.jit import cached_njit

EPS = 1e-12
"""Losses are means over matches, so gradients of single map cells are tiny; the usual 1e-8 would swallow them."""


@nb.njit(nogil=True, forceinline=True, error_model="numpy")
def step(g, m, v, beta1, beta2, correct1, correct2, eps, one):
    """(first moment, second moment, step of unit size) of one number from its gradient and moments. On both devices."""
    m = beta1 * m + (one - beta1) * g
    v = beta2 * v + (one - beta2) * g * g
    return m, v, m * correct1 / (math.sqrt(v * correct2) + eps)


def constants(kind: type, beta1: float, beta2: float, count: int) -> tuple:
    """What `step` needs beside the numbers themselves, in their precision."""
    return tuple(kind(value) for value in (beta1, beta2, 1 / (1 - beta1**count), 1 / (1 - beta2**count), EPS, 1))


def direction(
    grad: np.ndarray, first: np.ndarray, second: np.ndarray, *, beta1: float, beta2: float, count: int
) -> None:
    """Update the moments with `grad` and overwrite it with the bias-corrected step of unit size; contiguous arrays."""
    flat = (grad.reshape(-1), first.reshape(-1), second.reshape(-1))
    _direction(*flat, *constants(grad.dtype.type, beta1, beta2, count))


@cached_njit(nogil=True, error_model="numpy")
def _direction(grad, first, second, beta1, beta2, correct1, correct2, eps, one):
    for k in range(len(grad)):
        first[k], second[k], grad[k] = step(grad[k], first[k], second[k], beta1, beta2, correct1, correct2, eps, one)
