"""The CUDA kernel in numba's simulator against the reference; run by test_kernels_cuda.py in a process of its own."""

import dataclasses
import sys

import torch

from proba.bench.kernel import random_problem
from proba.kernels import cuda, cuda_launch
from proba.objective import EdgeEvaluation, ObjectiveOptions, evaluate

FIELDS = [field.name for field in dataclasses.fields(EdgeEvaluation)]
NEUTRAL, PAPER = ObjectiveOptions(), ObjectiveOptions(measure="paper", w_3d=2.0)
CASES = {
    "several matches a thread": (NEUTRAL, {"matches": [40, 0, 3], "batch": 37, "cells": 3, "worlds": 2}),
    "behind cameras": (PAPER, {"matches": [9, 2, 7], "motion": 1.5, "cells": 2, "worlds": 1, "batch": 8}),
    "one cell": (NEUTRAL, {"matches": [5, 5, 5], "cells": 1, "worlds": 1, "batch": 4}),
    "no matches": (PAPER, {"matches": [0, 0, 0], "cells": 2, "worlds": 1}),
}
TOLERANCE = {"behind cameras": 1e-4}
"""1e-5 for the others. All of its gradients are those of one match of weight e^-24: a weight is relatively as wrong as
the loss is absolutely. The CPU's test of such points has the same tolerance."""


def main() -> None:
    cuda_launch.THREADS, cuda_launch.MOST_BLOCKS = 32, 2  # the simulator's threads are slow
    evaluator = cuda.Evaluator()
    for name, (options, settings) in CASES.items():
        problem = random_problem(images=3, edges=3, dtype=torch.float64, **settings)
        exact = evaluate(problem, options)
        first = evaluator(problem, options)
        again = evaluator(problem, options)
        for field in FIELDS:
            expected, got = getattr(exact, field), getattr(first, field).double()
            assert got.shape == expected.shape, (name, field)
            error = (got - expected).abs().max() / expected.abs().max().clamp(min=1e-20)
            assert error < TOLERANCE.get(name, 1e-5), (name, field, float(error))
            assert torch.equal(getattr(first, field), getattr(again, field)), (name, field)
        print(name, "agrees")


if __name__ == "__main__":
    sys.exit(main())
