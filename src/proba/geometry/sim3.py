"""Similarities: alignment of reconstructions that differ in scale, rotation and origin. Numpy float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from math import comb

import numpy as np


@dataclass(frozen=True, eq=False)
class Sim3:
    """target = scale * rotation @ source + translation."""

    scale: float = 1.0
    rotation: np.ndarray = field(default_factory=lambda: np.eye(3))  # [3, 3]
    translation: np.ndarray = field(default_factory=lambda: np.zeros(3))  # [3]

    def apply(self, points: np.ndarray) -> np.ndarray:
        """Points [..., 3] of the source frame, in the target frame."""
        return self.scale * np.asarray(points) @ self.rotation.T + self.translation

    def apply_to_poses(self, cam_from_world: np.ndarray) -> np.ndarray:
        """Poses [..., 4, 4] whose world was the source frame, with the target frame as their world.

        Camera frames keep their axes but take on the target's unit, so the poses stay rigid motions.
        """
        moved = np.array(cam_from_world, np.float64)  # [..., 4, 4]
        moved[..., :3, :3] = moved[..., :3, :3] @ self.rotation.T
        moved[..., :3, 3] = self.scale * moved[..., :3, 3] - moved[..., :3, :3] @ self.translation
        return moved

    def inverse(self) -> Sim3:
        """source_from_target."""
        rotation = self.rotation.T
        return Sim3(1 / self.scale, rotation, -rotation @ self.translation / self.scale)

    def __matmul__(self, other: Sim3) -> Sim3:
        """First `other`, then this."""
        return Sim3(self.scale * other.scale, self.rotation @ other.rotation, self.apply(other.translation))

    def matrix(self) -> np.ndarray:
        """The 4x4 matrix [4, 4] for homogeneous points."""
        matrix = np.eye(4)
        matrix[:3, :3] = self.scale * self.rotation
        matrix[:3, 3] = self.translation
        return matrix


def umeyama(
    source: np.ndarray, target: np.ndarray, weights: np.ndarray | None = None, *, with_scale: bool = True
) -> Sim3:
    """Least-squares target_from_source of two point sets [P, 3], weights [P] (Umeyama 1991).

    The rotation is unique only if the points do not lie on one line.
    """
    source, target = np.asarray(source, np.float64), np.asarray(target, np.float64)
    if source.shape != target.shape or source.ndim != 2 or source.shape[1] != 3 or len(source) == 0:
        raise ValueError(f"two equal sets of points [P, 3] are needed, got {source.shape} and {target.shape}")
    w = np.ones(len(source)) if weights is None else np.asarray(weights, np.float64)
    w = w / w.sum()  # [P]
    source_mean, target_mean = w @ source, w @ target  # [3]
    centred_source, centred_target = source - source_mean, target - target_mean  # [P, 3]
    U, singular, Vh = np.linalg.svd((w[:, None] * centred_target).T @ centred_source)
    signs = np.array([1.0, 1.0, np.sign(np.linalg.det(U @ Vh))])  # no reflections
    rotation = (U * signs) @ Vh  # [3, 3]
    variance = float(w @ (centred_source**2).sum(1))
    scale = float(singular @ signs) / variance if with_scale and variance > 0 else 1.0
    return Sim3(scale, rotation, target_mean - scale * rotation @ source_mean)


def umeyama_robust(
    source: np.ndarray, target: np.ndarray, *, max_samples: int = 1000, seed: int = 0
) -> tuple[Sim3, np.ndarray]:
    """target_from_source of two point sets [P, 3], such as camera centres, some of which are wrong.

    Least median of squares over triples, then least squares over the inliers; needs no threshold. Withstands
    P - floor(P / 2) - 2 outliers. Returns the similarity and the inliers [P] bool.
    """
    source, target = np.asarray(source, np.float64), np.asarray(target, np.float64)
    if len(source) < 4:
        return umeyama(source, target), np.ones(len(source), bool)
    best, best_median = umeyama(source, target), np.inf
    for triple in _triples(len(source), max_samples, seed):
        candidate = umeyama(source[triple], target[triple])
        median = _median_square(candidate, source, target)
        if candidate.scale > 0 and median < best_median:
            best, best_median = candidate, median
    inliers = np.ones(len(source), bool)
    for _ in range(5):  # refit until the set of inliers rests
        previous, inliers = inliers, _inliers(best, source, target)
        if np.array_equal(previous, inliers):
            break
        best = umeyama(source[inliers], target[inliers])
    return best, inliers


def _median_square(target_from_source: Sim3, source: np.ndarray, target: np.ndarray) -> float:
    """The squared residual of rank floor(P / 2) + 2, as a triple always fits its own three points."""
    square = ((target_from_source.apply(source) - target) ** 2).sum(1)  # [P]
    rank = min(len(square) - 1, len(square) // 2 + 1)
    return float(np.partition(square, rank)[rank])


def _inliers(target_from_source: Sim3, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Points [P] bool within 2.5 robust standard deviations (Rousseeuw's scale of the median square)."""
    square = ((target_from_source.apply(source) - target) ** 2).sum(1)  # [P]
    extent = np.median(np.linalg.norm(target - np.median(target, axis=0), axis=1))
    sigma = 1.4826 * (1 + 5 / len(source)) * np.sqrt(_median_square(target_from_source, source, target))
    return np.sqrt(square) <= np.maximum(2.5 * sigma, 1e-9 * extent)


def _triples(n: int, max_samples: int, seed: int) -> list[list[int]]:
    """All triples of n points, or `max_samples` random ones."""
    if comb(n, 3) <= max_samples:
        return [list(triple) for triple in combinations(range(n), 3)]
    rng = np.random.default_rng(seed)
    return [rng.choice(n, 3, replace=False).tolist() for _ in range(max_samples)]
