"""A share of the matches is gross nonsense."""

from __future__ import annotations

from pathlib import Path

from proba.bench.charts import lines
from proba.bench.disturb import with_outliers
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, mean_score, table
from proba.bench.measure import DEFAULT, STRICT, Source, regime, solve_and_score, sources

QUICK_SHARES, SHARES = (0.0, 0.4, 0.6, 0.8), (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
QUICK_SCENES, SCENES = ("room",), ("object", "ring", "room")
SETS = ("strecha_fountain_p11",)


def plan(options: RunOptions) -> list[Row]:
    return [
        Row(
            settings={"scene": source.name, "regime": name, "outliers": share, "seed": seed},
            work=measure,
            arguments=(source, name, share, seed, options),
        )
        for source in sources(options, QUICK_SCENES if options.quick else SCENES, SETS)
        for name in (STRICT, DEFAULT)
        for share in (QUICK_SHARES if options.quick else SHARES)
        for seed in options.seeds_or((0,))
    ]


def measure(source: Source, name: str, share: float, seed: int, options: RunOptions) -> dict:
    """One solve. Photos are not looked at."""
    matches, truth = source.load(seed, options)
    return solve_and_score(with_outliers(matches, share, seed), truth, regime(name, seed), cloud=False)


def tables(rows: list[dict]) -> str:
    shares = sorted({row["outliers"] for row in rows})
    body = [
        [f"{scene}, {name}", *(_cell([row for row in group if row["outliers"] == share]) for share in shares)]
        for (scene, name), group in grouped(rows, "scene", "regime").items()
    ]
    return "RTA@5 / AUC@1, mean over seeds.\n\n" + table(["", *(f"{100 * share:g} %" for share in shares)], body)


def _cell(rows: list[dict]) -> str:
    return f"{mean_score(rows, 'rta@5'):.0f} / {mean_score(rows, 'auc@1'):.0f}" if rows else "-"


def draw(rows: list[dict], path: Path) -> None:
    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {"RTA@5": {}, "AUC@1": {}}
    for (scene, name), group in grouped(rows, "scene", "regime").items():
        shares = grouped(group, "outliers")
        for title, curves in panels.items():
            values = [mean_score(some, title.lower()) for some in shares.values()]
            curves[f"{scene}, {name}"] = ([100 * share for (share,) in shares], values)
    lines(path, panels, xlabel="gross outliers (%)", ylabel="%")


EXPERIMENT = Experiment(
    name="outliers",
    title="Gross outliers",
    about="""A share of the matches of every pair has its target at a random place of the other image. Nothing is
verified before the solve, and photos are not looked at.""",
    quoted=(
        Quoted(
            source="the paper, appendix",
            claim="It has no table of gross outliers. It says that they get large variances instead of bending the "
            "geometry, and shows sigma up to 1,000 px in its experiment on noise.",
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    fresh=False,
    caption="Accuracy against the share of gross outliers",
)
