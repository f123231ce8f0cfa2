"""The first-order solver: K worlds at once, from a strict cold start."""

from proba.solver.loop import Callback, Progress, Solver, solve_graph
from proba.solver.options import Hypotheses, SolverOptions, StepSizes
from proba.solver.problem import Problem, make_problem

__all__ = [
    "Callback",
    "Hypotheses",
    "Problem",
    "Progress",
    "Solver",
    "SolverOptions",
    "StepSizes",
    "make_problem",
    "solve_graph",
]
