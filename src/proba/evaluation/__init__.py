"""Pose and cloud metrics."""

from proba.evaluation.cloud import aligned_clouds, cloud_scores
from proba.evaluation.collection_score import CollectionScore, score_collection
from proba.evaluation.evaluate import evaluate
from proba.evaluation.poses import accuracy, area_under_recall, focal_error_pct, match_names, pair_errors, registered

__all__ = [
    "CollectionScore",
    "accuracy",
    "aligned_clouds",
    "area_under_recall",
    "cloud_scores",
    "evaluate",
    "focal_error_pct",
    "match_names",
    "pair_errors",
    "registered",
    "score_collection",
]
