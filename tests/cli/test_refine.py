"""`proba refine` goes on from what `proba solve` left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from failing import fails_in_one_line

import proba
from proba.cli import main
from proba.synthetic import make_scene, scene_matches


@pytest.fixture(scope="module")
def solved(tmp_path_factory) -> Path:
    """A result folder of few iterations; the matches are beside it."""
    folder = tmp_path_factory.mktemp("refine")
    matches = scene_matches(make_scene("object", n_images=4, seed=0), grid=20, seed=0)
    proba.save_matches(folder / "m.h5", matches)
    few = ["--solver.iterations", "60", "--longer", "1", "--threads", "1", "--quiet"]
    main(["solve", str(folder / "m.h5"), "--out", str(folder / "out"), *few])
    return folder / "out"


def model(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in [*(folder / "sparse" / "0").iterdir(), folder / "points.ply"]}


def report(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def test_same_settings_same_bytes_in_place_and_elsewhere(solved: Path, tmp_path: Path, capsys) -> None:
    before, told = model(solved), report(solved)
    for out in ([], ["--out", str(tmp_path / "again")]):
        main(["refine", str(solved), "--threads", "1", "--quiet", *out])
        assert model(Path(out[1]) if out else solved) == before
    assert "4 of 4" in capsys.readouterr().out
    again = report(tmp_path / "again")
    for key in ("hypotheses", "settings", "iterations", "seed", "focal_px", "components"):
        assert again[key] == told[key], key
    assert (solved / "evolution.npz").exists()  # the history of the solve stays


def test_left_out_stages_change_the_result(solved: Path, tmp_path: Path) -> None:
    main(["refine", str(solved), "--out", str(tmp_path / "bare"), "--refine.no-enabled", "--threads", "1", "--quiet"])
    assert model(tmp_path / "bare") != model(solved)
    assert report(tmp_path / "bare")["settings"]["refine"]["enabled"] is False
    assert report(tmp_path / "bare")["registered"] == 4


def test_a_folder_without_a_solve_or_its_matches_is_refused(solved: Path, tmp_path: Path, capsys) -> None:
    assert "proba solve" in fails_in_one_line(capsys, "refine", str(tmp_path))
    other = tmp_path / "other.h5"
    proba.save_matches(other, scene_matches(make_scene("object", n_images=4, seed=1), grid=20, seed=1))
    assert "--matches" in fails_in_one_line(capsys, "refine", str(solved), "--matches", str(other))
