"""The metric of mixed folders."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from proba.errors import InputError
from proba.evaluation.collection_score import most_placed, score_collection
from proba.io.scene_labels import LabelledScene, load_scenes
from proba.reconstruction import Camera, Points, Reconstruction

THRESHOLDS = np.array([1e-4, 1e-3, 0.01, 0.02, 0.05, 0.1])


def scene(name, n, seed):
    rng = np.random.default_rng(seed)
    poses = np.tile(np.eye(4), (n, 1, 1))
    poses[:, :3, :3] = Rotation.from_rotvec(rng.normal(size=(n, 3))).as_matrix()
    poses[:, :3, 3] = rng.normal(size=(n, 3))
    names = [f"{name}{k}.jpg" for k in range(n)]
    return LabelledScene(name=name, images=names, cam_from_world=poses, thresholds=THRESHOLDS)


def cluster(*parts):
    """A reconstruction of images (names and poses)."""
    names = [name for part, _ in parts for name in part]
    poses = np.concatenate([poses for _, poses in parts])
    camera = Camera(model="SIMPLE_PINHOLE", width=100, height=100, params=np.array([100.0, 50.0, 50.0]))
    return Reconstruction(
        image_names=names,
        cam_from_world=poses,
        pose_std=np.zeros((len(names), 6)),
        camera_of_image=np.zeros(len(names), np.int64),
        cameras=[camera],
        points=Points(
            xyz=np.zeros((0, 3)),
            rgb=np.zeros((0, 3), np.uint8),
            sigma=np.zeros(0),
            error_px=np.zeros(0),
            obs_point=np.zeros(0, np.int64),
            obs_image=np.zeros(0, np.int64),
            obs_xy=np.zeros((0, 2), np.float32),
        ),
    )


def moved(poses, scale=3.0, seed=5):
    """The same cameras in a world of another scale, place and direction."""
    rng = np.random.default_rng(seed)
    turn = Rotation.from_rotvec(rng.normal(size=3)).as_matrix()
    out = poses.copy()
    out[:, :3, :3] = poses[:, :3, :3] @ turn.T
    out[:, :3, 3] = scale * poses[:, :3, 3] - out[:, :3, :3] @ rng.normal(size=3)
    return out


def test_a_model_for_each_scene_is_perfect():
    scenes = [scene("a", 7, 0), scene("b", 9, 1)]
    found = score_collection([cluster((s.images, moved(s.cam_from_world))) for s in scenes], scenes)
    assert (found.score, found.maa, found.clusterness, found.pairs_right) == pytest.approx((100, 100, 100, 100))


def test_scenes_in_one_model_cost_clusterness_and_pairs():
    scenes = [scene("a", 7, 0), scene("b", 9, 1)]
    found = score_collection([cluster(*((s.images, s.cam_from_world) for s in scenes))], scenes)
    assert found.maa == pytest.approx(100)
    assert found.clusterness == pytest.approx(50)
    assert found.score == pytest.approx(200 / 3)
    assert found.pairs_right == pytest.approx(100 * (21 + 36) / 120)


def test_a_stranger_costs_clusterness_and_a_missing_photo_accuracy():
    truth = scene("a", 8, 0)
    stranger = cluster((truth.images, truth.cam_from_world), (["x.jpg"], np.eye(4)[None]))
    assert score_collection([stranger], [truth]).clusterness == pytest.approx(100 * 8 / 9)
    missing = cluster((truth.images[:-1], truth.cam_from_world[:-1]))
    assert score_collection([missing], [truth]).maa == pytest.approx(100 * 4 / 5)
    assert score_collection([], [truth]).score == 0


def test_misplaced_cameras_count_by_their_distance():
    truth = scene("a", 10, 0).centres
    wrong = truth.copy()
    wrong[0] += 0.03
    assert most_placed(2 * wrong, truth, np.array([1e-6, 0.2])).tolist() == [9, 10]


def test_labels_that_cannot_be_read_are_refused_in_one_line(tmp_path):
    (tmp_path / "labels.csv").write_text("scene,image,R,t\na,x.jpg,1;0;0,0;0;0\n")
    (tmp_path / "thresholds.csv").write_text("scene,thresholds\nb,1;2;3\n")
    with pytest.raises(InputError, match="table of labels"):
        load_scenes(tmp_path)
    (tmp_path / "labels.csv").write_text("scene,image,R,t\na,x.jpg,1;0;0;0;1;0;0;0;1,0;0;0\noutliers,y.jpg,nan,nan\n")
    with pytest.raises(InputError, match="no thresholds for the scene a"):
        load_scenes(tmp_path)


def test_agrees_with_the_scorer_beside_the_collections():
    """The photos' own scorer is not part of the project; where it is, both say the same."""
    data = Path(os.environ.get("PROBA_COLLECTIONS", "no such folder"))
    if not (data / "score.py").is_file():
        pytest.skip("set PROBA_COLLECTIONS to a folder with score.py and collections")
    spec = importlib.util.spec_from_file_location("challenge_score", data / "score.py")
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    folder = sorted(path.parent for path in data.glob("*/labels.csv"))[0]
    scenes, rng = load_scenes(folder), np.random.default_rng(0)
    clusters = []
    for s in scenes:  # cameras displaced by as much as the thresholds
        poses = moved(s.cam_from_world)
        poses[:, :3, 3] += 3 * s.thresholds[-3] * rng.standard_t(2, size=(len(poses), 3))
        clusters.append(cluster((s.images, poses)))
    clusters[0].image_names[0] = "stranger.jpg"
    ours = score_collection(clusters, scenes)
    centres = [dict(zip(rec.image_names, rec.centres, strict=True)) for rec in clusters]
    score, maa, clusterness, _ = theirs.score(folder, centres)
    assert ours.clusterness == pytest.approx(clusterness)
    # A camera or two at one threshold: it depends on the order of the triples.
    assert ours.maa == pytest.approx(maa, abs=4)
    assert ours.score == pytest.approx(score, abs=4)
