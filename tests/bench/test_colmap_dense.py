"""Dense matches as COLMAP's tracks."""

import numpy as np
import pytest

from proba.bench.colmap_dense import quantised
from proba.bench.photo_sets import PhotoSet
from proba.matches import ImageInfo, Matches


def images(count: int) -> list[ImageInfo]:
    return [ImageInfo(name=f"{k}.png", width=640, height=480) for k in range(count)]


def test_points_of_a_cell_become_one_keypoint_that_repeats_from_pair_to_pair():
    matches = Matches(images(3))
    matches.add(0, 1, np.array([[9.0, 9.0], [100.0, 50.0]]), np.array([[20.0, 20.0], [90.0, 50.0]]))
    matches.add(0, 2, np.array([[11.0, 9.0]]), np.array([[33.0, 30.0]]))
    keypoints, pairs = quantised(matches, 4.0)
    np.testing.assert_allclose(keypoints[0], [[10, 9], [100, 50]])
    assert pairs[0, 1].tolist() == [[0, 0], [1, 1]] and pairs[0, 2].tolist() == [[0, 0]]
    assert pairs[0, 1].dtype == np.uint32


def test_better_scores_move_the_keypoint_and_win_the_match():
    matches = Matches(images(2))
    matches.add(
        0, 1, np.array([[8.5, 8.5], [10.5, 8.5]]), np.array([[50.0, 50.0], [80.0, 50.0]]), np.array([0.25, 0.75])
    )
    keypoints, pairs = quantised(matches, 4.0)
    np.testing.assert_allclose(keypoints[0], [[10, 8.5]])
    np.testing.assert_allclose(keypoints[1][pairs[0, 1][:, 1]], [[80, 50]])


def test_images_without_matches_have_no_keypoints():
    matches = Matches(images(3))
    matches.add(0, 1, np.array([[9.0, 9.0]]), np.array([[20.0, 20.0]]))
    keypoints, _ = quantised(matches)
    assert [len(points) for points in keypoints] == [1, 1, 0]


@pytest.mark.slow
def test_colmap_reconstructs_from_exact_dense_matches(tmp_path):
    from proba.bench.colmap_dense import run_colmap_dense
    from proba.io.ground_truth import save_ground_truth
    from proba.synthetic import make_scene, scene_matches
    from proba.synthetic.render import render_images

    scene = make_scene("facade", n_images=6, width=320, height=240)
    render_images(scene, tmp_path / "images")
    save_ground_truth(scene.ground_truth(cloud=False), tmp_path / "gt.json")
    photos = PhotoSet(name="facade", folder=tmp_path)
    row = run_colmap_dense(
        photos,
        0,
        "incremental",
        scene_matches(scene, noise_px=0.2),
        tmp_path,
        camera_model="SIMPLE_PINHOLE",
        shared=True,
    )
    assert row["registered"] == 6 and row["rra@5"] == 100 and set(row["seconds"]) == {"tracks", "map"}
