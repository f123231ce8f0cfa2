"""Known poses in the pipeline: a start that wins if it is right and loses if it is wrong, held poses, and priors."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import proba.pipeline as pipeline
from proba.evaluation import evaluate
from proba.geometry.sim3 import Sim3
from proba.io.ground_truth import GroundTruth, save_ground_truth
from proba.known_poses import KnownPoseOptions, KnownPoses
from proba.pipeline import SolveOptions, solve_matches
from proba.synthetic import make_scene, scene_matches

N = 8
FRAME = Sim3(7.0, Rotation.from_rotvec([0.4, -1.0, 0.3]).as_matrix(), np.array([100.0, -20.0, 5.0]))
"""From the scene's world into that of the file."""


@pytest.fixture(scope="module")
def scene():
    return make_scene("object", n_images=N, seed=1, fov_deg=55.0)


@pytest.fixture(scope="module")
def matches(scene):
    return scene_matches(scene, grid=24, outliers=0.1, seed=1)


def truth_in_file(scene) -> GroundTruth:
    truth = scene.ground_truth()
    return replace(truth, cam_from_world=FRAME.apply_to_poses(truth.cam_from_world), points=None)


def rough(truth: GroundTruth, degrees: float, seed: int = 0) -> GroundTruth:
    """Every camera turned, and shifted as far as it would seem to be turned from the middle of the scene."""
    rng = np.random.default_rng(seed)
    size = np.median(np.linalg.norm(truth.centres - truth.centres.mean(axis=0), axis=1))
    axes = rng.normal(size=(2, N, 3))
    axes /= np.linalg.norm(axes, axis=2, keepdims=True)
    poses = truth.cam_from_world.copy()
    poses[:, :3, :3] = Rotation.from_rotvec(np.radians(degrees) * axes[0]).as_matrix() @ poses[:, :3, :3]
    centres = truth.centres + np.radians(degrees) * size * axes[1]
    poses[:, :3, 3] = -np.einsum("nij,nj->ni", poses[:, :3, :3], centres)
    return replace(truth, cam_from_world=poses)


def part(truth: GroundTruth, keep: list[int]) -> GroundTruth:
    return replace(
        truth,
        names=[truth.names[k] for k in keep],
        cam_from_world=truth.cam_from_world[keep],
        intrinsics=truth.intrinsics[keep],
        width=truth.width[keep],
        height=truth.height[keep],
    )


def solved(matches, truth: GroundTruth, path, **options):
    save_ground_truth(truth, path / "known.json")
    known = KnownPoseOptions(file=str(path / "known.json"), **options)
    return solve_matches(matches, SolveOptions(known=known))


def chosen(result) -> str:
    return next(world.name for world in result.pieces[0].hypotheses if world.chosen)


def centres_of(result, truth: GroundTruth) -> np.ndarray:  # [N, 3]
    reconstruction = result.reconstructions[0]
    return reconstruction.centres[[reconstruction.index(name) for name in truth.names]]


def size_of(truth: GroundTruth) -> float:
    return float(np.median(np.linalg.norm(truth.centres - truth.centres.mean(axis=0), axis=1)))


def test_rough_poses_are_made_exact_without_a_search(scene, matches, tmp_path):
    truth = truth_in_file(scene)
    result = solved(matches, part(rough(truth, 2.0), [0, 1, 2, 4, 5, 7]), tmp_path, search=False)
    metrics = evaluate(result.reconstructions, truth)
    assert metrics["registered"] == N and metrics["rra@1"] == metrics["rta@1"] == 100
    assert chosen(result) == "given" and result.pieces[0].iterations == 0
    # The frame is that of the file, as well as rough poses can tell it.
    assert np.linalg.norm(centres_of(result, truth) - truth.centres, axis=1).max() < 0.1 * size_of(truth)


def test_wrong_poses_lose_against_a_search(scene, matches, tmp_path):
    result = solved(matches, rough(truth_in_file(scene), 40.0), tmp_path)
    metrics = evaluate(result.reconstructions, truth_in_file(scene))
    assert metrics["rra@1"] == metrics["rta@1"] == 100
    assert chosen(result) != "given"
    assert any(world.name == "given" and world.explained_share < 0.5 for world in result.pieces[0].hypotheses)


def test_fixed_poses_stay_and_other_photos_are_placed(scene, matches, tmp_path):
    truth = truth_in_file(scene)
    keep = [0, 1, 2, 4, 5, 7]
    result = solved(matches, part(truth, keep), tmp_path, use="fixed")
    reconstruction = result.reconstructions[0]
    poses = np.array([reconstruction.poses[truth.names[k]] for k in keep])
    np.testing.assert_allclose(poses, truth.cam_from_world[keep], atol=1e-9 * 100)
    assert evaluate(result.reconstructions, truth)["rta@1"] == 100
    placed = reconstruction.pose_std[reconstruction.index(truth.names[3])]
    held = reconstruction.pose_std[reconstruction.index(truth.names[0])]
    assert held[3:].max() < 1e-6 * size_of(truth) < placed[3:].max()


@pytest.mark.parametrize("wrong", [0, 1])
def test_places_with_noise_give_scale_and_frame_within_their_deviations(scene, matches, monkeypatch, wrong):
    truth = truth_in_file(scene)
    rng, sigma = np.random.default_rng(3), 0.02 * size_of(truth) * np.array([1.0, 1.0, 2.0])
    places = truth.centres + sigma * rng.normal(size=(N, 3))
    places[:wrong] += 0.7 * size_of(truth)  # of a place that belongs to another photo
    poses = np.tile(np.eye(4), (N, 1, 1))
    poses[:, :3, 3] = -places
    known = KnownPoses(
        cam_from_world=poses,
        focal_px=np.full(N, np.nan),
        sigma=np.concatenate([np.full((N, 3), np.inf), np.tile(sigma, (N, 1))], axis=1),
        use="prior",
        z_up=True,
        outlier_sigmas=5.0,
    )
    monkeypatch.setattr(pipeline, "load_known_poses", lambda *_: known)
    result = solve_matches(matches, SolveOptions())
    reconstruction = result.reconstructions[0]
    assert reconstruction.up == "z"
    left_out = [note.images for note in reconstruction.notes if note.kind == "known poses"]
    assert left_out == [tuple(truth.names[:wrong])] * wrong
    order = [reconstruction.index(name) for name in truth.names]
    off = (centres_of(result, truth) - truth.centres) / reconstruction.pose_std[order, 3:]
    assert 0.2 < np.sqrt((off**2).mean()) < 2.0
    assert np.abs(centres_of(result, truth) - truth.centres).max() < 3 * sigma.max()
