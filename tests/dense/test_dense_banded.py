"""Band systems against dense ones."""

import numpy as np
import pytest

from proba.dense.banded import solve_banded


def band_of(matrix: np.ndarray, width: int) -> np.ndarray:
    n = len(matrix)
    return np.array([[matrix[j + k, j] if j + k < n else 0.0 for k in range(width)] for j in range(n)])


def test_the_solution_is_that_of_the_dense_system():
    random = np.random.default_rng(0)
    n, width = 20, 4
    lower = np.where(np.subtract.outer(np.arange(n), np.arange(n)) < width, np.tril(random.normal(size=(n, n))), 0)
    matrix, right = lower @ lower.T + np.eye(n), random.normal(size=n)
    np.testing.assert_allclose(solve_banded(band_of(matrix, width), right), np.linalg.solve(matrix, right), rtol=1e-9)


def test_an_indefinite_matrix_is_refused():
    with pytest.raises(np.linalg.LinAlgError):
        solve_banded(band_of(-np.eye(3), 2), np.ones(3))
