"""The objective, fast: loss and all gradients fused into one pass, tested against `proba.objective`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Literal

from proba.errors import InputError
from proba.kernels.cpu import Workspace, evaluate
from proba.objective.evaluation import EdgeEvaluation

__all__ = ["Device", "Workspace", "evaluate", "evaluator"]

Device = Literal["cpu", "cuda"]


def evaluator(device: Device) -> Callable[..., EdgeEvaluation]:
    """`proba.objective.evaluate` for repeated calls on this device; a result is valid until the next call."""
    if device == "cpu":
        return partial(evaluate, workspace=Workspace())
    if find_spec("numba_cuda") is None:
        raise InputError("The device cuda needs numba-cuda: `pip install 'proba-sfm[cuda]'`. Or take the device cpu.")
    from proba.kernels.cuda import Evaluator

    return Evaluator()
