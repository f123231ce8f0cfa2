"""Synthetic scenes end to end, with the field of view never told."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from proba.cameras import CameraOptions
from proba.errors import GeometryError, InputError
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


@pytest.mark.parametrize("focal", ["fixed", "init"])
def test_known_focals_count_where_others_are_not_known(focal):
    scene = make_scene("object", n_images=8, seed=0, fov_deg=50.0)
    true = float(scene.intrinsics[0, 0])
    matches = scene_matches(scene, grid=24, outliers=0.1, seed=0)
    told = {0: 1.02 * true, 1: 1.02 * true, 2: 1.02 * true}
    matches.images[:] = [
        replace(info, camera_key="", focal_px=told.get(k)) for k, info in enumerate(matches.images)
    ]  # of the others nobody knows the camera
    options = SolveOptions(cameras=CameraOptions(focal=focal, focal_prior_sigma=1e-4))
    with pytest.warns(UserWarning, match=r"003\.png, 004\.png"):
        rec = solve_matches(matches, options).best
    known, free = (rec.camera(f"{k:03}.png") for k in (0, 5))
    assert len(rec.cameras) == 2
    assert known.focal_px[0] == pytest.approx(told[0], rel=1e-3)
    assert (known.focal_std_px == 0) == (focal == "fixed") and known.focal_std_px < 1e-3 * true
    assert free.focal_std_px > 0 and free.focal_px[0] == pytest.approx(true, rel=0.03)
    (note,) = [note for note in rec.notes if note.kind == "focal not known"]
    assert set(note.images) == {f"{k:03}.png" for k in range(3, 8)}


def test_no_known_focal_at_all_is_refused():
    matches = scene_matches(make_scene("object", n_images=3, seed=0), grid=8)
    with pytest.raises(InputError, match="--focal fixed needs a known focal length"):
        solve_matches(matches, SolveOptions(cameras=CameraOptions(focal="fixed")))
