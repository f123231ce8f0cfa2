"""Known poses: what is read, which photo it belongs to, and the frame that it gives."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from proba.errors import InputError
from proba.export.tum import write_tum
from proba.geometry.sim3 import Sim3
from proba.io.ground_truth import save_ground_truth
from proba.io.pose_files import entries_of, load_known_poses, read_tum
from proba.io.reconstruction_folder import load_reconstruction
from proba.known_poses import KnownPoseOptions, KnownPoses
from proba.matches import ImageInfo
from proba.synthetic import make_scene


def infos(names: list[str]) -> list[ImageInfo]:
    return [ImageInfo(name=name, width=640, height=480) for name in names]


def known(cam_from_world: np.ndarray, posed: np.ndarray) -> KnownPoses:
    return KnownPoses(
        cam_from_world=cam_from_world,
        focal_px=np.full(len(posed), np.nan),
        sigma=np.where(posed[:, None], 0.1, np.inf) * np.ones(6),
        use="start",
        z_up=False,
        outlier_sigmas=5.0,
    )


@pytest.mark.parametrize(
    "values",
    [{"use": "prior"}, {"file": "a", "use": "prior"}, {"file": "a", "gps": True}, {"gps": True, "gps_sigma_m": 0.0}],
)
def test_settings_that_contradict_each_other_are_refused(values):
    with pytest.raises(InputError):
        KnownPoseOptions(**values)


def test_entries_go_by_name_and_else_by_a_last_part_that_is_unique():
    names = ["left/a.png", "right/a.png", "b.jpg"]
    assert entries_of(["left/a.png", "deep/b.png", "c.png", "other/a.png"], names).tolist() == [0, 2, -1, -1]


def test_poses_of_a_file_are_in_the_order_of_the_photos(tmp_path):
    truth = make_scene("object", n_images=5, seed=0).ground_truth()
    save_ground_truth(truth, tmp_path / "gt.json")
    names = [*truth.names[::-1], "stranger.png"]
    found = load_known_poses(KnownPoseOptions(file=str(tmp_path / "gt.json")), infos(names), None)
    np.testing.assert_allclose(found.cam_from_world[:5], truth.cam_from_world[::-1])
    assert found.posed.tolist() == [True] * 5 + [False]
    share = truth.intrinsics[0, 0] / max(truth.width[0], truth.height[0])
    np.testing.assert_allclose(found.focal_px[:5], share * 640)


def test_poses_of_other_photos_are_refused(tmp_path):
    truth = make_scene("object", n_images=3, seed=0).ground_truth()
    save_ground_truth(truth, tmp_path / "gt.json")
    with pytest.raises(InputError, match="fewer than two of these photos"):
        load_known_poses(KnownPoseOptions(file=str(tmp_path / "gt.json")), infos(["x.png", "y.png"]), None)


def test_a_trajectory_comes_back_from_its_file(tmp_path):
    write_exact(tmp_path)
    model = load_reconstruction(tmp_path)[0]
    write_tum(model, tmp_path / "path.txt")
    names, poses = read_tum(tmp_path / "path.txt")
    np.testing.assert_allclose(poses, model.cam_from_world, atol=1e-8)
    assert len(names) == len(model)


def write_exact(folder):
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parent / "cli"))
    from small_result import write_small_result

    write_small_result(folder, history=False)


@pytest.mark.parametrize("text", ["", "1 2 3\n", "1 0 0 0 0 0 0 0\n", "1 nan 0 0 0 0 0 1\n", "a b c d e f g h\n"])
def test_a_damaged_trajectory_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "path.txt").write_text(text)
    with pytest.raises(InputError) as error:
        read_tum(tmp_path / "path.txt")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("on_a_line", [False, True])
def test_the_frame_is_found_with_a_wrong_pose_among_the_known(on_a_line):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(9, 3)) * ([1, 0, 0] if on_a_line else 1)
    rotation = Rotation.random(9, random_state=1).as_matrix()
    here = np.tile(np.eye(4), (9, 1, 1))
    here[:, :3, :3], here[:, :3, 3] = rotation, -np.einsum("nij,nj->ni", rotation, centres)
    frame = Sim3(2.5, Rotation.random(random_state=2).as_matrix(), np.array([3.0, -1.0, 7.0]))
    there = frame.apply_to_poses(here)
    posed = np.ones(9, bool)
    posed[3] = False
    if not on_a_line:
        there[5, :3, 3] += 50  # a line has no robust way to scale yet
    found = known(there, posed).frame(centres, rotation)
    np.testing.assert_allclose(found.matrix(), frame.matrix(), atol=1e-9)


def test_two_places_give_no_frame_but_two_poses_do():
    rotation = np.tile(np.eye(3), (4, 1, 1))
    poses = np.tile(np.eye(4), (4, 1, 1))
    poses[:, 0, 3] = [0, -1, -2, -3]
    both = known(poses, np.array([True, True, False, False]))
    assert both.frame(both.centres, rotation) is not None
    sigma = both.sigma.copy()
    sigma[:, :3] = np.inf
    places = KnownPoses(
        cam_from_world=poses, focal_px=both.focal_px, sigma=sigma, use="prior", z_up=True, outlier_sigmas=5.0
    )
    assert places.frame(places.centres, rotation) is None
