"""Cloud metrics in the ground truth's unit, whatever frame and scale the estimate has."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from proba.evaluation import evaluate
from proba.geometry.sim3 import Sim3
from proba.reconstruction import Camera, Points, Reconstruction
from proba.synthetic import make_scene

SIMILARITY = Sim3(0.21, Rotation.from_rotvec([0.3, -1.0, 2.0]).as_matrix(), np.array([5.0, -2.0, 9.0]))


def estimate_of(truth, xyz, similarity=SIMILARITY, centre_noise=0.0):
    pose = truth.cam_from_world.copy()
    pose[:, :3, 3] += np.random.default_rng(0).normal(0, centre_noise, (len(pose), 3))
    return Reconstruction(
        image_names=truth.names,
        cameras=[Camera(model="PINHOLE", width=640, height=480, params=truth.intrinsics[0])],
        camera_of_image=np.zeros(len(truth.names), int),
        cam_from_world=similarity.apply_to_poses(pose),
        pose_std=np.zeros((len(truth.names), 6)),
        points=Points(
            xyz=similarity.apply(xyz),
            rgb=np.zeros((len(xyz), 3), np.uint8),
            sigma=np.zeros(len(xyz)),
            error_px=np.zeros(len(xyz)),
            obs_point=np.zeros(0, int),
            obs_image=np.zeros(0, int),
            obs_xy=np.zeros((0, 2), np.float32),
        ),
    )


@pytest.fixture(scope="module")
def truth():
    return make_scene("room", n_images=20, seed=1, fov_deg=70).ground_truth()


def test_the_true_cloud_scores_full_marks_in_any_frame(truth):
    scores = evaluate([estimate_of(truth, truth.points)], truth)
    assert scores["acc@5cm"] == pytest.approx(100.0) and scores["comp@5cm"] == pytest.approx(100.0)


def test_stray_points_lower_accuracy_and_missing_ones_completeness(truth):
    half = truth.points[truth.points[:, 0] < np.median(truth.points[:, 0])]
    stray = half[: len(half) // 4] + np.array([0, 30.0, 0])
    scores = evaluate([estimate_of(truth, np.vstack([half, stray]))], truth)
    assert scores["acc@5cm"] == pytest.approx(80.0, abs=0.5)
    assert 48 < scores["comp@5cm"] < 60


def test_refinement_mends_a_scale_that_the_cameras_got_wrong(truth):
    noisy = estimate_of(truth, truth.points, centre_noise=0.12)
    scores = evaluate([noisy], truth)
    assert scores["acc@5cm"] > 95


def test_threshold_follows_the_unit(truth):
    truth_mm = make_scene("room", n_images=20, seed=1, fov_deg=70).ground_truth()
    truth_mm.points *= 1000
    truth_mm.cam_from_world[:, :3, 3] *= 1000
    truth_mm.metres_per_unit = 0.001
    noisy = truth.points + np.random.default_rng(0).normal(0, 0.03, truth.points.shape)
    one = evaluate([estimate_of(truth, noisy)], truth)["acc@5cm"]
    assert 50 < one < 99.9
    assert evaluate([estimate_of(truth, noisy)], truth_mm)["acc@5cm"] == pytest.approx(one, abs=1.0)


def test_without_a_known_scale_there_are_no_cloud_scores(truth):
    unscaled = make_scene("room", n_images=20, seed=1, fov_deg=70).ground_truth()
    unscaled.metres_per_unit = None
    assert "acc@5cm" not in evaluate([estimate_of(truth, truth.points)], unscaled)


def test_cameras_on_a_line_still_align():
    truth = make_scene("corridor", n_images=20, seed=1, fov_deg=70).ground_truth()
    truth.cam_from_world[:, :3, 3] = -np.einsum(
        "nij,nj->ni", truth.cam_from_world[:, :3, :3], truth.centres * [0, 0, 1]
    )
    scores = evaluate([estimate_of(truth, truth.points)], truth)
    assert scores["acc@5cm"] == pytest.approx(100.0)
