"""Errors over the iterations, with and without the refinement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from proba.bench.cases import Case, cases, shortened
from proba.bench.charts import lines
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, table
from proba.bench.tracing import Trace, trace_case
from proba.presets import preset
from proba.solve_options import PAPER

MARKS = (0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0)
QUICK_MARKS = (0.03, 0.1, 0.3, 0.6, 1.0)
PRESETS = ("paper", "strict")
FIRST = "fov45"
"""The world that is not the mirror world: what is left without mirror symmetry regularisation."""
LONG = ("room", "eth3d_pipes", "dtu_scan24")
"""Cases on which the small version has the paper's schedule in its full length too."""


def plan(options: RunOptions) -> list[Row]:
    """The paper's preset and our strict one on each case; the long runs come last."""
    small = options.quick and not options.sets
    scenes = ("room",) if small else ("object", "ring", "room")
    every = cases(options, scenes=scenes, photos=("eth3d_pipes", "dtu_scan24"))
    seeds = options.seeds_or((0,), (0,))
    rows = [_row(case, seed, name, options) for case in every for seed in seeds for name in PRESETS]
    if options.quick:
        whole = replace(options, quick=False)
        rows += [_row(case, seeds[0], PAPER, whole, refined=False) for case in every if case.name in LONG]
    return rows


def _row(case: Case, seed: int, name: str, options: RunOptions, *, refined: bool = True) -> Row:
    settings = shortened(replace(preset(name), seed=seed), quick=options.quick)
    trace = Trace(marks=QUICK_MARKS if options.quick else MARKS, refined=refined)
    return Row(
        settings={"set": case.name, "preset": name, "iterations": settings.solver.iterations, "seed": seed},
        work=trace_case,
        arguments=(case, settings, trace, options.cache, options.threads),
    )


def tables(rows: list[dict]) -> str:
    """RRA@5 / RTA@5 of the best world at each mark, before and after the refinement."""
    parts = []
    for (name,), group in grouped([row for row in rows if "marks" in row], "set").items():
        shares = sorted({mark["share"] for row in group for mark in row["marks"]})
        body = []
        for row in group:
            at = {mark["share"]: mark for mark in row["marks"]}
            title = f"{row['preset']}, {row['iterations']} iterations"
            body.append((title, *(_pair(_best(at[x])) if x in at else "-" for x in shares)))
            if row["preset"] == PAPER:
                first = [_pair(at[x]["worlds"][FIRST]) if x in at else "-" for x in shares]
                body.append((f"{title}: 45 degrees alone", *first))
            if any("refined" in mark for mark in row["marks"]):
                body.append((f"{title}: refined", *(_pair(at[x].get("refined")) if x in at else "-" for x in shares)))
        parts.append(f"{name}\n\n" + table(("RRA@5 / RTA@5 after", *(f"{100 * x:.0f} %" for x in shares)), body))
    return "\n".join(parts)


def _best(mark: dict) -> dict:
    return mark["worlds"][mark["best"]]


def _pair(scores: dict | None) -> str:
    return f"{scores['rra@5']:.0f} / {scores['rta@5']:.0f}" if scores else "-"


def draw(rows: list[dict], path: Path) -> None:
    """RTA@5 over the iterations, a panel for each set."""
    panels: dict[str, dict] = {}
    for row in rows:
        x = [mark["iteration"] for mark in row["marks"]]
        curves = panels.setdefault(row["set"], {})
        title = f"{row['preset']}, {row['iterations']}"
        curves[title] = (x, [_best(mark)["rta@5"] for mark in row["marks"]])
        if any("refined" in mark for mark in row["marks"]):
            curves[f"{title}, refined"] = (x, [mark["refined"].get("rta@5", 0.0) for mark in row["marks"]])
    lines(path, panels, xlabel="iteration", ylabel="RTA@5 (%)", log_x=True)


EXPERIMENT = Experiment(
    name="convergence",
    title="Errors over the iterations",
    about="""The world that the solver prefers at the time (the paper's preset: by its loss, ours: by epipolar support),
as it is, and after our refinement from there. 45 degrees alone: the world without the mirror world. The small version
has the paper's schedule in 3,000 iterations with steps five times as large, and all also in its full length of
30,000.""",
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
