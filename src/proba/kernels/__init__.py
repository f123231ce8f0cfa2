"""The objective, fast: loss and all gradients fused into one pass, tested against `proba.objective`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from proba.errors import InputError
from proba.kernels.cpu import Workspace, evaluate
from proba.kernels.machine import Machine, Processor

__all__ = ["Device", "Machine", "Workspace", "evaluate", "machine"]

Device = Literal["cpu", "cuda"]


def machine(device: Device) -> Machine:
    """What does the work of the solver's loop on this device; an error says what the device lacks."""
    if device == "cpu":
        return Processor()
    if find_spec("numba_cuda") is None:
        raise InputError("The device cuda needs numba-cuda: `pip install 'proba-sfm[cuda]'`. Or take the device cpu.")
    from proba.kernels.cuda_machine import Gpu

    return Gpu()
