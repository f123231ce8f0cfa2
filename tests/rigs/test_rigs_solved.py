"""Rigs in a solve: the relation is found, or kept, and cameras with few points are placed by it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "refine"))

from perturbed_world import perturbed_solution

from proba.cameras import make_setup
from proba.errors import InputError
from proba.evaluation import evaluate
from proba.io.reconstruction_folder import save_reconstruction
from proba.io.rig_files import load_rigs, pose_entry
from proba.known_poses import KnownPoseOptions
from proba.matches import Matches, PairMatches
from proba.pipeline import SolveOptions, solve_matches
from proba.refine import Refinement
from proba.report.html import html_report
from proba.report.results import plain, report_dict
from proba.rigs import RigOptions, with_rigs
from proba.synthetic import make_scene, on_rig, scene_matches, turned_cameras

N = 6
SENSORS = turned_cameras([0.0, 35.0], [[0, 0, 0], [0.3, 0.05, 0.0]])


@pytest.fixture(scope="module")
def scene():
    return on_rig(make_scene("room", n_images=N, seed=0, fov_deg=60.0), SENSORS)


@pytest.fixture(scope="module")
def matches(scene):
    return scene_matches(scene, grid=20, noise_px=0.7, outliers=0.05, seed=1)


def in_file(tmp_path, sensors=SENSORS) -> str:
    cameras = [{"image_prefix": "cam0/", "ref_sensor": True}, {"image_prefix": "cam1/", **pose_entry(sensors[1])}]
    (tmp_path / "rig.json").write_text(json.dumps([{"cameras": cameras}]))
    return str(tmp_path / "rig.json")


def refined(scene, matches, cameras: str, **options):
    """From a rough world."""
    rigs = load_rigs(RigOptions(cameras=cameras, **options), matches.images)
    seen = with_rigs(matches, rigs)
    world = perturbed_solution(scene, seen, rotation_deg=2.0, position=0.03)
    world = replace(world, cameras=make_setup([seen.images[k] for k in world.graph.images]))
    refinement = Refinement(seen, world.graph, rigs=rigs.of(world.graph.images))
    return refinement.finish(refinement.polish([world])).reconstruction


def weakened(matches: Matches, weak: set[int], keep: int) -> Matches:
    """All pairs with one of the images `weak` keep so few matches."""
    pairs = {
        pair: PairMatches(*(values[:keep] for values in points)) if weak & set(pair) else points
        for pair, points in matches.pairs.items()
    }
    return replace(matches, pairs=pairs)


def test_an_unknown_relation_is_found_within_its_deviations(scene, matches, tmp_path):
    options = SolveOptions(rigs=RigOptions(cameras="folders"))
    result = solve_matches(matches, options)
    found = result.best
    metrics = evaluate([found], scene.ground_truth(cloud=False))
    assert metrics["rra@1"] == metrics["rta@1"] == 100
    (rig,) = found.rigs
    assert [camera.name for camera in rig.cameras] == ["cam0/", "cam1/"] and len(rig.frames) == N and not rig.metric
    camera = rig.cameras[1]
    turn = camera.cam_from_rig[:3, :3] @ SENSORS[1, :3, :3].T
    assert np.degrees(np.arccos((np.trace(turn) - 1) / 2)) < 0.1
    unit = np.linalg.norm(found.centres[0] - found.centres[N - 1]) / np.linalg.norm(
        scene.centre(0) - scene.centre(N - 1)
    )
    off = (camera.centre / unit - [0.3, 0.05, 0.0]) * unit / camera.std[3:]
    assert np.abs(off).max() < 4 and 0 < camera.std[3:].max() < 0.02 * unit
    relative = found.cam_from_world[N:] @ np.linalg.inv(found.cam_from_world[:N])
    np.testing.assert_allclose(relative, np.tile(camera.cam_from_rig, (N, 1, 1)), atol=1e-9)
    page = html_report(plain(report_dict(matches, result, options)), [found], [])
    assert "<h2>Rig</h2>" in page and "cam1/" in page and "estimated" in page
    save_reconstruction([found], tmp_path)
    written = json.loads((tmp_path / "rigs.json").read_text())
    assert len(written[0]["frames"]) == N and written[0]["cameras"][1]["image_prefix"] == "cam1/"
    save_reconstruction([replace(found, rigs=[])], tmp_path)
    assert not (tmp_path / "rigs.json").exists()


@pytest.mark.parametrize("use", ["fixed", "prior"])
def test_a_known_relation_gives_metres(scene, matches, tmp_path, use):
    found = refined(scene, matches, in_file(tmp_path), use=use)
    (rig,) = found.rigs
    assert rig.metric and rig.cameras[1].known
    if use == "fixed":
        np.testing.assert_allclose(rig.cameras[1].cam_from_rig, SENSORS[1], atol=1e-12)
    seen = np.linalg.norm(found.centres[0] - found.centres[N - 1])
    path = np.linalg.norm(scene.centre(0) - scene.centre(N - 1))
    assert abs(seen / path - 1) < (0.01 if use == "fixed" else 0.05)
    assert evaluate([found], scene.ground_truth(cloud=False))["rta@1"] == 100


def test_an_image_with_hardly_a_match_is_placed_by_its_rig(scene, matches):
    weak = N + 2
    poor = weakened(matches, {weak}, 12)
    found = refined(scene, poor, "folders")
    metrics = evaluate([found], scene.ground_truth(cloud=False))
    assert metrics["registered"] == 2 * N and metrics["rra@1"] == metrics["rta@1"] == 100
    assert found.pose_std[found.index(scene.image_names[weak])].max() < 0.05


def test_a_wrong_relation_is_refused_and_named(scene, matches, tmp_path):
    wrong = turned_cameras([0.0, -20.0], [[0, 0, 0], [0.3, 0.05, 0.0]])
    found = refined(scene, matches, in_file(tmp_path, wrong))
    assert not found.rigs and any(note.kind == "rig" for note in found.notes)
    assert evaluate([found], scene.ground_truth(cloud=False))["rra@1"] == 100


def test_fixed_poses_and_a_rig_are_refused(matches):
    known = KnownPoseOptions(file="somewhere", use="fixed")
    with pytest.raises(InputError, match="leave nothing to a rig"):
        solve_matches(matches, SolveOptions(rigs=RigOptions(cameras="folders"), known=known))
