"""Kernels of numba-cuda on torch's tensors, in the tensors' own memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import config
from numba import cuda as numba_cuda
from torch import Tensor

from proba.errors import InputError

cuda: Any = numba_cuda
SIMULATED = bool(config.ENABLE_CUDASIM)  # type: ignore[attr-defined]
HOME = torch.device("cpu") if SIMULATED else torch.device("cuda", 0)
"""Where the kernels' tensors are. Numba's simulator works on memory of the processor."""

THREADS = 128
"""Threads of a block, at most."""
MOST_BLOCKS = 4096
"""Blocks of a kernel whose threads walk over numbers in strides."""


def check_gpu() -> None:
    if not cuda.is_available():
        raise InputError("No NVIDIA GPU was found for the device cuda. Update its driver, or take the device cpu.")
    if not (SIMULATED or torch.cuda.is_available()):
        raise InputError(
            f"torch {torch.__version__} does not see the GPU. Install a torch with CUDA (pytorch.org says how), "
            "or take the device cpu."
        )


def view(tensor: Tensor) -> Any:
    """The tensor's own memory as an argument of a kernel, without a copy; contiguous, at `HOME`."""
    assert tensor.is_contiguous(), tuple(tensor.stride())
    if SIMULATED:
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

        return FakeCUDAArray(tensor.numpy())
    return cuda.as_cuda_array(tensor)


def launch(kernel: Any, grid: Any, threads: int, *arguments: Any) -> None:
    """Queue a kernel behind all that torch has queued: both use the device's default stream."""
    kernel[grid, threads](*(view(a) if isinstance(a, Tensor) else a for a in arguments))


def spread(kernel: Any, size: int, *arguments: Any) -> None:
    """Launch a kernel whose threads walk over `size` numbers in strides."""
    if size:
        launch(kernel, *strides(size), *arguments)


def strides(size: int) -> tuple[int, int]:
    """Blocks, and threads of a block, that walk over `size` numbers."""
    return min(MOST_BLOCKS, -(-size // THREADS)), THREADS


class Adder:
    """Adds up rows [B, M, ...] to [B, count, ...] by their index [M], in a fixed order: the same bits every time."""

    def __init__(self, index: Tensor, count: int) -> None:
        host = index.cpu().numpy()
        self.order = torch.from_numpy(np.argsort(host, kind="stable")).to(HOME)  # [M]
        self.start = torch.from_numpy(np.searchsorted(np.sort(host), np.arange(count + 1))).to(HOME)  # [count + 1]
        self._kernel = cuda.jit(_add_rows)

    def __call__(self, rows: Tensor) -> Tensor:
        flat = rows.reshape(len(rows), len(self.order), -1).contiguous()
        count = len(self.start) - 1
        out = flat.new_empty(len(flat), count, flat.shape[2])
        spread(self._kernel, out.numel(), flat, self.order, self.start, out)
        return out.view(len(rows), count, *rows.shape[2:])


def _add_rows(rows, order, start, out):
    """A thread a number of out [B, count, K]: the sum over the rows [B, M, K] order[start[n]:start[n + 1]]."""
    count, width = out.shape[1], out.shape[2]
    for k in range(cuda.grid(1), out.shape[0] * count * width, cuda.gridsize(1)):
        b, n, column = k // (count * width), (k // width) % count, k % width
        out[b, n, column] = 0
        for at in range(start[n], start[n + 1]):
            out[b, n, column] += rows[b, order[at], column]
