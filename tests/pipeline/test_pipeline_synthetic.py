"""Synthetic scenes end to end, with the field of view never told."""

import itertools

import numpy as np
import pytest

from proba.errors import GeometryError
from proba.evaluation import evaluate
from proba.matches import ImageInfo, Matches
from proba.pipeline import Observer, SolveOptions, solve_matches
from proba.refine import RefineOptions, WorldOptions
from proba.solver import SolverOptions
from proba.synthetic import make_scene, scene_matches


@pytest.mark.parametrize(("name", "fov_deg"), [("object", 40.0), ("ring", 75.0), ("room", 60.0)])
def test_outliers_and_unknown_focal(name, fov_deg):
    scene = make_scene(name, n_images=16, seed=1, fov_deg=fov_deg)
    matches = scene_matches(scene, grid=40, outliers=0.2, seed=1)
    result = solve_matches(matches)
    metrics = evaluate(result.reconstructions, scene.ground_truth())
    assert metrics["registered"] == 16
    assert metrics["rra@5"] == metrics["rta@5"] == 100
    assert metrics["rta@1"] >= 95
    assert metrics["focal_error_pct"] < 0.5


def test_a_flat_scene_is_warned_about():
    scene = make_scene("facade", n_images=10, seed=2)
    result = solve_matches(scene_matches(scene, grid=32, seed=2))
    notes = result.reconstructions[0].notes
    assert any(note.kind == "flat scene" for note in notes)


class Watch(Observer):
    """Collects how many iterations solves have."""

    def __init__(self):
        self.iterations = set()

    def iteration(self, progress):
        self.iterations.add(progress.iterations)


@pytest.mark.parametrize(("longer", "expected"), [(2, {100, 200}), (1, {100})])
def test_the_solver_starts_again_for_longer_where_no_world_is_sure(longer, expected):
    matches = scene_matches(make_scene("object", n_images=4, seed=0), grid=24, seed=0)
    never_sure = RefineOptions(worlds=WorldOptions(good_share=1.1, most=1))
    options = SolveOptions(solver=SolverOptions(iterations=100), refine=never_sure, longer=longer)
    watch = Watch()
    result = solve_matches(matches, options, observer=watch)
    assert watch.iterations == expected and result.pieces[0].iterations in expected


def test_two_images_are_enough():
    scene = make_scene("object", n_images=2, seed=0)
    result = solve_matches(scene_matches(scene, grid=48, seed=0))
    assert result.reconstructions[0].cam_from_world.shape == (2, 4, 4)


def test_no_matches_at_all():
    with pytest.raises(GeometryError, match="no two of the 3 images"):
        solve_matches(Matches([ImageInfo(name=str(k), width=64, height=48) for k in range(3)]))


def test_a_camera_that_stands_still():
    images = [ImageInfo(name=str(k), width=640, height=480) for k in range(3)]
    points = np.random.default_rng(0).uniform((20, 20), (620, 460), (400, 2))
    matches = Matches(images)
    for i, j in itertools.combinations(range(3), 2):
        matches.add(i, j, points, points, np.ones(len(points)))
    with pytest.raises(GeometryError, match="the camera hardly moved"):
        solve_matches(matches)
