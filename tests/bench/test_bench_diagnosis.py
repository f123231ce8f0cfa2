"""What became of every hypothesis."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from proba.bench.diagnosis import MIRROR, mirror_states
from proba.cli import main
from proba.synthetic import make_scene


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


def test_all_worlds_are_judged_and_drawn(toy_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(toy_data / "toy"), "--out", str(tmp_path / "out"), "--cache", str(toy_data / "cache")]
    main(["bench", "diagnose", *arguments, "--hypotheses", "cold"])
    worlds = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    assert {world["name"] for world in worlds} == {"fov45", "fov45-mirror"}  # nobody is pruned
    best = max(worlds, key=lambda world: world["explained_share"])
    assert best["refined"]["rra@5"] == best["refined"]["rta@5"] == 100
    assert all(edge["state"] == "right" and edge["residual_px"] < 20 for edge in best["edges"])
    assert len(best["images"]) == 5 and all(image["mirrored"] == 0 for image in best["images"])
    assert (tmp_path / "out" / "diagnosis.png").read_bytes().startswith(b"\x89PNG")
    assert f"| {best['name']} |" in capsys.readouterr().out


def test_several_sets_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gt.json").write_text("{}")
    with pytest.raises(SystemExit) as stop:
        main(["bench", "diagnose", "--data", str(tmp_path)])
    assert stop.value.code == 2 and "one, two" in capsys.readouterr().err
