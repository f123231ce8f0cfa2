"""All numbers of one result against its ground truth, as a flat object."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proba.evaluation.cloud import aligned_clouds, cloud_scores
from proba.evaluation.poses import (
    THRESHOLDS_DEG,
    accuracy,
    area_under_recall,
    focal_error_pct,
    pair_errors,
    registered,
)
from proba.evaluation.surface import seen_enough, sigma_shares
from proba.io.dense_folder import DensePiece
from proba.io.ground_truth import GroundTruth, true_points
from proba.io.ply import read_ply
from proba.reconstruction import Reconstruction

CLOUD_THRESHOLDS_CM = (1, 2, 5, 10)
ALIGN_CM = 5
"""Points that come this close decide how clouds are aligned."""


def evaluate(
    reconstructions: Sequence[Reconstruction],
    truth: GroundTruth,
    *,
    cloud: bool = True,
    dense: Sequence[DensePiece | None] = (),
) -> dict[str, float | int | None]:
    """`images`, `registered`, `rra@x`, `rta@x`, `auc@x` in percent over all pairs, `focal_error_pct` (median).

    With geometry in metres (and unless `cloud` is off) also `acc@5cm` and `comp@5cm`, and the same for other distances.
    Where reconstructions have a `dense` cloud these are of that one, and `sparse_acc@5cm` of the points of the model.
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
            scores |= _surface_scores(reconstructions, truth, points, dense)
    return scores


def _surface_scores(
    reconstructions: Sequence[Reconstruction],
    truth: GroundTruth,
    points: np.ndarray,
    dense: Sequence[DensePiece | None],
) -> dict[str, float]:
    """ACC and COMP of all clouds, with one alignment for the sparse and the dense one, and the shares of deviations."""
    assert truth.metres_per_unit is not None
    centimetre = 0.01 / truth.metres_per_unit
    pieces = [*dense, *[None] * (len(reconstructions) - len(dense))]
    sparse = [reconstruction.points.xyz for reconstruction in reconstructions]
    clouds = [few if piece is None else read_ply(piece.cloud)["xyz"] for few, piece in zip(sparse, pieces, strict=True)]
    alignments = aligned_clouds(reconstructions, clouds, truth, points, ALIGN_CM * centimetre)
    findable = seen_enough(truth, points)
    thresholds = [x * centimetre for x in CLOUD_THRESHOLDS_CM]
    scores: dict[str, float] = {}
    kinds = [("", clouds), *([("sparse_", sparse)] if any(pieces) else [])]
    for kind, which in kinds:
        found = cloud_scores(which, alignments, points, thresholds, findable=findable)
        for x, (acc, comp) in zip(CLOUD_THRESHOLDS_CM, found, strict=True):
            scores |= {f"{kind}acc@{x}cm": acc, f"{kind}comp@{x}cm": comp}
    return scores | sigma_shares(list(zip(reconstructions, pieces, alignments, strict=True)), truth)
