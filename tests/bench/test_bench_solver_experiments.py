"""Experiments on the solver: their plans, the switches of the ablation, tables of finished rows, small real runs."""

from dataclasses import replace

import numpy as np
import pytest

from proba.bench.cases import QUICK_ITERATIONS, Case, cases, pose_scores, shortened, with_solver
from proba.bench.experiment import RunOptions
from proba.bench.experiments import ablation, load_experiment
from proba.bench.experiments.ablation import CLASSICAL, COMPONENTS, component_options
from proba.bench.runner import page
from proba.bench.tracing import Trace, trace_case
from proba.presets import LADDER, preset
from proba.refine import Refinement
from proba.synthetic import make_scene

NAMES = ("ablation", "density", "isotropy", "convergence", "worlds", "basin")
SMALL = Case(name="object", images=8)
QUICK = RunOptions(quick=True)


def invented(row, number):
    """What the work of a row might have found."""
    scores = {f"{kind}@{x}": float(number % 101) for kind in ("rra", "rta") for x in (1, 5, 10)}
    worlds = {name: {"loss": -1.0, **scores} for name in ("fov45", "fov45-mirror")}
    mark = {"share": 0.1, "iteration": 500, "best": "fov45", "worlds": worlds, "refined": scores}
    curves = {name: [[50, 1.0], [100, -1.0]] for name in worlds}
    return {**row.settings, **scores, "marks": [mark] * 8, "curves": curves}


@pytest.mark.parametrize("name", NAMES)
def test_plans_have_different_rows_and_pages_of_them(name, tmp_path):
    experiment = load_experiment(name)
    plan = experiment.plan(QUICK)
    assert plan and len({tuple(row.settings.items()) for row in plan}) == len(plan)
    assert all("seed" in row.settings and "iterations" in row.settings for row in plan)
    rows = [invented(row, number) for number, row in enumerate(plan)]
    text = page(experiment, [*rows[:-1], {**plan[-1].settings, "error": "it failed"}], "x.png")
    assert "it failed" in text and "Quoted, not measured here" in text and "nan" not in text
    experiment.draw(rows, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_ablation_switches_one_component_at_a_time():
    def switches(active):
        solver = component_options(active).solver
        return (solver.objective.w_3d, solver.poses, solver.adaptive_weights, solver.mirror)

    assert switches("") == (0.0, "absolute", False, "off")
    assert switches("RP") == (0.0, "relative", False, "off")
    assert switches("SSC RP") == (1.0, "relative", False, "off")
    assert switches("SSC RP AEW") == (1.0, "relative", True, "off")
    assert component_options(COMPONENTS["SSC, RP, AEW, MSR"]) == preset("paper")


def test_ablation_says_what_is_confirmed_and_what_is_denied():
    experiment = load_experiment("ablation")
    right = {"RP": 10.0, "SSC": 60.0, "SSC, RP": 90.0, "SSC, RP, AEW": 91.0, "SSC, RP, AEW, MSR": 70.0}
    rows = [
        {"set": "object", "kind": "synthetic", "variant": name, "seed": 0, "rra@5": value, "rta@5": value}
        for name, value in {**dict.fromkeys(CLASSICAL, 0.0), "none": 0.0, **right}.items()
    ]
    lines = [line for line in experiment.tables(rows).splitlines() if "±" in line]
    assert [line.rpartition(" | ")[2].strip(" |") for line in lines] == [
        "confirmed", "confirmed", "denied, no difference", "denied, it harms",
    ]  # fmt: skip
    assert "+80.0" in lines[0] and "-21.0" in lines[3]
    assert "RTA@5, one seed." in experiment.tables(rows)
    more = [*rows, {**rows[-1], "seed": 1}, {**rows[-1], "set": "ring"}]
    assert "mean over seeds (object: 2, ring: 1)" in experiment.tables(more)


def test_ablation_does_not_judge_a_part_where_all_fail_or_the_seeds_scatter_more():
    def verdict(*values):
        rows = [
            {"set": "a", "kind": "photos", "variant": name, "seed": seed, "rta@5": value}
            for seed, pair in enumerate(values)
            for name, value in zip(("RP", "SSC, RP"), pair, strict=True)
        ]
        return ablation._verdicts(rows)[0][-1]

    assert verdict((0.0, 2.0), (1.0, 3.0)) == "not shown, both fail"
    assert verdict((99.0, 98.0), (97.0, 99.0)) == "not shown, both succeed"
    assert verdict((40.0, 90.0), (60.0, 50.0)) == "unclear, runs differ"  # +20 +- 30
    assert verdict((40.0, 61.0), (60.0, 79.0)) == "confirmed"
    assert verdict((61.0, 40.0), (79.0, 60.0)) == "denied, it harms"


def test_small_ablation_has_three_seeds_of_the_claims_and_one_of_the_ladder():
    plan = ablation.plan(QUICK)
    seeds = {name: {row.settings["seed"] for row in plan if row.settings["variant"] == name} for name in COMPONENTS}
    assert set(map(frozenset, seeds.values())) == {frozenset((0, 1, 2))}
    steps = [row.settings for row in plan if row.settings["variant"] in {step.name for step in LADDER}]
    claims = [row.settings["seed"] for row in plan[: -len(steps)]]
    assert claims == sorted(claims), "seed by seed"
    assert {row["seed"] for row in steps} == {0}
    assert {row["set"] for row in steps if row["variant"] == "default"} == {"object", "ring", "room"}


def test_shortening_changes_the_papers_schedule_and_not_ours():
    paper = shortened(preset("paper"), quick=True).solver
    assert paper.iterations == QUICK_ITERATIONS and paper.step_sizes.pose == ((0.0, 1e-2),)
    assert shortened(preset("default"), quick=True) == preset("default")
    assert shortened(preset("paper"), quick=False) == preset("paper")
    assert {step.name for step in LADDER} >= {"1-gauge", "strict", "default"}


def test_sets_choose_among_scenes_and_photos():
    assert [case.name for case in cases(replace(QUICK, sets=("ring",)))] == ["ring"]
    assert [case.name for case in cases(QUICK)] == ["object", "ring", "room"]


def test_scores_of_poses_count_missing_images_as_wrong():
    truth = make_scene("object", n_images=5, seed=0).ground_truth(cloud=False)
    assert pose_scores(truth.names, truth.cam_from_world, truth)["rta@1"] == 100
    some = pose_scores(truth.names[:3], truth.cam_from_world[:3], truth)
    assert some["rra@5"] == pytest.approx(100 * 3 / 10)
    turned = truth.cam_from_world @ np.diag([-1.0, -1.0, 1.0, 1.0])
    assert pose_scores(truth.names, turned, truth)["rra@5"] == 100


def test_classical_adjustment_begins_at_the_cold_start_and_throws_nothing_out(tmp_path, monkeypatch):
    given = {}

    class Watched(Refinement):
        def polish(self, solutions, earlier=None):
            (given["start"],), given["options"] = solutions, self.options
            return super().polish(solutions, earlier)

    monkeypatch.setattr(ablation, "Refinement", Watched)
    scores = ablation.classical_adjustment(Case(name="object", images=5), 0, 20.0, tmp_path, 1)
    start, (only,) = given["start"], given["options"].adjust.annealed
    np.testing.assert_array_equal(start.cam_from_world, np.tile(np.eye(4), (5, 1, 1)))
    assert not start.log_depth.any() and only.keep_px > 1e6 and only.loss_px == 20
    assert all(0 <= value <= 100 for value in scores.values())


def test_a_trace_has_both_worlds_on_the_way(tmp_path):
    options = with_solver(preset("paper"), iterations=100)
    found = trace_case(SMALL, options, Trace(marks=(0.5, 1.0)), tmp_path, 1)
    assert [(mark["share"], mark["iteration"]) for mark in found["marks"]] == [(0.5, 50), (1.0, 100)]
    assert set(found["curves"]) == set(found["marks"][1]["worlds"]) == {"fov45", "fov45-mirror"}
    assert all(0 <= world["rra@5"] <= 100 for world in found["marks"][1]["worlds"].values())


def test_random_starts_and_other_fields_of_view_begin_where_they_say():
    from proba.graph import build_view_graphs
    from proba.solver import Solver, make_problem
    from proba.synthetic import scene_matches

    matches = scene_matches(make_scene("object", n_images=8, seed=0), grid=16, min_matches=10)
    graph = build_view_graphs(matches, preset("paper").graph)[0][0]
    options = with_solver(preset("paper"), cold_fov_deg=80.0, start_sigma=0.3).solver
    poses = [Solver(make_problem(matches, graph, options, seed=seed), options).solutions()[0] for seed in (0, 0, 1)]
    first, same, other = (solution.cam_from_world for solution in poses)
    np.testing.assert_array_equal(first, same)
    assert np.abs(first - other).max() > 0.05 and np.abs(first - np.eye(4)).max() > 0.05
    np.testing.assert_array_equal(first[graph.root], np.eye(4))
    assert poses[0].name == "fov80"


def test_convergence_shows_the_full_schedule_beside_the_short_one():
    experiment = load_experiment("convergence")
    rows = [invented(row, number) for number, row in enumerate(experiment.plan(QUICK))]
    assert [row["iterations"] for row in rows] == [QUICK_ITERATIONS, preset("strict").solver.iterations, 30_000]
    del rows[2]["marks"][0]["refined"]
    rows[2]["marks"] = [{**rows[2]["marks"][0], "share": share} for share in (0.1, 0.35)]
    text = experiment.tables(rows)
    assert "| RRA@5 / RTA@5 after | 10 % | 35 % |" in text and "paper, 3000 iterations: refined" in text
    assert "paper, 30000 iterations | 2 / 2 | 2 / 2 |" in text and "30000 iterations: refined" not in text
