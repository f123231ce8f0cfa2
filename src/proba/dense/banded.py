"""Systems with a symmetric positive band matrix, by LAPACK without the interpreter's lock: several at a time."""

from __future__ import annotations

import ctypes

import numpy as np
from numba.extending import get_cython_function_address

_INT, _DOUBLES = ctypes.POINTER(ctypes.c_int), ctypes.c_void_p
_solve = ctypes.CFUNCTYPE(None, ctypes.c_char_p, _INT, _INT, _INT, _DOUBLES, _INT, _DOUBLES, _INT, _INT)(
    get_cython_function_address("scipy.linalg.cython_lapack", "dpbsv")
)
"""A foreign function gives the lock away while it runs, scipy's own wrapper does not."""


def solve_banded(band: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solution [n] for the right side [n]; band[j, k] is element (j + k, j) of the matrix [n, n]. Spoils `band`."""
    assert band.dtype == np.float64 and band.flags.c_contiguous, f"float64, row by row; got {band.dtype} {band.strides}"
    assert right.shape == band.shape[:1], f"band {band.shape}, right side {right.shape}"
    solution = right.astype(np.float64)
    order, below, one, leading, failed = map(ctypes.c_int, (len(band), band.shape[1] - 1, 1, band.shape[1], 0))
    _solve(b"L", order, below, one, band.ctypes.data, leading, solution.ctypes.data, order, failed)
    if failed.value:
        raise np.linalg.LinAlgError("the band matrix is not positive definite")
    return solution
