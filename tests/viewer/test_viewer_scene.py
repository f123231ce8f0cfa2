"""What front ends are given: colours, facts, framing, true cameras."""

import numpy as np
import pytest

from proba.errors import InputError
from proba.geometry.sim3 import Sim3
from proba.io.ground_truth import load_ground_truth, save_ground_truth
from proba.viewer import palette
from proba.viewer.drawing import frustums
from proba.viewer.framing import align_cameras, frame_scene
from proba.viewer.photos import Photos
from proba.viewer.scene import COLOURINGS, load_scene
from proba.viewer.server import quaternion


@pytest.fixture(scope="module")
def scene(result):
    return load_scene(result.folder, gt=result.gt)[0]


def test_each_colouring_is_another(scene):
    seen = [scene.colours(by) for by in COLOURINGS]
    assert all(c.shape == (len(scene.xyz), 3) and c.dtype == np.uint8 for c in seen)
    assert len({c.tobytes() for c in seen}) == len(COLOURINGS)


def test_facts_agree_with_the_reconstruction(scene):
    facts = scene.camera_facts(0)
    assert facts["focal"].startswith(f"{scene.rec.camera(0).focal_px.mean():.1f} ± ")
    edges = scene.neighbours(0)
    assert len(edges) == (scene.edges == 0).any(1).sum()
    assert all(edge.error_px < 8 and edge.shared > 10 for edge in edges)
    weights = [edge.weight for edge in edges]
    assert weights == sorted(weights, reverse=True)


def test_true_cameras_lie_on_the_found_ones(scene):
    distance = np.linalg.norm(scene.truth[:, :3, 3] - scene.rec.centres, axis=1)
    assert distance.max() < 0.05 * scene.framing.radius


def test_truth_of_other_photos_is_refused(result, tmp_path):
    truth = load_ground_truth(result.gt)
    truth.names = [f"other-{name}" for name in truth.names]
    save_ground_truth(truth, tmp_path / "gt.json")
    with pytest.raises(InputError, match="no two images in common"):
        load_scene(result.folder, gt=tmp_path / "gt.json")


def test_cameras_on_a_line_are_aligned_by_their_axes():
    poses = np.tile(np.eye(4), (5, 1, 1))
    poses[:, 0, 3] = np.arange(5)
    turn = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])  # about the line, which centres alone cannot tell
    truth = Sim3(3.0, turn, np.array([1.0, 2, 3]))
    moved = np.linalg.inv(truth.apply_to_poses(np.linalg.inv(poses)))
    found = align_cameras(poses, moved)
    assert np.allclose(found.matrix(), truth.matrix(), atol=1e-9)


def test_first_view_sees_all_cameras_from_behind():
    poses = np.tile(np.eye(4), (5, 1, 1))
    poses[:, 0, 3] = np.linspace(-1, 1, 5)
    points = np.random.default_rng(0).uniform([-2, -1, 3], [2, 1, 4], (500, 3))
    framing = frame_scene(poses, points)
    assert framing.eye[2] < 0 and framing.eye[1] < 0  # behind and, as y is down, above
    assert np.allclose(framing.up, [0, -1, 0])
    ahead = (framing.focus - framing.eye) / np.linalg.norm(framing.focus - framing.eye)
    to_cameras = poses[:, :3, 3] - framing.eye
    cosine = to_cameras @ ahead / np.linalg.norm(to_cameras, axis=1)
    assert (cosine > np.cos(np.radians(35))).all()


def test_frustum_corners_project_to_the_image_corners():
    pose = np.eye(4)
    pose[:3, 3] = [1, 2, 3]
    shape = frustums(pose[None], np.array([0.5]), np.array([2.0]), 0.1)[0]
    assert np.allclose(shape[0], [1, 2, 3])
    assert np.allclose((shape[3] - shape[0]) / 0.1, [0.5, 0.25, 1])


def test_quaternion_of_half_turns():
    for axis in range(3):
        half_turn = -np.eye(3)
        half_turn[axis, axis] = 1
        expected = np.zeros(4)
        expected[axis + 1] = 1
        assert np.allclose(np.abs(quaternion(half_turn)), expected)
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    q = quaternion(turn)
    assert np.allclose(q * np.sign(q[0]), [np.sqrt(0.5), 0, 0, np.sqrt(0.5)])


def test_photos_stay_inside_their_folder(tmp_path, result):
    (tmp_path / "photos").mkdir()
    inside = next(result.images.iterdir())
    (tmp_path / "secret.png").write_bytes(inside.read_bytes())
    photos = Photos(tmp_path / "photos", ["../secret.png", str(tmp_path / "secret.png"), "missing.png"])
    assert photos.load(64) == [None, None, None]
    assert Photos(tmp_path, ["secret.png"])(0, 64).shape[1] == 64


def test_weights_run_from_red_to_green():
    red, green = palette.of_weights(np.array([0.0, 1.0])).astype(int)
    assert red[0] > red[1] + 80 and green[1] > green[0] + 80
