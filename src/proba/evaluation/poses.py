"""Pose errors over all pairs of images of the ground truth (appendix, camera pose metrics).

An error is that of the relative motion j_from_i, i < j, in degrees: the angle of the rotation between estimate and
truth, and the angle between the two translation directions. A pair counts as a failure (180 degrees) if one of its
images is not registered, or the two are in different reconstructions, whose frames have nothing to do with each
other.

AUC@k is the exact integral of the recall of max(rotation, translation) error from 0 to k, divided by k, which is
mean(max(0, 1 - error / k)). It is neither binned (VGGT, PoseDiffusion) nor interpolated between samples (hloc).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np

from proba.io.ground_truth import GroundTruth
from proba.reconstruction import Reconstruction

FAILURE_DEG = 180.0
THRESHOLDS_DEG = (1, 5, 10)
PAIRS_AT_A_TIME = 500_000


def pair_errors(
    reconstructions: Sequence[Reconstruction], truth: GroundTruth
) -> tuple[np.ndarray, np.ndarray]:  # [P], [P] degrees
    """Rotation and translation errors of the N (N - 1) / 2 pairs of the ground truth."""
    i, j = np.triu_indices(len(truth.names), 1)  # [P]
    rotation_deg, translation_deg = np.full(len(i), np.inf), np.full(len(i), np.inf)
    for reconstruction in reconstructions:
        estimate = _poses_of(reconstruction, truth.names)  # [N, 4, 4], NaN where not registered
        known = ~np.isnan(estimate[:, 0, 0])
        todo = np.flatnonzero(known[i] & known[j] & np.isinf(rotation_deg))  # the first that has both decides
        for part in np.array_split(todo, len(todo) // PAIRS_AT_A_TIME + 1):
            motions = (relative_motions(poses, i[part], j[part]) for poses in (estimate, truth.cam_from_world))
            rotation_deg[part], translation_deg[part] = relative_errors_deg(*motions)
    failed = np.isinf(rotation_deg)
    return np.where(failed, FAILURE_DEG, rotation_deg), np.where(failed, FAILURE_DEG, translation_deg)


def relative_errors_deg(estimate: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # [P], [P]
    """Angles between relative motions [P, 4, 4]. A true baseline of zero has no direction and counts as right."""
    difference = np.einsum("pji,pjk->pik", truth[:, :3, :3], estimate[:, :3, :3])  # [P, 3, 3]
    # The chord keeps its precision at small angles, where the arc cosine of the trace loses half the digits.
    chord = np.linalg.norm(difference - np.eye(3), axis=(1, 2)) / (2 * np.sqrt(2))
    rotation = np.degrees(2 * np.arcsin(chord.clip(0, 1)))
    t, t_true = estimate[:, :3, 3], truth[:, :3, 3]
    length, length_true = np.linalg.norm(t, axis=1), np.linalg.norm(t_true, axis=1)
    cross = np.linalg.norm(np.cross(t, t_true), axis=1)
    translation = np.degrees(np.arctan2(cross, np.einsum("pi,pi->p", t, t_true)))
    tiny = 1e-9 * max(length_true.max(initial=0.0), 1e-300)
    translation[length == 0] = FAILURE_DEG
    translation[length_true <= tiny] = 0.0
    return rotation, translation


def accuracy(errors_deg: np.ndarray, threshold_deg: float) -> float:
    """Percentage of errors strictly below the threshold: RRA@x, RTA@x."""
    return 100.0 * float(np.mean(errors_deg < threshold_deg)) if len(errors_deg) else 0.0


def area_under_recall(errors_deg: np.ndarray, threshold_deg: float) -> float:
    """AUC@x in percent, exact."""
    return 100.0 * float(np.mean((1 - errors_deg / threshold_deg).clip(0))) if len(errors_deg) else 0.0


def focal_error_pct(reconstructions: Sequence[Reconstruction], truth: GroundTruth) -> float | None:
    """Median over the registered images of the focal length's relative error; None if there are none."""
    errors: dict[int, float] = {}
    for reconstruction in reconstructions:
        for k, n in enumerate(match_names(reconstruction.image_names, truth.names)):
            if n is None or n in errors:
                continue
            camera = reconstruction.cameras[reconstruction.camera_of_image[k]]
            true_px = truth.intrinsics[n, :2].mean()
            focal_px = camera.focal_px.mean() * truth.width[n] / camera.width  # the truth may be of another resolution
            errors[n] = 100.0 * abs(focal_px - true_px) / true_px
    return float(np.median(list(errors.values()))) if errors else None


def registered(reconstructions: Sequence[Reconstruction], truth: GroundTruth) -> int:
    """How many images of the ground truth have a pose in some reconstruction."""
    return len({n for r in reconstructions for n in match_names(r.image_names, truth.names) if n is not None})


def match_names(names: Sequence[str], known: Sequence[str]) -> list[int | None]:
    """Index into `known` of each name: equal, else the only one with an equal file name, else with an equal stem."""
    keys = (lambda name: name, lambda name: PurePosixPath(name).name, lambda name: PurePosixPath(name).stem)
    tables = []
    for key in keys:
        table: dict[str, int | None] = {}
        for index, name in enumerate(known):
            table[key(name)] = None if key(name) in table else index
        tables.append(table)
    result: list[int | None] = []
    for name in names:
        found = (table[key(name)] for key, table in zip(keys, tables, strict=True) if key(name) in table)
        result.append(next(found, None))
    return result


def _poses_of(reconstruction: Reconstruction, names: Sequence[str]) -> np.ndarray:  # [N, 4, 4]
    poses = np.full((len(names), 4, 4), np.nan)
    for k, n in enumerate(match_names(reconstruction.image_names, names)):
        if n is not None:
            poses[n] = reconstruction.cam_from_world[k]
    return poses


def relative_motions(cam_from_world: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:  # [P, 4, 4]
    """j_from_i of poses [N, 4, 4] for pairs of indices [P]."""
    return cam_from_world[j] @ np.linalg.inv(cam_from_world[i])
