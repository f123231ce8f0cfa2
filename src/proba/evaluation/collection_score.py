"""How well a mixed folder was taken apart and reconstructed: the metric of the Image Matching Challenge 2025.

Each reconstruction is a cluster. A scene gets the cluster that shares most photos with it, among equals the one that
places more of them. A similarity takes the cluster's camera centres to the true ones, for each threshold the one that
places most cameras within it. Three placed cameras are what the alignment itself needs, and do not count.

    mAA          placed - 3 over photos - 3 of the scenes, mean over all thresholds but the two smallest
    clusterness  of the photos in the clusters that stand for scenes, how many belong to the scene
    score        harmonic mean of the two
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from proba.evaluation.poses import relative_errors_deg, relative_motions
from proba.geometry.sim3 import umeyama
from proba.io.scene_labels import LabelledScene
from proba.reconstruction import Reconstruction

NEEDED = 3
"""Cameras that determine an alignment."""
SKIPPED = 2
"""Smallest thresholds that do not count."""
MOST_TRIPLES = 3000
REFINEMENTS = 3
WORTH_REFINING = 0.8
"""Of the best number of placed cameras so far."""
RIGHT_DEG = 5.0


@dataclass(frozen=True, kw_only=True)
class SceneScore:
    """What became of one scene."""

    scene: str
    photos: int
    found: int
    """Of them in the cluster that stands for it."""
    cluster: int
    """Photos of that cluster."""
    maa: float
    """Percent."""


@dataclass(frozen=True, kw_only=True)
class CollectionScore:
    """What became of a folder; percentages."""

    score: float
    maa: float
    clusterness: float
    scenes: list[SceneScore]
    pairs_right: float
    """Of the pairs of photos within a reconstruction, how many are of one scene and turned by the true angle within 5
    degrees; 100 if there is none. What is missing does not count here: it measures whether what is there is right."""


def score_collection(
    reconstructions: Sequence[Reconstruction], scenes: Sequence[LabelledScene], *, seed: int = 0
) -> CollectionScore:
    """The scores of the reconstructions of one folder."""
    clusters = [dict(zip(rec.image_names, rec.centres, strict=True)) for rec in reconstructions]
    found = [_score_scene(scene, clusters, seed) for scene in scenes]
    weights = [max(row.photos - NEEDED, 1) for row in found]
    maa = sum(row.maa * weight for row, weight in zip(found, weights, strict=True)) / max(sum(weights), 1)
    members = sum(row.cluster for row in found)
    clusterness = 100.0 * sum(row.found for row in found) / members if members else 0.0
    both = maa + clusterness
    return CollectionScore(
        score=2 * maa * clusterness / both if both else 0.0,
        maa=maa,
        clusterness=clusterness,
        scenes=found,
        pairs_right=pairs_right(reconstructions, scenes),
    )


def _score_scene(scene: LabelledScene, clusters: Sequence[Mapping[str, np.ndarray]], seed: int) -> SceneScore:
    best = SceneScore(scene=scene.name, photos=len(scene.images), found=0, cluster=0, maa=0.0)
    for cluster in clusters:
        common = [k for k, name in enumerate(scene.images) if name in cluster]
        if not common:
            continue
        estimate = np.array([cluster[scene.images[k]] for k in common])  # [n, 3]
        placed = most_placed(estimate, scene.centres[common], scene.thresholds[SKIPPED:], seed=seed)  # [T - 2]
        maa = 100.0 * np.maximum(placed - NEEDED, 0).mean() / max(len(scene.images) - NEEDED, 1)
        row = SceneScore(
            scene=scene.name, photos=len(scene.images), found=len(common), cluster=len(cluster), maa=float(maa)
        )
        best = max(best, row, key=lambda one: (one.found, one.maa))
    return best


def most_placed(estimate: np.ndarray, truth: np.ndarray, thresholds: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """How many of the centres [n, 3] a similarity puts within each threshold [T] of the true ones, at most: [T] int.

    Similarities are fitted to triples, then to what lies within the threshold; only the latter count.
    """
    n = len(estimate)
    best = np.zeros(len(thresholds), np.int64)
    if n < NEEDED:
        return best
    for triple in _triples(n, seed):
        error = _errors(estimate, truth, triple)  # [n]
        for k, threshold in enumerate(thresholds):
            inlier = error < threshold  # [n]
            if inlier.sum() < max(NEEDED, WORTH_REFINING * best[k]):
                continue
            for _ in range(REFINEMENTS):
                again = _errors(estimate, truth, inlier)  # [n]
                best = np.maximum(best, (again[:, None] < thresholds).sum(axis=0))
                if (again < threshold).sum() < NEEDED or ((again < threshold) == inlier).all():
                    break
                inlier = again < threshold
    return best


def _triples(n: int, seed: int) -> np.ndarray:  # [K, 3]
    if comb(n, NEEDED) <= MOST_TRIPLES:
        return np.array(list(combinations(range(n), NEEDED)))
    rng = np.random.default_rng(seed)
    return np.array([rng.choice(n, NEEDED, replace=False) for _ in range(MOST_TRIPLES)])


def _errors(estimate: np.ndarray, truth: np.ndarray, chosen: np.ndarray) -> np.ndarray:  # [n]
    """Distances of all centres after the similarity that fits the chosen ones best.

    As in the challenge, its scale is the ratio of the two spreads (Horn), whichever way the points are noisy.
    """
    mean, true_mean = estimate[chosen].mean(axis=0), truth[chosen].mean(axis=0)  # [3]
    centred, true_centred = estimate - mean, truth - true_mean  # [n, 3]
    rotation = umeyama(estimate[chosen], truth[chosen], with_scale=False).rotation
    spread = max((centred[chosen] ** 2).sum(), 1e-30)
    scale = np.sqrt((true_centred[chosen] ** 2).sum() / spread)
    return np.linalg.norm(scale * centred @ rotation.T - true_centred, axis=1)


def pairs_right(reconstructions: Sequence[Reconstruction], scenes: Sequence[LabelledScene]) -> float:
    """Percentage of the pairs within reconstructions whose two photos show one scene under the right relative angle."""
    known = {name: (s, k) for s, scene in enumerate(scenes) for k, name in enumerate(scene.images)}
    right, total = 0, 0
    for rec in reconstructions:
        total += comb(len(rec), 2)
        labels = [known.get(name) for name in rec.image_names]
        scene_of = np.array([-1 if label is None else label[0] for label in labels])  # [N]
        for s in np.unique(scene_of[scene_of >= 0]):
            members = np.flatnonzero(scene_of == s)
            truth = np.array([scenes[s].cam_from_world[labels[k][1]] for k in members])  # type: ignore[index]
            a, b = np.triu_indices(len(members), 1)
            motions = (relative_motions(poses, a, b) for poses in (rec.cam_from_world[members], truth))
            right += int((relative_errors_deg(*motions)[0] < RIGHT_DEG).sum())
    return 100.0 * right / total if total else 100.0
