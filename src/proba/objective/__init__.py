"""The objective as plain torch: the specification, and the oracle of the fused kernels' tests."""

from proba.objective.evaluation import EdgeEvaluation, Minibatch, edge_losses, evaluate, world_losses
from proba.objective.options import ObjectiveOptions
from proba.objective.packed import MatchWindow, PackedMatches

__all__ = [
    "EdgeEvaluation",
    "MatchWindow",
    "Minibatch",
    "ObjectiveOptions",
    "PackedMatches",
    "edge_losses",
    "evaluate",
    "world_losses",
]
