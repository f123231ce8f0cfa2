"""The experiment on rigs and panoramas: its plan, and the page of finished rows."""

from proba.bench.experiment import RunOptions
from proba.bench.experiments import load_experiment
from proba.bench.runner import page


def test_the_plan_has_different_rows_and_a_page(tmp_path):
    experiment = load_experiment("rigged")
    plan = experiment.plan(RunOptions())
    assert (
        len({tuple(row.settings.items()) for row in plan}) == len(plan) > len(experiment.plan(RunOptions(quick=True)))
    )
    scores = {f"{kind}@{x}": 50.0 for kind in ("rra", "rta", "auc") for x in (1, 5)}
    rows = [{**row.settings, **scores, "pieces": 1, "registered": 16} for row in plan]
    text = page(experiment, [*rows[:-1], {**plan[-1].settings, "error": "it failed"}], "x.png")
    assert "it failed" in text and "turned 60: folders" in text and "nan" not in text
    experiment.draw(rows[:-1], tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000
