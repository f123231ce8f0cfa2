"""Losses of both worlds over the iterations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from proba.bench.cases import PHOTOS, Case, cases, shortened
from proba.bench.charts import lines
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, table
from proba.bench.tracing import Trace, trace_case
from proba.presets import preset

MARKS = (0.2, 1.0)
"""Soon after where the paper sees both worlds part, and the end."""


def plan(options: RunOptions) -> list[Row]:
    """The paper's preset on each case and seed; on photos in its full length also in the small version."""
    small, seeds = options.quick and not options.sets, options.seeds_or((0,))
    scenes, photos = (("ring",), ("dtu_scan24",)) if small else (("object", "ring"), PHOTOS)
    return [
        _row(case, seed, options if case.photos is None else replace(options, quick=False))
        for case in cases(options, scenes=scenes, photos=photos)
        for seed in seeds
    ]


def _row(case: Case, seed: int, options: RunOptions) -> Row:
    settings = shortened(replace(preset("paper"), seed=seed), quick=options.quick)
    return Row(
        settings={"set": case.name, "iterations": settings.solver.iterations, "seed": seed},
        work=trace_case,
        arguments=(case, settings, Trace(marks=MARKS), options.cache, options.threads),
    )


def tables(rows: list[dict]) -> str:
    """Loss and errors of both worlds at a sixth of the iterations and at the end."""
    body = []
    for row in (row for row in rows if "marks" in row):
        for mark in row["marks"]:
            for name, world in sorted(mark["worlds"].items()):
                chosen = "yes" if name == mark["best"] else "no"
                errors = f"{world['rra@5']:.0f} / {world['rta@5']:.0f}"
                body.append((row["set"], row["seed"], mark["iteration"], name, world["loss"], errors, chosen))
    return table(("set", "seed", "iteration", "world", "L_world", "RRA@5 / RTA@5", "lower loss"), body)


def draw(rows: list[dict], path: Path) -> None:
    """A panel for each set, of its first seed."""
    panels: dict[str, dict] = {}
    for row in rows:
        curves = {name: tuple(zip(*curve, strict=True)) for name, curve in row["curves"].items()}
        panels.setdefault(row["set"], curves)
    lines(path, panels, xlabel="iteration", ylabel="L_world")


EXPERIMENT = Experiment(
    name="worlds",
    title="Losses of both worlds",
    about="""`--preset paper`: the loss of the world that starts at 45 degrees and of its mirror world, and how right
each is. `L_world` has each world's own edge weights. The small version has the paper's schedule in 3,000
iterations on the synthetic ring, and in full length on photos.""",
    quoted=(
        Quoted(
            source="the paper, Figure 7",
            claim="Both losses fall alike up to about iteration 5,000 of 30,000; then the mirrored world gets stuck at "
            "a higher loss, and the true one goes on.",
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    fresh=False,
    caption="Loss of both worlds over the iterations",
)
