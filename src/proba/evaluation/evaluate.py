"""All numbers of one result against its ground truth, as a flat object."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proba.evaluation.cloud import cloud_scores
from proba.evaluation.poses import (
    THRESHOLDS_DEG,
    accuracy,
    area_under_recall,
    focal_error_pct,
    pair_errors,
    registered,
)
from proba.io.ground_truth import GroundTruth, true_points
from proba.reconstruction import Reconstruction

CLOUD_THRESHOLD_M = 0.05


def evaluate(
    reconstructions: Sequence[Reconstruction], truth: GroundTruth, *, cloud: bool = True
) -> dict[str, float | int | None]:
    """`images`, `registered`, `rra@x`, `rta@x`, `auc@x` in percent over all pairs, `focal_error_pct` (median).

    With geometry in metres (and unless `cloud` is off) also `acc@5cm` and `comp@5cm`.
    """
    rotation_deg, translation_deg = pair_errors(reconstructions, truth)
    scores: dict[str, float | int | None] = {
        "images": len(truth.names),
        "registered": registered(reconstructions, truth),
    }
    for name, errors in (("rra", rotation_deg), ("rta", translation_deg)):
        scores |= {f"{name}@{x}": accuracy(errors, x) for x in THRESHOLDS_DEG}
    worst = np.maximum(rotation_deg, translation_deg)  # [P]
    scores |= {f"auc@{x}": area_under_recall(worst, x) for x in THRESHOLDS_DEG}
    scores["focal_error_pct"] = focal_error_pct(reconstructions, truth)
    if cloud and truth.metres_per_unit is not None:
        points = true_points(truth)
        if points is not None and len(points):
            threshold = CLOUD_THRESHOLD_M / truth.metres_per_unit
            scores["acc@5cm"], scores["comp@5cm"] = cloud_scores(reconstructions, truth, points, threshold)
    return scores
