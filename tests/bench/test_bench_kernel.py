"""The kernel benchmark runs and its fields are consistent."""

import pytest

from proba.bench.kernel import matches_per_call, random_problem, run_kernel_benchmark


def test_benchmark_fields():
    problem = random_problem(images=4, edges=4, matches=100, cells=4, batch=64)
    assert matches_per_call(problem) == 4 * 64 * 2
    result = run_kernel_benchmark(problem=problem, repeats=2, with_compile=False)
    assert result["ratio_eager"] == pytest.approx(result["fused_2"] / result["eager"])
    assert 0 < result["peak_share"] < 1
    assert all(value > 0 for value in result.values())
