"""Density of the view graph against the weight of the 3D term."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from proba.bench.cases import Case, cases, shortened, solve_case, with_w_3d
from proba.bench.charts import heat_maps
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, mean_score, table
from proba.graph import GraphOptions
from proba.presets import preset
from proba.solve_options import SolveOptions

NEIGHBOURS = (2, 5, 10, 20, 30)
"""N_neig; 2 is little more than the tree."""
WEIGHTS = (0.0, 0.1, 1.0, 10.0)
QUICK_NEIGHBOURS, QUICK_WEIGHTS = (2, 5, 20), (0.0, 1.0, 10.0)


def plan(options: RunOptions) -> list[Row]:
    """A grid for each case and seed."""
    chosen = cases(options, scenes=("ring",), photos=() if options.quick and not options.sets else ("dtu_scan24",))
    return [
        _row(case, seed, n_neig, w_3d, options)
        for case in chosen
        for seed in options.seeds_or((0,))
        for n_neig in (QUICK_NEIGHBOURS if options.quick else NEIGHBOURS)
        for w_3d in (QUICK_WEIGHTS if options.quick else WEIGHTS)
    ]


def grid_options(n_neig: int, w_3d: float) -> SolveOptions:
    """The paper's settings with another graph and another weight."""
    graph: GraphOptions = replace(preset("paper").graph, n_neig=n_neig)
    return with_w_3d(replace(preset("paper"), graph=graph), w_3d)


def _row(case: Case, seed: int, n_neig: int, w_3d: float, options: RunOptions) -> Row:
    settings = shortened(replace(grid_options(n_neig, w_3d), seed=seed), quick=options.quick)
    return Row(
        settings={
            "set": case.name,
            "n_neig": n_neig,
            "w_3d": w_3d,
            "iterations": settings.solver.iterations,
            "seed": seed,
        },
        work=solve_case,
        arguments=(case, settings, options.cache, options.threads),
    )


def tables(rows: list[dict]) -> str:
    """A table for each set: neighbours down, weights across."""
    weights = sorted({row["w_3d"] for row in rows})
    parts = []
    for (name,), group in grouped(rows, "set").items():
        of = grouped(group, "n_neig", "w_3d")
        lines = [
            (str(n), *(mean_score(of.get((n, w), []), "rta@5") for w in weights))
            for n in sorted({row["n_neig"] for row in group})
        ]
        parts.append(f"{name}, RTA@5:\n\n" + table(("N_neig", *(f"W_3D {w:g}" for w in weights)), lines))
    return "\n".join(parts)


def draw(rows: list[dict], path: Path) -> None:
    """RTA@5 of every grid."""
    weights, counts = (sorted({row[key] for row in rows}) for key in ("w_3d", "n_neig"))
    panels = {}
    for (name,), group in grouped(rows, "set").items():
        of = grouped(group, "n_neig", "w_3d")
        panels[f"{name}: RTA@5"] = np.array(
            [[mean_score(of.get((n, w), []), "rta@5") for w in weights] for n in counts]
        )
    heat_maps(path, panels, x=[f"{w:g}" for w in weights], y=[str(n) for n in counts], xlabel="W_3D", ylabel="N_neig")


EXPERIMENT = Experiment(
    name="density",
    title="Density of the graph and weight of the 3D term",
    about="""`--preset paper` with other numbers of neighbours and other weights of the 3D term. The small version has
one synthetic ring of 24 images and 3,000 iterations.""",
    quoted=(
        Quoted(
            source="the paper, Figure 4 left",
            claim="Without the 3D term every graph fails; a weight of 1 is best for every graph; accuracy rises with "
            "the number of neighbours up to 20 and stays there.",
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    fresh=False,
    caption="RTA@5 by number of neighbours and weight of the 3D term",
)
