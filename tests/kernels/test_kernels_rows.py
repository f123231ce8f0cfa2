"""Sums of rows against numpy."""

import numba
import numpy as np

from proba.kernels.rows import LANES, add_rows, set_row


@numba.njit
def combine(target, source, factors):
    set_row(target, 1, factors, source, (0, 3))
    add_rows(target, 2 * LANES, factors, source, (LANES, 5))


def test_rows_are_set_and_added_wherever_they_begin():
    random = np.random.default_rng(0)
    target, source = random.normal(size=4 * LANES), random.normal(size=3 * LANES)
    expected = target.copy()
    expected[1 : 1 + LANES] = 2.0 * source[:LANES] - 0.5 * source[3 : 3 + LANES]
    expected[2 * LANES : 3 * LANES] += 2.0 * source[LANES : 2 * LANES] - 0.5 * source[5 : 5 + LANES]
    combine(target, source, (2.0, -0.5))
    np.testing.assert_allclose(target, expected, rtol=1e-14)
