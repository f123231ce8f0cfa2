"""The benchmark on mixed folders."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from proba.bench.collections import find_collections, markdown
from proba.cli import main
from proba.errors import InputError
from proba.io.matches_h5 import save_matches
from proba.matches import Matches
from proba.synthetic import make_scene, scene_matches


@pytest.fixture(scope="module")
def two_scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection of two scenes and a stranger, whose matches are in the folder cache."""
    root = tmp_path_factory.mktemp("collections")
    (root / "mixed" / "images").mkdir(parents=True)
    together, rows = Matches([]), ["scene,image,R,t", "outliers,stranger.jpg,nan,nan"]
    for name, seed in (("one", 0), ("two", 1)):
        scene = make_scene("object", n_images=6, seed=seed)
        first, found = len(together.images), scene_matches(scene, grid=24, noise_px=0.5, outliers=0.1, seed=1)
        for plain, pose in zip(found.images, scene.cam_from_world, strict=True):
            info = replace(plain, name=f"{name}-{plain.name}")
            together.images.append(info)
            numbers = [";".join(map(str, part.ravel())) for part in (pose[:3, :3], pose[:3, 3])]
            rows.append(f"{name},{info.name},{numbers[0]},{numbers[1]}")
        for (i, j), pair in found.pairs.items():
            together.pairs[first + i, first + j] = pair
    (root / "mixed" / "labels.csv").write_text("\n".join(rows) + "\n")
    bounds = "0.01;0.02;0.03;0.05;0.1;0.2"
    (root / "mixed" / "thresholds.csv").write_text(f"scene,thresholds\none,{bounds}\ntwo,{bounds}\n")
    (root / "cache").mkdir()
    save_matches(root / "cache" / "mixed.auto.h5", together)
    return root


def test_runs_are_scored_recorded_and_not_repeated(two_scenes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = two_scenes / "out.json"
    arguments = ["--data", str(two_scenes), "--json", str(file), "--cache", str(two_scenes / "cache")]
    for _ in range(2):
        main(["bench", "collections", *arguments, "--seeds", "0", "--no-colmap"])
    (run,) = json.loads(file.read_text())
    assert (run["dataset"], run["method"], run["seed"]) == ("mixed", "proba", 0)
    assert run["score"] == pytest.approx(100) and run["clusterness"] == pytest.approx(100)
    assert run["pairs_right"] == 100 and run["seconds"] > 0 and run["verdict"] in ("good", "check")
    assert "| mixed | proba | 100.0 |" in capsys.readouterr().out


def test_folders_without_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"labels\.csv"):
        find_collections(tmp_path, [])


def test_table_shows_the_worst_seed() -> None:
    run = {"dataset": "a", "method": "proba", "seed": 0, "score": 50.0, "maa": 40.0, "clusterness": 90.0,
           "pairs_right": 99.0, "verdict": "good", "seconds": 3.0}  # fmt: skip
    table = markdown([run, {**run, "seed": 1, "score": 20.0, "verdict": "distrust", "seconds": 9.0}])
    assert "| a | proba (worst of 2 seeds) | 20.0 | 40.0 | 90.0 | 99.0 | distrust | 9 |" in table
