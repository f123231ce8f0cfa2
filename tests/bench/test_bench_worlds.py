"""What became of every hypothesis."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from proba.bench.worlds import MIRROR, mirror_states
from proba.cli import main
from proba.io.ground_truth import save_ground_truth
from proba.io.matches_h5 import save_matches
from proba.synthetic import make_scene, scene_matches


def test_edges_across_a_mirrored_half_are_neither_right_nor_mirrored() -> None:
    truth = make_scene("ring", n_images=8, seed=0).ground_truth(cloud=False).cam_from_world  # [8, 4, 4]
    edges = np.array([[0, 1], [1, 2], [4, 5], [5, 6]])
    assert mirror_states(truth, truth, edges) == ["right"] * 4
    relative = truth @ np.linalg.inv(truth[0])  # n_from_0
    mirrored = MIRROR @ relative @ MIRROR
    assert mirror_states(mirrored, truth, edges) == ["mirrored"] * 4
    half = np.where((np.arange(8) < 4)[:, None, None], relative, mirrored)
    assert mirror_states(half, truth, edges) == ["right", "right", "mirrored", "mirrored"]
    assert mirror_states(half, truth, np.array([[1, 6]])) == ["wrong"]


def test_all_worlds_are_judged_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = make_scene("object", n_images=5, seed=0)
    (tmp_path / "toy" / "images").mkdir(parents=True)
    save_ground_truth(scene.ground_truth(cloud=False), tmp_path / "toy" / "gt.json")
    (tmp_path / "cache").mkdir()
    save_matches(tmp_path / "cache" / "toy.auto.h5", scene_matches(scene, grid=24, noise_px=0.5, seed=1))
    arguments = ["--data", str(tmp_path / "toy"), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    main(["bench", "worlds", *arguments, "--hypotheses", "cold"])
    worlds = json.loads((tmp_path / "out" / "worlds.json").read_text())
    assert {world["name"] for world in worlds} == {"fov45", "fov45-mirror"}  # nobody is pruned
    best = max(worlds, key=lambda world: world["explained_share"])
    assert best["refined"]["rra@5"] == best["refined"]["rta@5"] == 100
    assert all(edge["state"] == "right" and edge["residual_px"] < 20 for edge in best["edges"])
    assert len(best["images"]) == 5 and all(image["mirrored"] == 0 for image in best["images"])
    assert (tmp_path / "out" / "worlds.png").read_bytes().startswith(b"\x89PNG")
    assert f"| {best['name']} |" in capsys.readouterr().out
