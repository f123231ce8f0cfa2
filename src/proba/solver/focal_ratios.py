"""How the focal lengths of several cameras compare, from the fundamental matrices of the view graph.

A fundamental matrix becomes an essential one, with two equal singular values, when both images have the right focal
lengths. All edges together (view-graph calibration, Sweeney et al., ICCV 2015) say little about the focal length that
all cameras have in common, which the solver finds anyway, but much about their ratios.
"""

from __future__ import annotations

import numpy as np

SIGMA = 0.02
"""Relative difference of the squared singular values that noise causes; beyond it an edge counts less (Cauchy)."""
PRIOR_SIGMA = 0.7
"""Standard deviation of log focal lengths: what no edge speaks of stays where the others are."""
MAX_LOG_RATIO = 0.7
"""Bound of a log ratio to the median camera: a photo with a few poor edges may ask for anything."""
ITERATIONS, MAX_STEP, DIFFERENCE = 20, 0.3, 1e-6


def log_focals(
    matrices: np.ndarray, weight: np.ndarray, camera: np.ndarray, start: np.ndarray, known: np.ndarray
) -> np.ndarray:  # [C]
    """Log focal lengths of the cameras, by reweighted Gauss-Newton steps.

    Of fundamental matrices j_from_i [E, 3, 3] of centred coordinates, their weights [E], the cameras [E, 2] of i and
    j, and rough log focal lengths `start` [C]; those of `known` cameras [C] bool are exact and stay.
    """
    values = start.copy()
    for _ in range(ITERATIONS):
        at_i, at_j = values[camera].T  # [E] each
        residual = _essential_residual(matrices, at_i, at_j)  # [E, 9]
        slope_i = (_essential_residual(matrices, at_i + DIFFERENCE, at_j) - residual) / DIFFERENCE
        slope_j = (_essential_residual(matrices, at_i, at_j + DIFFERENCE) - residual) / DIFFERENCE
        trust = weight / (SIGMA**2 + (residual**2).sum(axis=1))  # [E]
        slopes = np.stack([slope_i, slope_j], axis=1)  # [E, 2, 9]
        slopes[known[camera]] = 0.0
        gradient = (values - start) / PRIOR_SIGMA**2
        system = np.eye(len(start)) / PRIOR_SIGMA**2
        np.add.at(gradient, camera, np.einsum("e,eak,ek->ea", trust, slopes, residual))
        pairs = camera[:, :, None], camera[:, None, :]
        np.add.at(system, pairs, np.einsum("e,eak,ebk->eab", trust, slopes, slopes))
        values -= np.clip(np.linalg.solve(system, gradient), -MAX_STEP, MAX_STEP)
    return values


def bounded_ratios(values: np.ndarray) -> np.ndarray:  # [C]
    """Log focal lengths [C] relative to their median, none far from it."""
    return np.clip(values - np.median(values), -MAX_LOG_RATIO, MAX_LOG_RATIO)


def _essential_residual(matrices: np.ndarray, at_i: np.ndarray, at_j: np.ndarray) -> np.ndarray:
    """[E, 9], zero for essential matrices: 2 E E^T E - tr(E E^T) E, which is as long as the relative difference of the
    squared singular values, and smooth; of fundamental matrices [E, 3, 3] and log focal lengths [E]."""
    one = np.ones_like(at_i)
    k_i, k_j = (np.stack([np.exp(at), np.exp(at), one], axis=1) for at in (at_i, at_j))  # [E, 3]
    e = k_j[:, :, None] * matrices * k_i[:, None]  # [E, 3, 3]
    e /= np.linalg.norm(e, axis=(1, 2), keepdims=True)
    return (2 * e @ e.transpose(0, 2, 1) @ e - e).reshape(-1, 9)
