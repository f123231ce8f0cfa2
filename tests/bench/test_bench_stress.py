"""Folders made for the weak places: their truth is exact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proba.bench.photo_sets import find_sets
from proba.bench.stress import CHANGES, Folder, Shot, _truth_of, honesty, main, make_folder, plan_folders
from proba.io.ground_truth import save_ground_truth
from proba.synthetic import make_scene
from proba.synthetic.render import render_images

SPOT = np.array([1.5, -0.8, 6.0])  # world point that the photos show as a bright spot


def spotted(width: int = 200, height: int = 120) -> Shot:
    intrinsics = np.array([180.0, 170.0, 96.0, 63.0])
    picture = np.zeros((height, width, 3), np.uint8)
    x, y = intrinsics[:2] * SPOT[:2] / SPOT[2] + intrinsics[2:]
    picture[int(y) - 2 : int(y) + 3, int(x) - 2 : int(x) + 3] = 255
    return Shot(picture=picture, cam_from_world=np.eye(4), intrinsics=intrinsics)


@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("seed", range(6))
def test_changed_photos_have_changed_cameras(kind: str, seed: int) -> None:
    shot = CHANGES[kind](spotted(), np.random.default_rng(seed))
    point = shot.cam_from_world[:3, :3] @ SPOT + shot.cam_from_world[:3, 3]
    expected = shot.intrinsics[:2] * point[:2] / point[2] + shot.intrinsics[2:]
    height, width = shot.picture.shape[:2]
    if not (4 < expected[0] < width - 4 and 4 < expected[1] < height - 4):
        assert shot.picture.max() < 255 or kind in ("cropped", "zoomed")
        return
    rows, columns = np.nonzero(shot.picture.mean(axis=2) > 0.6 * shot.picture.mean(axis=2).max())
    found = np.array([columns.mean(), rows.mean()]) + 0.5
    assert np.abs(found - expected).max() < 1.2


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rendered sets."""
    root = tmp_path_factory.mktemp("stress")
    for name, seed in (("one", 0), ("two", 3)):
        scene = make_scene("object", n_images=5, seed=seed)
        (root / name / "images").mkdir(parents=True)
        render_images(scene, root / name / "images")
        save_ground_truth(scene.ground_truth(cloud=False), root / name / "gt.json")
    return root


def test_folders_hold_what_they_are_called(sets: Path, tmp_path: Path) -> None:
    one, two = find_sets(sets)
    truths = make_folder(Folder(kind="mixture", sets=(one, two), draw=0, side_px=200), tmp_path / "m")
    assert [len(truth.names) for truth in truths] == [5, 5]
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == sorted(n for t in truths for n in t.names)
    with Image.open(tmp_path / "m" / truths[0].names[0]) as picture:
        assert max(picture.size) == 200 == truths[0].width.max()
    (truth,) = make_folder(Folder(kind="strangers", sets=(one,), others=(two,), draw=0, side_px=200), tmp_path / "s")
    assert len(truth.names) == 5 and len(list((tmp_path / "s").iterdir())) == 6


def test_an_object_before_a_room_that_stands_still(tmp_path: Path) -> None:
    for name, ball in (("ball", True), ("room", False)):
        (tmp_path / name / "images").mkdir(parents=True)
        picture = np.random.default_rng(3).integers(60, 255, (60, 80, 3)).astype(np.uint8)
        if ball:
            rows, columns = np.mgrid[:60, :80]
            picture[np.hypot(rows - 30, columns - 40) > 15] = 0
        Image.fromarray(picture).save(tmp_path / name / "images" / "a.png")
        shot = Shot(picture=picture, cam_from_world=np.eye(4), intrinsics=np.array([80.0, 80.0, 40.0, 30.0]))
        save_ground_truth(_truth_of(["a.png"], [shot]), tmp_path / name / "gt.json")
    (folder,) = plan_folders(find_sets(tmp_path), ("turntable",), (0,), 1, 80)
    assert [photos.name for photos in folder.sets] == ["ball"]
    make_folder(folder, tmp_path / "out")
    with Image.open(tmp_path / "out" / "ball-a.png") as opened:
        made = np.asarray(opened).astype(int)
    ball_picture, room = (np.asarray(Image.open(tmp_path / name / "images" / "a.png")) for name in ("ball", "room"))
    assert np.abs(made[25:35, 35:45] - ball_picture[25:35, 35:45]).mean() < 3
    assert np.abs(made[:8] - room[:8]).mean() < 3


def test_plan_draws_the_same_mixtures_every_time(sets: Path) -> None:
    several = find_sets(sets) * 3
    plans = [plan_folders(several, ("mixture", "few"), (0, 1), 4, 512) for _ in range(2)]
    assert plans[0] == plans[1]
    assert [folder.kind for folder in plans[0]] == ["mixture"] * 8 + ["few"] * 12


def test_verdicts_are_held_against_the_truth() -> None:
    runs = [{"verdict": "good", "pairs_right": 100.0}, {"verdict": "good", "pairs_right": 60.0}, {"error": "x"}]
    assert "| good | 2 | 1 |" in honesty(runs)


@pytest.mark.slow
def test_a_mixture_gives_two_models(sets: Path, tmp_path: Path) -> None:
    file = tmp_path / "stress.json"
    main(sets, file, (), kinds=("mixture",), draws=(0,), mixtures=1, side_px=512, seeds=(0,), out=tmp_path, threads=1)
    (run,) = json.loads(file.read_text())
    assert (run["models"], run["mixed"], run["rra@5"]) == (2, 0, 100.0)
