"""The paper's components one by one, then our own changes one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from proba.bench.cases import Case, cases, pose_scores, shortened, solve_case, with_solver, with_w_3d
from proba.bench.charts import heat_maps
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, mean_score, score, table
from proba.cameras import make_setup
from proba.graph import build_view_graphs
from proba.presets import LADDER, preset
from proba.refine import AdjustOptions, Refinement, RefineOptions, Round
from proba.solve_options import SolveOptions
from proba.solver import Solver, make_problem
from proba.threads import set_threads

CLASSICAL = {"classical BA, squares": 1e6, "classical BA, Cauchy loss": 20.0}
"""Adjustments of point tracks, and the width of their loss in pixels: as good as none, or narrow."""
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
WHOLE = "SSC, RP, AEW, MSR"
"""All components: the preset `paper`."""
CLEAR = 5.0
"""Gain in RTA@5, in points, that counts as one if it is also two standard errors."""
FAILS, SUCCEEDS = 5.0, 95.0
"""RTA@5 below and above which nothing can be said of a part."""
LADDER_SETS = ("dtu_scan24", "eth3d_pipes")
EVERYTHING_PX, CLASSICAL_STEPS = 1e9, 100
"""A classical adjustment throws no observation out."""


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
    """Every case with every component, from the first seed; then the ladder from the paper's preset to the default,
    which is long; then the components from further seeds.

    The small version climbs the whole ladder on some sets only, on the others its two highest steps.
    """
    every = cases(options)
    first, *others = options.seeds_or((0, 1, 2))
    rows = _components(every, first, options)
    for seed in options.seeds_or((0,)):
        for case in every:
            whole = not options.quick or bool(options.sets) or case.name in ("object", *LADDER_SETS)
            steps = LADDER if whole else LADDER[-2:]
            rows += [_row(case, seed, step.name, preset(step.name), options) for step in steps]
    return rows + [row for seed in others for row in _components(every, seed, options)]


def _components(every: Sequence[Case], seed: int, options: RunOptions) -> list[Row]:
    """The rows of the paper's table."""
    rows: list[Row] = []
    for case in every:
        rows += [_row(case, seed, name, component_options(active), options) for name, active in COMPONENTS.items()]
        rows += [_classical_row(case, seed, name, loss_px, options) for name, loss_px in CLASSICAL.items()]
    return rows


def _row(case: Case, seed: int, variant: str, settings: SolveOptions, options: RunOptions) -> Row:
    """One run. On photos the paper's schedule needs its full length, also in the small version."""
    settings = shortened(settings, quick=options.quick and case.photos is None)
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


def _classical_row(case: Case, seed: int, name: str, loss_px: float, options: RunOptions) -> Row:
    return Row(
        settings={"set": case.name, "kind": case.kind, "variant": name, "iterations": 0, "seed": seed},
        work=classical_adjustment,
        arguments=(case, seed, loss_px, options.cache, options.threads),
    )


def classical_adjustment(case: Case, seed: int, loss_px: float, cache: Path, threads: int) -> dict:
    """Bundle adjustment of point tracks from the solver's own start: poses at the identity, points at depth 1."""
    set_threads(threads)
    matches, truth = case.load(seed, cache, threads)
    settings = preset("paper")
    graph = build_view_graphs(matches, settings.graph)[0][0]
    cameras = make_setup([matches.images[k] for k in graph.images], settings.cameras)
    problem = make_problem(matches, graph, settings.solver, cameras=cameras, seed=seed)
    start = Solver(problem, settings.solver).solutions()[0]
    only = Round(loss_px=loss_px, keep_px=EVERYTHING_PX, iterations=CLASSICAL_STEPS)
    options = RefineOptions(adjust=AdjustOptions(annealed=(only,)))
    world = Refinement(matches, graph, options, seed=seed).polish([start]).worlds[0]
    names = [matches.images[k].name for k in graph.images]
    return pose_scores(names, world.bundle.cam_from_world, truth)


def tables(rows: list[dict]) -> str:
    """The paper's table, what it says of the claims, and the ladder."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    parts = [
        f"RRA@5 / RTA@5{_told(_of(rows, COMPONENTS))}.\n",
        _scores(rows, (*CLASSICAL, *COMPONENTS), dict.fromkeys((*CLASSICAL, *COMPONENTS)), sets),
        "What each component brings, in points of RTA@5 (mean of the pairs of runs with and without it, and its "
        "standard error):\n",
        table(("component", "synthetic", "photos", "paper: ETH3D / DTU", "verdict"), _verdicts(rows)),
    ]
    climbing = _of(rows, [step.name for step in LADDER])
    if climbing:
        seeds = {row["seed"] for row in climbing}
        shown = [row for row in rows if row["seed"] in seeds]
        climbed = [name for name in sets if any(row["set"] == name for row in climbing)]
        adds = {WHOLE: "the paper's method", **{step.name: step.adds for step in LADDER}}
        parts += [f"Our own changes on top of each other{_told(climbing)}:\n", _scores(shown, [*adds], adds, climbed)]
    return "\n".join(parts)


def _of(rows: list[dict], variants: Iterable[str]) -> list[dict]:
    wanted = set(variants)
    return [row for row in rows if row["variant"] in wanted]


def _told(rows: list[dict]) -> str:
    """Of how many seeds the numbers are the mean, set by set where they differ."""
    seeds = {name: len({row["seed"] for row in group}) for (name,), group in grouped(rows, "set").items()}
    if len(set(seeds.values())) > 1:
        return ", mean over seeds (" + ", ".join(f"{name}: {count}" for name, count in seeds.items()) + ")"
    count = next(iter(seeds.values()), 0)
    return f", mean of {count} seeds" if count > 1 else ", one seed"


def _scores(rows: list[dict], variants: Sequence[str], adds: Mapping[str, str | None], sets: Sequence[str]) -> str:
    """RRA@5 / RTA@5, a row for each variant, with what it adds where that is told."""
    by_variant = grouped(rows, "variant")
    named = any(adds.values())
    body = [
        (
            "paper" if named and name == WHOLE else name,
            *([adds[name]] if named else []),
            *_cells(by_variant, name, sets),
        )
        for name in variants
    ]
    return table(("preset", "adds", *sets) if named else ("components", *sets), body)


def _cells(by_variant: dict[tuple, list[dict]], variant: str, sets: Sequence[str]) -> list[str]:
    of_set = grouped(by_variant.get((variant,), []), "set")
    return [
        f"{mean_score(of_set[name,], 'rra@5'):.0f} / {mean_score(of_set[name,], 'rta@5'):.0f}"
        if (name,) in of_set
        else "-"
        for name in sets
    ]


def _verdicts(rows: list[dict]) -> list[tuple[str, ...]]:
    """A line for each claim: what was gained on either kind of data, and what follows."""
    found = []
    for component, without, having, paper in CLAIMS:
        gains, verdicts = [], {}
        for kind in ("synthetic", "photos"):
            before, after = _pairs([row for row in rows if row["kind"] == kind], without, having)
            if not len(before):
                gains.append("-")
                continue
            gain, error = float(np.mean(after - before)), _standard_error(after - before)
            gains.append(f"{gain:+.1f} ± {error:.1f}")
            verdicts[kind] = _verdict(before, after, gain, error)
        same = len(set(verdicts.values())) == 1
        verdict = next(iter(verdicts.values())) if same else "; ".join(f"{k}: {v}" for k, v in verdicts.items())
        found.append((component, *gains, paper, verdict or "-"))
    return found


def _verdict(before: np.ndarray, after: np.ndarray, gain: float, error: float) -> str:
    """What a gain says. Where both fail or both succeed, the component could not show what it brings."""
    if gain > max(CLEAR, 2 * error):
        return "confirmed"
    if gain < -max(CLEAR, 2 * error):
        return "denied, it harms"
    if max(before.mean(), after.mean()) < FAILS:
        return "not shown, both fail"
    if min(before.mean(), after.mean()) > SUCCEEDS:
        return "not shown, both succeed"
    return "unclear, runs differ" if gain + 2 * error > CLEAR else "denied, no difference"


def _pairs(rows: list[dict], without: str, having: str) -> tuple[np.ndarray, np.ndarray]:  # [R], [R]
    """RTA@5 of every set and seed that was run without and with a component."""
    of = {key: score(group[0], "rta@5") for key, group in grouped(rows, "variant", "set", "seed").items()}
    both = [key[1:] for key in of if key[0] == without and (having, *key[1:]) in of]
    before, after = (np.array([of[name, *key] for key in both]) for name in (without, having))
    return before, after


def _standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def draw(rows: list[dict], path: Path) -> None:
    """RTA@5 by variant and set, mean over seeds."""
    sets = list(dict.fromkeys(row["set"] for row in rows))
    found = grouped(rows, "variant", "set")
    variants = [name for name in (*CLASSICAL, *COMPONENTS, *(step.name for step in LADDER)) if _of(rows, (name,))]
    values = [[mean_score(found.get((name, one), []), "rta@5") for one in sets] for name in variants]
    heat_maps(path, {"RTA@5": np.array(values)}, x=sets, y=variants, xlabel="", ylabel="")


EXPERIMENT = Experiment(
    name="ablation",
    title="What each component brings",
    about="""The paper's components: soft spatial constraint (SSC; off: no 3D term), relative poses along the tree (RP;
off: absolute poses), adaptive edge weights (AEW), mirror world (MSR). All four are `--preset paper`. Classical BA
adjusts point tracks from the same cold start, by Levenberg and Marquardt: the squares of their reprojection errors, or
a Cauchy loss of 20 px on them. Then our own changes, each on top of those before, up to the default. The small version
runs the paper's schedule in 3,000 iterations with steps five times as large on synthetic scenes, in full length on
photos, and climbs the whole ladder on three sets. Photos are matched by the default matcher, not by DKM. A component
is confirmed where it brings more than 5 points of RTA@5 and more than two standard errors; where all runs fail, or
none, it could not show what it brings.""",
    quoted=(
        Quoted(
            source="the paper, Table 3: RRA@5 / RTA@5",
            header=("components", "ETH3D", "DTU"),
            rows=(
                ("classical BA", "3.6 / 1.6", "18.8 / 8.3"),
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
    fresh=False,
    caption="RTA@5 by variant and set",
)
