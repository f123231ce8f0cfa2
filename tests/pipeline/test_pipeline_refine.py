"""The refinement alone from what the solver left, without it, and in the strict regime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proba.errors import InputError
from proba.io.solver_folder import open_solver_folder
from proba.matches import Matches
from proba.pipeline import SolveOptions, refine_solved, solve_matches
from proba.reconstruction import Reconstruction
from proba.refine import CameraModelOptions, GrowOptions, RefineOptions, TrackOptions, WorldOptions
from proba.solver import SolverOptions
from proba.synthetic import Scene, make_scene, scene_matches

FAST = RefineOptions(tracks=TrackOptions(adjusted=500, final=500, points=500))


@pytest.fixture(scope="module")
def scene() -> Scene:
    return make_scene("object", n_images=5, seed=0)


@pytest.fixture(scope="module")
def matches(scene: Scene) -> Matches:
    return scene_matches(scene, grid=20, seed=0)


def assert_same(a: Reconstruction, b: Reconstruction) -> None:
    assert np.array_equal(a.cam_from_world, b.cam_from_world) and np.array_equal(a.pose_std, b.pose_std)
    assert np.array_equal(a.points.xyz, b.points.xyz) and np.array_equal(a.points.sigma, b.points.sigma)
    assert a.log_depth is not None and b.log_depth is not None and np.array_equal(a.log_depth, b.log_depth)
    assert [list(camera.params) for camera in a.cameras] == [list(camera.params) for camera in b.cameras]


@pytest.mark.parametrize("never_sure", [False, True])
def test_the_refinement_alone_gives_the_same_bits(tmp_path: Path, matches: Matches, never_sure: bool) -> None:
    """Also where the solver had to start again."""
    options = replace(FAST, worlds=WorldOptions(good_share=1.1, most=1)) if never_sure else FAST
    settings = SolveOptions(solver=SolverOptions(iterations=100), refine=options)
    whole = solve_matches(matches, settings, keep=tmp_path)
    alone, restored = refine_solved(open_solver_folder(tmp_path), matches, options)
    assert restored == settings
    assert_same(whole.best, alone.best)
    assert alone.pieces[0].hypotheses == whole.pieces[0].hypotheses
    assert alone.pieces[0].iterations == whole.pieces[0].iterations
    assert (tmp_path / "solver" / "piece0-again.npz").exists() == never_sure


def test_stages_can_be_left_out_one_by_one_or_all(tmp_path: Path, matches: Matches) -> None:
    solve_matches(matches, SolveOptions(solver=SolverOptions(iterations=100), refine=FAST, longer=1), keep=tmp_path)
    no_model = CameraModelOptions(principal_point="centre", distortion="none")
    plain, _ = refine_solved(open_solver_folder(tmp_path), matches, replace(FAST, camera_model=no_model))
    assert plain.best.cameras[0].model == "SIMPLE_PINHOLE"
    bare, settings = refine_solved(open_solver_folder(tmp_path), matches, replace(FAST, enabled=False))
    assert not settings.refine.enabled
    run = open_solver_folder(tmp_path).load(0)
    assert run is not None
    solver = run.solutions[0]
    assert [hypothesis.name for hypothesis in bare.pieces[0].hypotheses if hypothesis.chosen] == [solver.name]
    rotation = solver.cam_from_world[:, :3, :3] @ solver.cam_from_world[solver.graph.root, :3, :3].T
    assert np.allclose(bare.best.cam_from_world[:, :3, :3], rotation, atol=1e-12)
    assert np.allclose(bare.best.cameras[0].focal_px, solver.focal_px[0], rtol=1e-12)
    assert len(bare.best.points.xyz) > 100
    assert np.isfinite(bare.best.points.sigma).all() and np.isfinite(bare.best.pose_std).all()


def test_other_matches_are_refused(tmp_path: Path, scene: Scene, matches: Matches) -> None:
    solve_matches(matches, SolveOptions(solver=SolverOptions(iterations=20), refine=FAST, longer=1), keep=tmp_path)
    with pytest.raises(InputError, match="not the matches"):
        refine_solved(open_solver_folder(tmp_path), scene_matches(scene, grid=20, seed=1), FAST)


@pytest.mark.parametrize("hypotheses", ["portfolio", "cold"])
def test_a_grown_world_has_a_name_of_its_own_and_never_comes_from_the_strict_regime(
    matches: Matches, hypotheses: str
) -> None:
    """Worlds of two iterations know nothing: the portfolio begins anew from the strongest pair."""
    solver = SolverOptions(iterations=2, two_view_world=False, hypotheses=hypotheses)  # type: ignore[arg-type]
    never_sure = replace(
        FAST, worlds=WorldOptions(good_share=1.1, most=1), growing=GrowOptions(sure_share=2.0, clear_gain=-1)
    )
    piece = solve_matches(matches, SolveOptions(solver=solver, refine=never_sure, longer=1)).pieces[0]
    chosen = [hypothesis.name for hypothesis in piece.hypotheses if hypothesis.chosen]
    if hypotheses == "cold":
        assert "grown" not in [hypothesis.name for hypothesis in piece.hypotheses]
        assert len(chosen) == 1 and chosen[0].startswith("fov45")
    else:
        assert chosen == ["grown"]
        assert piece.hypotheses[-1].explained_share is not None
