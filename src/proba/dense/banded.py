"""Systems with a symmetric positive band matrix, by LAPACK without the interpreter's lock: several at a time."""

from __future__ import annotations

import ctypes

import numba
import numpy as np
from numba.extending import get_cython_function_address

_solve = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 9)(
    get_cython_function_address("scipy.linalg.cython_lapack", "dpbsv")
)
_LOWER = np.frombuffer(b"L", np.uint8)


def solve_banded(band: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solution [n] for the right side [n]; band[j, k] is element (j + k, j) of the matrix [n, n]. Spoils `band`."""
    assert band.flags.c_contiguous and len(band) == len(right), f"band {band.shape}, right side {right.shape}"
    size = np.array([len(band), band.shape[1] - 1, 1, band.shape[1], len(band), 0], np.int32)
    solution = right.astype(np.float64)
    _call(_LOWER, size, band, solution)
    if size[5]:
        raise np.linalg.LinAlgError("the band matrix is not positive definite")
    return solution


@numba.njit(nogil=True)
def _call(lower, size, band, solution):
    """size: order, bands below the diagonal, right sides, leading dimensions of both arrays, LAPACK's answer."""
    _solve(
        lower.ctypes, size[0:].ctypes, size[1:].ctypes, size[2:].ctypes, band.ctypes, size[3:].ctypes, solution.ctypes,
        size[4:].ctypes, size[5:].ctypes,
    )  # fmt: skip
