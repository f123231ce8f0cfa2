"""Isotropic against anisotropic Gaussians."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from proba.bench.cases import Case, cases, shortened, solve_case, with_solver
from proba.bench.charts import bars
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, mean_score, table
from proba.presets import preset

Kind = Literal["isotropic", "anisotropic"]
KINDS: tuple[Kind, ...] = ("isotropic", "anisotropic")
SMALL_BATCH = ((0.0, 16),)
SMALL_SCENE = 10
"""Images of the scene: torch on a processor is slow."""


def plan(options: RunOptions) -> list[Row]:
    """Both kinds for each case and seed, in the reference objective, since the kernel has only one of them."""
    photos = ("eth3d_pipes",) if not options.quick or options.sets else ()
    return [
        _row(replace(case, images=case.images and SMALL_SCENE), seed, kind, options)
        for case in cases(options, scenes=("object",), photos=photos)
        for seed in options.seeds_or((0,))
        for kind in KINDS
    ]


def _row(case: Case, seed: int, kind: Kind, options: RunOptions) -> Row:
    settings = shortened(replace(preset("paper"), seed=seed), quick=True)
    objective = replace(settings.solver.objective, gaussians=kind)
    settings = with_solver(settings, objective=objective, backend="reference", batch=SMALL_BATCH)
    return Row(
        settings={"set": case.name, "gaussians": kind, "iterations": settings.solver.iterations, "seed": seed},
        work=solve_case,
        arguments=(case, settings, options.cache, options.threads),
    )


def tables(rows: list[dict]) -> str:
    """One line a set and kind."""
    lines = [
        (name, kind, *(mean_score(group, key) for key in ("rra@5", "rta@5", "rra@10", "rta@10")))
        for (name, kind), group in grouped(rows, "set", "gaussians").items()
    ]
    return table(("set", "Gaussians", "RRA@5", "RTA@5", "RRA@10", "RTA@10"), lines)


def draw(rows: list[dict], path: Path) -> None:
    """RTA@5 by set and kind."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    of = grouped(rows, "set", "gaussians")
    bars(
        path,
        sets,
        {kind: [mean_score(of.get((name, kind), []), "rta@5") for name in sets] for kind in KINDS},
        ylabel="RTA@5 (%)",
    )


EXPERIMENT = Experiment(
    name="isotropy",
    title="Isotropic and anisotropic Gaussians",
    about="""`--preset paper` with either kind, in 3,000 iterations of 16 matches an edge: anisotropic Gaussians exist
only in the torch objective, which is slow. No map of points is compared, only poses.""",
    quoted=(
        Quoted(
            source="the paper, Table 5: ETH3D, mean of 13 scenes",
            header=("Gaussians", "RRA@5", "RTA@5"),
            rows=(("isotropic", 97.9, 91.4), ("anisotropic", 0.4, 0.0)),
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    caption="RTA@5 of either kind",
)
