"""One place that decides how many processor threads are used."""

from __future__ import annotations

import os

import numba
import torch

from proba.errors import InputError


def set_threads(count: int | None) -> int:
    """Threads of the kernels; None: all that this process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    count = available if count is None else count
    if count < 1:
        raise InputError(f"--threads must be at least 1, not {count}")
    count = min(count, int(numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    # Beside the kernels the solver has only small tensors, for which torch's threads cost more than they bring.
    torch.set_num_threads(1)
    numba.set_num_threads(count)
    return count
