"""The paper's components one by one, then our own changes one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from proba.bench.cases import Case, cases, pose_scores, shortened, solve_case, with_solver, with_w_3d
from proba.bench.charts import bars
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, mean_score, table
from proba.cameras import make_setup
from proba.graph import build_view_graphs
from proba.presets import LADDER, preset
from proba.refine import AdjustOptions, Refinement, RefineOptions, Round
from proba.solve_options import SolveOptions
from proba.solver import Solver, make_problem
from proba.threads import set_threads

CLASSICAL = "classical BA"
COMPONENTS = {
    "none": "",
    "RP": "RP",
    "SSC": "SSC",
    "SSC, RP": "SSC RP",
    "SSC, RP, AEW": "SSC RP AEW",
    "SSC, RP, AEW, MSR": "SSC RP AEW MSR",
}
"""Rows of the paper's table, and the components that are on; all of them are the preset `paper`."""
CLAIMS = (
    ("soft spatial constraint (SSC)", "RP", "SSC, RP", "84.7 / 17.9"),
    ("relative poses (RP)", "SSC", "SSC, RP", "32.5 / -2.6"),
    ("adaptive edge weights (AEW)", "SSC, RP", "SSC, RP, AEW", "5.0 / 0.1"),
    ("mirror symmetry regularisation (MSR)", "SSC, RP, AEW", "SSC, RP, AEW, MSR", "0.0 / 71.6"),
)
"""Component, the row without it, the row with it, and the paper's gain in RTA@5 on ETH3D and DTU."""
CLEAR = 5.0
"""Gain in RTA@5, in points, that counts as one."""
LADDER_SETS = ("dtu_scan24", "eth3d_pipes")
EVERYTHING = Round(loss_px=20.0, keep_px=1e9, iterations=100)
"""A classical adjustment: a robust loss, and no observation is thrown out."""


def component_options(active: str) -> SolveOptions:
    """The paper's settings with only some components on, named with spaces between."""
    on, options = active.split(), preset("paper")
    if "SSC" not in on:
        options = with_w_3d(options, 0.0)
    if "RP" not in on:
        options = with_solver(options, poses="absolute")
    if "AEW" not in on:
        options = with_solver(options, adaptive_weights=False)
    return options if "MSR" in on else with_solver(options, mirror="off")


def plan(options: RunOptions) -> list[Row]:
    """Every case and seed with every component, then the ladder from the paper's preset to the default."""
    seeds = options.seeds_or((0,))
    every = cases(options)
    rows = [
        _row(case, seed, name, shortened(component_options(active), quick=options.quick), options)
        for case in every
        for seed in seeds
        for name, active in COMPONENTS.items()
    ]
    rows += [_classical_row(case, seed, options) for case in every for seed in seeds]
    climbing = [case for case in every if not options.quick or options.sets or case.name in ("object", *LADDER_SETS)]
    return rows + [
        _row(case, seed, step.name, shortened(preset(step.name), quick=options.quick), options)
        for case in climbing
        for seed in seeds
        for step in LADDER
    ]


def _row(case: Case, seed: int, variant: str, settings: SolveOptions, options: RunOptions) -> Row:
    return Row(
        settings={
            "set": case.name,
            "kind": case.kind,
            "variant": variant,
            "iterations": settings.solver.iterations,
            "seed": seed,
        },
        work=solve_case,
        arguments=(case, replace(settings, seed=seed), options.cache, options.threads),
    )


def _classical_row(case: Case, seed: int, options: RunOptions) -> Row:
    return Row(
        settings={"set": case.name, "kind": case.kind, "variant": CLASSICAL, "iterations": 0, "seed": seed},
        work=classical_adjustment,
        arguments=(case, seed, options.cache, options.threads),
    )


def classical_adjustment(case: Case, seed: int, cache: Path, threads: int) -> dict:
    """Bundle adjustment of point tracks from the solver's own start: poses at the identity, points at depth 1."""
    set_threads(threads)
    matches, truth = case.load(seed, cache, threads)
    settings = preset("paper")
    graph = build_view_graphs(matches, settings.graph)[0][0]
    cameras = make_setup([matches.images[k] for k in graph.images], settings.cameras)
    problem = make_problem(matches, graph, settings.solver, cameras=cameras, seed=seed)
    start = Solver(problem, settings.solver).solutions()[0]
    options = RefineOptions(adjust=AdjustOptions(annealed=(EVERYTHING,)))
    world = Refinement(matches, graph, options, seed=seed).polish([start]).worlds[0]
    names = [matches.images[k].name for k in graph.images]
    return pose_scores(names, world.bundle.cam_from_world, truth)


def tables(rows: list[dict]) -> str:
    """The paper's table, what it says of the claims, and the ladder."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    by_variant = grouped(rows, "variant")
    ladder = ["SSC, RP, AEW, MSR", *(step.name for step in LADDER)]
    climbed = [name for name in sets if any(row["set"] == name and row["variant"] == "1-gauge" for row in rows)]
    adds = {"SSC, RP, AEW, MSR": "the paper", **{step.name: step.adds for step in LADDER}}
    steps = table(
        ("preset", "adds", *climbed),
        [
            (name.replace(", ", "+") if name in COMPONENTS else name, adds[name], *_cells(by_variant, name, climbed))
            for name in ladder
        ],
    )
    seeds = len({row["seed"] for row in rows})
    return (
        f"RRA@5 / RTA@5, mean of {seeds} seed{'s' * (seeds > 1)}.\n\n"
        + table(("components", *sets), [(name, *_cells(by_variant, name, sets)) for name in (CLASSICAL, *COMPONENTS)])
        + "\nWhat each component brings, in points of RTA@5:\n\n"
        + table(("component", "synthetic", "photos", "paper: ETH3D / DTU", "verdict"), _verdicts(rows))
        + (f"\nOur own changes on top of each other:\n\n{steps}" if climbed else "")
    )


def _cells(by_variant: dict[tuple, list[dict]], variant: str, sets: Sequence[str]) -> list[str]:
    of_set = grouped(by_variant.get((variant,), []), "set")
    return [
        f"{mean_score(of_set[name,], 'rra@5'):.0f} / {mean_score(of_set[name,], 'rta@5'):.0f}"
        if (name,) in of_set
        else "-"
        for name in sets
    ]


def _verdicts(rows: list[dict]) -> list[tuple[str, ...]]:
    found = []
    for component, without, having, paper in CLAIMS:
        gains = [
            _gain([row for row in rows if row["kind"] == kind], without, having) for kind in ("synthetic", "photos")
        ]
        known = [gain for gain in gains if gain is not None]
        best, worst = max(known, default=0.0), min(known, default=0.0)
        verdict = "confirmed" if best > CLEAR else "denied: it harms" if worst < -CLEAR else "denied: no difference"
        found.append((component, *("-" if gain is None else f"{gain:+.1f}" for gain in gains), paper, verdict))
    return found


def _gain(rows: list[dict], without: str, having: str) -> float | None:
    """Mean gain in RTA@5."""
    of = grouped(rows, "variant")
    if (without,) not in of or (having,) not in of:
        return None
    return mean_score(of[having,], "rta@5") - mean_score(of[without,], "rta@5")


def draw(rows: list[dict], path: Path) -> None:
    """RTA@5 by variant, synthetic scenes and photos apart."""
    variants = [CLASSICAL, *COMPONENTS, *(step.name for step in LADDER)]
    series = {}
    for kind, group in grouped(rows, "kind").items():
        of = grouped(group, "variant")
        series[str(kind[0])] = [mean_score(of.get((name,), []), "rta@5") for name in variants]
    bars(path, variants, series, ylabel="RTA@5 (%)")


EXPERIMENT = Experiment(
    name="ablation",
    title="What each component brings",
    about="""The paper's components: soft spatial constraint (SSC; off: no 3D term), relative poses along the tree (RP;
off: absolute poses), adaptive edge weights (AEW), mirror world (MSR). All four are `--preset paper`. Classical BA
adjusts point tracks by their reprojection errors from the same cold start. Then our own changes, each on top of those
before, up to the default. The small version runs the paper's schedule in 3,000 iterations with steps five times as
large, the ladder on three sets. Photos are matched by the default matcher, not by DKM; a component is confirmed where
it brings more than 5 points of RTA@5 on synthetic scenes or on photos.""",
    quoted=(
        Quoted(
            source="the paper, Table 3: RRA@5 / RTA@5",
            header=("components", "ETH3D", "DTU"),
            rows=(
                (CLASSICAL, "3.6 / 1.6", "18.8 / 8.3"),
                ("none", "5.6 / 2.3", "0 / 0.4"),
                ("RP", "5.6 / 1.7", "0 / 0.4"),
                ("SSC", "61.9 / 53.9", "21.7 / 20.9"),
                ("SSC, RP", "92.4 / 86.4", "20.0 / 18.3"),
                ("SSC, RP, AEW", "97.9 / 91.4", "21.4 / 18.4"),
                ("SSC, RP, AEW, MSR", "97.9 / 91.4", "99.4 / 90.0"),
            ),
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    caption="RTA@5 by variant",
)
