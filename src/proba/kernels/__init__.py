"""The objective, fast: loss and all gradients fused into one pass, tested against `proba.objective`."""

from proba.kernels.cpu import Workspace, evaluate

__all__ = ["Workspace", "evaluate"]
