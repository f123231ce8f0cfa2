"""Pose metrics: known disturbances give known numbers."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from proba.evaluation import area_under_recall, evaluate, match_names, pair_errors
from proba.geometry.sim3 import Sim3
from proba.io.ground_truth import GroundTruth
from proba.reconstruction import Camera, Points, Reconstruction


def make_truth(n=8, seed=0, **more):
    rng = np.random.default_rng(seed)
    pose = np.tile(np.eye(4), (n, 1, 1))
    pose[:, :3, :3] = Rotation.random(n, rng=rng).as_matrix()
    pose[:, :3, 3] = rng.normal(size=(n, 3))
    return GroundTruth(
        names=[f"images/{k}.jpg" for k in range(n)],
        cam_from_world=pose,
        intrinsics=np.tile([800.0, 800.0, 320.0, 240.0], (n, 1)),
        width=np.full(n, 640),
        height=np.full(n, 480),
        **more,
    )


def make_reconstruction(truth, index=None, pose=None, focal_px=800.0, width=640, xyz=None):
    index = range(len(truth.names)) if index is None else index
    xyz = np.zeros((0, 3)) if xyz is None else xyz
    empty = np.zeros(0, int)
    return Reconstruction(
        image_names=[truth.names[k] for k in index],
        cameras=[
            Camera(model="SIMPLE_PINHOLE", width=width, height=480, params=np.array([focal_px, width / 2, 240.0]))
        ],
        camera_of_image=np.zeros(len(index), int),
        cam_from_world=(truth.cam_from_world if pose is None else pose)[list(index)],
        pose_std=np.zeros((len(index), 6)),
        points=Points(
            xyz=xyz,
            rgb=np.zeros((len(xyz), 3), np.uint8),
            sigma=np.zeros(len(xyz)),
            error_px=np.zeros(len(xyz)),
            obs_point=empty,
            obs_image=empty,
            obs_xy=np.zeros((0, 2), np.float32),
        ),
    )


def test_a_similarity_changes_nothing():
    truth = make_truth()
    similarity = Sim3(3.7, Rotation.from_rotvec([0.3, -1.0, 2.0]).as_matrix(), np.array([5.0, -2.0, 9.0]))
    scores = evaluate([make_reconstruction(truth, pose=similarity.apply_to_poses(truth.cam_from_world))], truth)
    for name in ("rra@1", "rta@1", "rra@10", "rta@10"):
        assert scores[name] == 100.0
    assert scores["auc@1"] == pytest.approx(100.0, abs=1e-6)
    assert scores["images"] == scores["registered"] == 8
    assert scores["focal_error_pct"] == 0.0


def test_the_mirrored_world_is_wrong():
    truth = make_truth()
    mirror = np.diag([-1.0, -1.0, 1.0, 1.0])
    scores = evaluate([make_reconstruction(truth, pose=mirror @ truth.cam_from_world @ mirror)], truth)
    assert scores["rra@5"] < 20 and scores["rta@5"] < 20


def test_one_turned_camera_spoils_its_pairs_by_its_angle():
    truth = make_truth()
    pose = truth.cam_from_world.copy()
    pose[7] = (
        np.block([[Rotation.from_rotvec([0, np.radians(3), 0]).as_matrix(), np.zeros((3, 1))], [0, 0, 0, 1]]) @ pose[7]
    )  # about its own centre
    rotation, translation = pair_errors([make_reconstruction(truth, pose=pose)], truth)
    j = np.triu_indices(8, 1)[1]
    np.testing.assert_allclose(rotation[j == 7], 3.0, atol=1e-6)
    np.testing.assert_allclose(rotation[j != 7], 0.0, atol=1e-5)
    assert (translation[j == 7] <= 3.0 + 1e-6).all() and translation[j == 7].max() > 0.5
    scores = evaluate([make_reconstruction(truth, pose=pose)], truth)
    assert scores["rra@1"] == pytest.approx(100 * 21 / 28)
    assert scores["rra@5"] == 100.0
    assert scores["auc@10"] == pytest.approx(100 * (21 + 7 * 0.7) / 28, abs=1e-3)


def test_unregistered_images_fail_all_their_pairs():
    truth = make_truth()
    scores = evaluate([make_reconstruction(truth, index=range(6))], truth)
    assert scores["registered"] == 6
    assert scores["rra@10"] == scores["rta@10"] == pytest.approx(100 * 15 / 28)
    assert scores["auc@10"] == pytest.approx(100 * 15 / 28, abs=1e-4)


def test_pairs_across_reconstructions_fail():
    truth = make_truth()
    scores = evaluate(
        [make_reconstruction(truth, index=range(5)), make_reconstruction(truth, index=range(5, 8))], truth
    )
    assert scores["registered"] == 8
    assert scores["rra@5"] == pytest.approx(100 * (10 + 3) / 28)


def test_nothing_registered_is_zero_not_an_error():
    scores = evaluate([], make_truth())
    assert scores["registered"] == 0 and scores["auc@10"] == 0.0 and scores["focal_error_pct"] is None


def test_focal_error_follows_the_image_size():
    truth = make_truth()
    assert evaluate([make_reconstruction(truth, focal_px=792.0)], truth)["focal_error_pct"] == pytest.approx(1.0)
    half = make_reconstruction(truth, focal_px=400.0, width=320)
    assert evaluate([half], truth)["focal_error_pct"] == pytest.approx(0.0)


def test_recall_is_integrated_exactly():
    # Recall is 1/2 from 1 to 3 degrees and 1 from 3 to 4, of 4.
    assert area_under_recall(np.array([1.0, 3.0]), 4.0) == pytest.approx(100 * (0.5 * 2 + 1 * 1) / 4)
    assert area_under_recall(np.array([180.0]), 10.0) == 0.0


def test_zero_baseline_has_no_direction_to_miss():
    truth = make_truth(3)
    centre = np.array([1.0, 2.0, 3.0])
    for k in range(2):
        truth.cam_from_world[k, :3, 3] = -truth.cam_from_world[k, :3, :3] @ centre
    _, translation = pair_errors([make_reconstruction(truth)], truth)
    assert translation[0] == 0.0


def test_names_match_by_path_then_file_name_then_stem():
    known = ["a/x.png", "b/x.png", "c/y.png", "c/z.jpg"]
    assert match_names(["b/x.png", "x.png", "y.png", "d/z.png", "w.png"], known) == [1, None, 2, 3, None]
