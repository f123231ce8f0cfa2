"""Presets: the paper's values, the ladder to ours, and what the command line makes of them."""

import json
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from proba import api, objective
from proba.cli import main
from proba.errors import InputError, ProbaError
from proba.evaluation import evaluate
from proba.graph import build_view_graphs
from proba.pipeline import solve_matches
from proba.presets import LADDER, PRESETS, preset
from proba.solve_options import SolveOptions, settings_from
from proba.solver import Solver, make_problem, solve_graph
from proba.solver.options import value_at
from proba.synthetic import make_scene, scene_matches


def shortened(options: SolveOptions, iterations: int, step: float) -> SolveOptions:
    """The same schedule in fewer and larger steps."""
    steps = dict.fromkeys(("pose", "depth", "variance", "focal", "focal_separate"), ((0.0, step),))
    sizes = replace(options.solver.step_sizes, **steps)
    return replace(options, solver=replace(options.solver, iterations=iterations, step_sizes=sizes))


def small_scene():
    scene = make_scene("object", n_images=12, seed=0, fov_deg=60.0)
    return scene, scene_matches(scene, grid=24, outliers=0.0, min_matches=20)


def test_paper_preset_has_the_numbers_of_the_paper():
    options = SolveOptions.paper()
    solver, graph = options.solver, options.graph
    assert options == preset("paper") and options.preset == "paper"
    assert (graph.n_neig, graph.weight_power, graph.aux_factor) == (20, 1.0, None)
    assert solver.iterations == 30_000 and solver.pose_steps == "twist" and solver.poses == "relative"
    assert value_at(solver.levels, 0.0) == 32 and solver.variance_maps_from == 0
    assert solver.objective.measure == "paper" and solver.objective.w_3d == 1
    assert solver.weights_from * 30_000 == 5000 and solver.weights_gain / 30_000 == pytest.approx(1e-4)
    assert solver.weights_every == 1 and not solver.normalise_weights
    assert solver.mirror == "regularise" and solver.mirror_lambda == 100
    assert solver.mirror_until * 30_000 == pytest.approx(2000)
    assert solver.outlier_margin is None and not solver.gauge and not solver.roll and not solver.square_pixels
    assert solver.hypotheses == "cold" and solver.cold_fov_deg == 45 and solver.select_by == "loss"
    assert value_at(solver.step_sizes.focal_separate, 0.0) > 0, "free from the start"
    assert not options.refine.enabled and options.longer == 1


def test_ladder_leads_from_the_paper_to_the_default_and_every_step_changes_something():
    assert PRESETS[0] == "paper" and PRESETS[-1] == "default"
    options = [replace(preset(name), preset="") for name in PRESETS]
    assert options[-1] == replace(SolveOptions(), preset="")
    assert all(before != after for before, after in pairwise(options))
    strict = replace(SolveOptions(), solver=replace(SolveOptions().solver, hypotheses="cold", keep=()), preset="strict")
    assert preset("strict") == strict
    assert all(step.adds for step in LADDER)


def test_presets_survive_json():
    for name in PRESETS:
        kept = {key: value for key, value in asdict(preset(name)).items() if key != "refine"}
        again = settings_from(SolveOptions, json.loads(json.dumps(kept)))
        assert replace(again, refine=preset(name).refine) == preset(name)


def test_unknown_preset_is_refused():
    with pytest.raises(InputError, match=r"no preset papper; there are paper, .*default"):
        preset("papper")


@pytest.fixture
def solve_settings(monkeypatch, tmp_path):
    """The settings that `proba solve` with some words would solve with."""

    class Enough(ProbaError):
        """Nothing is solved."""

    found = {}

    def instead(*_, options, **__):
        found["options"] = options
        raise Enough

    monkeypatch.setattr(api, "solve", instead)

    def ask(*words):
        with pytest.raises(SystemExit):
            main(["solve", str(tmp_path / "m.h5"), "--out", str(tmp_path / "out"), *words])
        return found["options"]

    return ask


@pytest.mark.parametrize("word", [["--preset", "paper"], ["--preset=paper"]])
def test_command_line_takes_a_preset(solve_settings, word):
    assert solve_settings(*word) == preset("paper")


@pytest.mark.parametrize("first", [True, False])
def test_what_the_command_line_says_overrides_the_preset(solve_settings, first):
    own = ["--solver.iterations", "500", "--graph.n-neig", "9", "--solver.gauge", "--hypotheses", "portfolio"]
    words = ["--preset", "paper", *own] if first else [*own, "--preset", "paper"]
    paper = preset("paper")
    solver = replace(paper.solver, iterations=500, gauge=True, hypotheses="portfolio")
    assert solve_settings(*words) == replace(paper, solver=solver, graph=replace(paper.graph, n_neig=9))


def test_command_line_without_a_preset_is_the_default(solve_settings):
    assert solve_settings() == SolveOptions()


def test_fused_kernel_equals_the_reference_under_the_papers_settings():
    _, matches = small_scene()
    options = shortened(preset("paper"), 40, 1e-2)
    graph = build_view_graphs(matches, options.graph)[0][0]
    solver = Solver(make_problem(matches, graph, options.solver), options.solver)
    for _ in range(12):
        solver.step()
    j_from_i = solver.tree.edge_poses(solver.worlds.parent_from_child)
    fused = solver._gradients(j_from_i, solver.worlds.edge_weight, 0.5)
    solver.evaluate = objective.evaluate
    reference = solver._gradients(j_from_i, solver.worlds.edge_weight, 0.5)
    for name in ("edge_loss", "grad_pose", "grad_maps", "grad_log_tan"):
        ours, theirs = getattr(fused, name), getattr(reference, name)
        assert (ours - theirs).norm() < 1e-4 * theirs.norm(), name


def test_paper_preset_resumes_to_the_same_bits(tmp_path):
    _, matches = small_scene()
    options = shortened(preset("paper"), 200, 1e-2).solver
    graph = build_view_graphs(matches, preset("paper").graph)[0][0]
    whole = solve_graph(matches, graph, options)
    path = tmp_path / "checkpoint.npz"

    def stop(progress):
        if progress.iteration > 100:
            raise KeyboardInterrupt

    broken = replace(options, checkpoint_seconds=0.0)
    assert solve_graph(matches, graph, broken, checkpoint=path, callback=stop).interrupted
    resumed = solve_graph(matches, graph, options, checkpoint=path, resume=True)
    assert resumed.iteration == 200
    for name, values in whole.worlds.arrays().items():
        assert torch.equal(values, resumed.worlds.arrays()[name]), name


def test_a_small_object_converges_under_the_shortened_paper_preset(tmp_path):
    scene, matches = small_scene()
    options = shortened(preset("paper"), 2500, 5e-3)
    result = solve_matches(matches, options)
    found = evaluate(result.reconstructions, scene.ground_truth(cloud=False), cloud=False)
    assert found["rra@5"] == 100 and found["rta@10"] >= 90
    worlds = result.pieces[0].hypotheses
    assert [world.name for world in worlds] == ["fov45", "fov45-mirror"]
    assert min(worlds, key=lambda world: world.loss).chosen


def test_report_names_the_preset(tmp_path):
    _, matches = small_scene()
    api.solve(matches, out=tmp_path / "out", options=shortened(preset("paper"), 60, 1e-2))
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["preset"] == report["settings"]["preset"] == "paper"


def test_absolute_poses_start_and_move_each_by_itself():
    _, matches = small_scene()
    options = shortened(preset("paper"), 50, 1e-2)
    options = replace(options, solver=replace(options.solver, poses="absolute", mirror="off"))
    graph = build_view_graphs(matches, options.graph)[0][0]
    solver = Solver(make_problem(matches, graph, options.solver), options.solver)
    assert (solver.problem.tree.parent == graph.root).all()
    for _ in range(5):
        solver.step()
    poses = solver.solutions()[0].cam_from_world
    expected = np.linalg.inv(solver.worlds.parent_from_child[0].numpy())
    np.testing.assert_allclose(poses, expected, atol=1e-9)
    np.testing.assert_array_equal(poses[graph.root], np.eye(4))


def test_both_fields_of_view_start_at_45_degrees():
    _, matches = small_scene()
    options = preset("paper").solver
    graph = build_view_graphs(matches, preset("paper").graph)[0][0]
    solution = Solver(make_problem(matches, graph, options), options).solutions()[0]
    info = matches.images[0]
    assert info.width != info.height
    fov = 2 * np.degrees(np.arctan(np.array([info.width, info.height]) / 2 / solution.focal_px))
    np.testing.assert_allclose(fov, 45.0)


def test_settings_that_contradict_each_other_are_refused():
    solver = preset("paper").solver
    with pytest.raises(ValueError, match="square_pixels"):
        replace(solver, square_pixels=True)
    with pytest.raises(ValueError, match="two_view_world"):
        replace(SolveOptions().solver, poses="absolute")
