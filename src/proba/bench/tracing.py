"""The solver followed on its way: losses and errors of every world after shares of the iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proba.bench.cases import Case, pose_scores
from proba.cameras import make_setup
from proba.errors import GeometryError
from proba.evaluation import evaluate
from proba.graph import build_view_graphs
from proba.io.ground_truth import GroundTruth
from proba.matches import Matches
from proba.pipeline import SolveOptions
from proba.refine import RefineOptions, refine
from proba.solution import Solution
from proba.solver import Progress, Solver, make_problem
from proba.threads import set_threads

REPORTS = 60
"""Points of a loss curve that are kept."""
SCORES = ("rra@1", "rra@5", "rta@1", "rta@5")


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What is noted, and when."""

    marks: Sequence[float]
    """Shares of the iterations after which errors are noted."""
    refined: bool = False
    """Also refine the world that is best at the time, and note its errors."""


def trace_case(case: Case, options: SolveOptions, trace: Trace, cache: Path, threads: int) -> dict:
    """`curves`: iteration and loss of every world. `marks`: errors of every world on the way.

    Of sets with several pieces the largest is followed.
    """
    set_threads(threads)
    matches, truth = case.load(options.seed, cache, threads)
    graph = build_view_graphs(matches, options.graph)[0][0]
    cameras = make_setup([matches.images[k] for k in graph.images], options.cameras)
    solver = Solver(make_problem(matches, graph, options.solver, cameras=cameras, seed=options.seed), options.solver)
    names = [matches.images[k].name for k in graph.images]
    left = sorted(trace.marks)
    due = lambda progress: left and progress.iteration >= round(left[0] * options.solver.iterations)
    marks: list[dict] = []

    def note(progress: Progress) -> None:
        share = None
        while due(progress):
            share = left.pop(0)
        if share is None:
            return
        solutions = solver.solutions()
        worlds = {one.name: {"loss": one.loss, **pose_scores(names, one.cam_from_world, truth)} for one in solutions}
        mark = {"share": share, "iteration": progress.iteration, "best": solutions[0].name, "worlds": worlds}
        if trace.refined:
            mark["refined"] = _refined(matches, solutions[0], truth, options.seed)
        marks.append(mark)

    solver.run(note)
    return {"curves": {name: _thinned(curve) for name, curve in solver.history.items()}, "marks": marks}


def _refined(matches: Matches, solution: Solution, truth: GroundTruth, seed: int) -> dict:
    """Errors after the refinement of one world; empty where it fails."""
    options = RefineOptions()
    options = replace(options, growing=replace(options.growing, enabled=False))
    try:
        result = refine(matches, [solution], options, seed=seed)
    except GeometryError:
        return {}
    scores = evaluate([result.reconstruction], truth, cloud=False)
    return {key: scores[key] for key in SCORES}


def _thinned(curve: Sequence[Sequence[float]]) -> list[list[float]]:
    """About `REPORTS` points of a curve, the last among them."""
    step = max(1, len(curve) // REPORTS)
    return [list(point) for point in curve[::-1][::step][::-1]]
