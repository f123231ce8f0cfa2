"""Errors over the iterations, with and without the refinement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from proba.bench.cases import Case, cases, shortened
from proba.bench.charts import lines
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, table
from proba.bench.tracing import Trace, trace_case
from proba.presets import preset

MARKS = (0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
PRESETS = ("paper", "strict")


def plan(options: RunOptions) -> list[Row]:
    """The paper's preset and our strict one on each case."""
    quick = options.quick and not options.sets
    scenes, photos = ("object", "room"), ("eth3d_pipes",) if quick else ("eth3d_pipes", "dtu_scan24")
    return [
        _row(case, seed, name, options)
        for case in cases(options, scenes=scenes, photos=photos)
        for seed in options.seeds_or((0,), (0,))
        for name in PRESETS
    ]


def _row(case: Case, seed: int, name: str, options: RunOptions) -> Row:
    settings = shortened(replace(preset(name), seed=seed), quick=options.quick)
    return Row(
        settings={"set": case.name, "preset": name, "iterations": settings.solver.iterations, "seed": seed},
        work=trace_case,
        arguments=(case, settings, Trace(marks=MARKS, refined=True), options.cache, options.threads),
    )


def tables(rows: list[dict]) -> str:
    """RRA@5 / RTA@5 of the best world at each mark, before and after the refinement."""
    parts = []
    for (name,), group in grouped([row for row in rows if "marks" in row], "set").items():
        body = []
        for row in group:
            for when, cells in (("solver", _solver_cells(row)), ("refined", _refined_cells(row))):
                body.append((f"{row['preset']}, {row['iterations']} iterations: {when}", *cells))
        parts.append(f"{name}\n\n" + table(("RRA@5 / RTA@5 after", *(f"{100 * m:.0f} %" for m in MARKS)), body))
    return "\n".join(parts)


def _solver_cells(row: dict) -> list[str]:
    return [_pair(mark["worlds"][mark["best"]]) for mark in row["marks"]]


def _refined_cells(row: dict) -> list[str]:
    return [_pair(mark["refined"]) for mark in row["marks"]]


def _pair(scores: dict) -> str:
    return f"{scores['rra@5']:.0f} / {scores['rta@5']:.0f}" if scores else "-"


def draw(rows: list[dict], path: Path) -> None:
    """RTA@5 over the iterations, a panel for each set."""
    panels: dict[str, dict] = {}
    for row in rows:
        x = [mark["iteration"] for mark in row["marks"]]
        solver = [mark["worlds"][mark["best"]]["rta@5"] for mark in row["marks"]]
        refined = [mark["refined"].get("rta@5", 0.0) for mark in row["marks"]]
        curves = panels.setdefault(row["set"], {})
        curves[row["preset"]] = (x, solver)
        curves[f"{row['preset']}, refined"] = (x, refined)
    lines(path, panels, xlabel="iteration", ylabel="RTA@5 (%)", log_x=True)


EXPERIMENT = Experiment(
    name="convergence",
    title="Errors over the iterations",
    about="""The world that the solver prefers at the time (the paper's preset: by its loss, ours: by epipolar support),
as it is, and after our refinement from there. The small version has the paper's schedule in 3,000 iterations.""",
    quoted=(
        Quoted(
            source="the paper, Figure 10: ETH3D",
            claim="Rapid progress up to about 15,000 of 30,000 iterations, then a long tail.",
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    fresh=False,
    caption="RTA@5 over the iterations, before and after the refinement",
)
