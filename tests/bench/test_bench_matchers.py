"""The comparison of matches with the truth."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "matching"))
from textures import save, two_plane_views

from proba.bench.match_errors import compare_with_truth, epipolar_errors_px, grid_share
from proba.cli import main
from proba.io.ground_truth import GroundTruth, save_ground_truth
from proba.matches import ImageInfo, Matches, PairMatches

K = np.array([500.0, 480.0, 330.0, 230.0])  # fx, fy, cx, cy


def scene(n: int = 200, distortion: float = 0.0) -> tuple[GroundTruth, list[np.ndarray]]:
    """Three cameras, the third at the place of the second but turned, and where they see `n` points."""
    random = np.random.default_rng(0)
    xyz = random.uniform([-1, -1, 4], [1, 1, 8], (n, 3))
    pose = np.tile(np.eye(4), (3, 1, 1))
    pose[1:, :3, 3] = [-0.7, 0.1, 0.2]
    turn = np.array([[np.cos(0.1), 0, np.sin(0.1)], [0, 1, 0], [-np.sin(0.1), 0, np.cos(0.1)]])
    pose[2, :3] = turn @ pose[2, :3]
    coefficients = np.tile([distortion, 0, 0, 0, 0.0], (3, 1))
    truth = GroundTruth(
        names=["a", "b", "c"],
        cam_from_world=pose,
        intrinsics=np.tile(K, (3, 1)),
        width=np.full(3, 640),
        height=np.full(3, 480),
        distortion=coefficients if distortion else None,
    )
    seen = []
    for camera in pose:
        inside = xyz @ camera[:3, :3].T + camera[:3, 3]
        plane = inside[:, :2] / inside[:, 2:]
        plane = plane * (1 + distortion * (plane**2).sum(axis=1, keepdims=True))
        seen.append((plane * K[:2] + K[2:]).astype(np.float32))
    return truth, seen


@pytest.mark.parametrize("distortion", [0.0, -0.2])
def test_true_matches_have_no_error_and_shifted_ones_theirs(distortion):
    truth, seen = scene(distortion=distortion)
    ones = np.ones(len(seen[0]), np.float32)
    error, in_front = epipolar_errors_px(PairMatches(seen[0], seen[1], ones), truth, 0, 1)
    assert error.max() < 0.01 and in_front.all()
    error, _ = epipolar_errors_px(PairMatches(seen[0], seen[1] + np.float32([0, 3]), ones), truth, 0, 1)
    assert 2 < np.median(error) < 3.2  # nearly horizontal lines


def test_cameras_at_one_place_are_compared_by_rotation():
    truth, seen = scene()
    shifted = PairMatches(seen[1], seen[2] + np.float32([3, 4]), np.ones(len(seen[0]), np.float32))
    error, in_front = epipolar_errors_px(shifted, truth, 1, 2)
    np.testing.assert_allclose(error, 5, atol=0.01)
    assert in_front.all()


def test_false_pairs_are_those_that_contradict_the_truth():
    truth, seen = scene()
    images = [ImageInfo(name=name, width=640, height=480) for name in truth.names]
    matches = Matches(images)
    matches.add(0, 1, seen[0], seen[1])
    matches.add(0, 2, seen[0], np.roll(seen[2], 50, axis=0))
    result = compare_with_truth(matches, truth)
    assert result["pairs_kept"] == 2 and result["matches"] == 400
    assert [pair[:2] for pair in result["false_pairs"]] == [["a", "c"]]
    assert 0.5 <= result["within_1px"] < 0.6


def test_grid_share():
    image = ImageInfo(name="a", width=640, height=480)
    assert grid_share(np.array([[0.5, 0.5], [1.0, 1.0], [639, 479]]), image) == 2 / 64**2


def test_the_command_writes_a_table(tmp_path, capsys):
    folder = tmp_path / "wall"
    for k, view in enumerate(two_plane_views(3)):
        save(folder / "images" / f"{k}.png", view)
    truth, _ = scene()
    truth.names = ["0.png", "1.png", "2.png"]
    truth.width, truth.height = np.full(3, 400), np.full(3, 300)
    save_ground_truth(truth, folder / "gt.json")
    out = tmp_path / "out"
    options = ["--data", str(tmp_path), "--sets", "wall", "--matchers", "sift", "--max-pairs", "2", "--no-solve"]
    main(["bench", "matchers", *options, "--out", str(out)])
    printed = capsys.readouterr().out
    assert "| wall | sift | 2 | 2 |" in printed and "Quoted, not measured here" in printed
    assert json.loads((out / "matchers.json").read_text())["rows"][0]["pairs_tried"] == 2
    with pytest.raises(SystemExit) as exit_info:
        main(["bench", "matchers", "--data", str(tmp_path / "none")])
    assert exit_info.value.code == 2
