"""`proba render`: films as files, and what it says to bad input."""

from itertools import pairwise

import numpy as np
import pytest
from failing import fails_in_one_line
from PIL import Image
from small_result import write_small_result

from proba.cli import main

SMALL = ["--width", "96", "--height", "64", "--fps", "4", "--seconds", "1", "--ending", "0.5", "--quiet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_small_result(tmp_path_factory.mktemp("render") / "out")


def test_pictures_show_the_cameras_fanning_out(folder, tmp_path):
    main(["render", str(folder), "--out", str(tmp_path / "pictures"), *SMALL])
    pictures = [np.asarray(Image.open(path)) for path in sorted((tmp_path / "pictures").glob("*.png"))]
    assert len(pictures) == 6 and pictures[0].shape == (64, 96, 3)
    changes = [(a != b).any(-1).mean() for a, b in pairwise(pictures[:4])]
    assert min(changes) > 0.01


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_film_is_written_whole(folder, tmp_path, name, capsys):
    main(["render", str(folder), "--out", str(tmp_path / name), *SMALL])
    assert (tmp_path / name).stat().st_size > 1000
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert name in capsys.readouterr().out


def test_bad_input_is_refused(folder, tmp_path, capsys):
    out = str(tmp_path / "a.gif")
    assert ".mp4" in fails_in_one_line(capsys, "render", str(folder), "--out", str(tmp_path / "a.txt"))
    assert "fov50" in fails_in_one_line(capsys, "render", str(folder), "--out", out, "--world", "mirror")
    assert "no piece 3" in fails_in_one_line(capsys, "render", str(folder), "--out", out, "--piece", "3")
    assert "even" in fails_in_one_line(capsys, "render", str(folder), "--out", out, "--width", "97")
    old = write_small_result(tmp_path / "old", history=False)
    assert "evolution.npz" in fails_in_one_line(capsys, "render", str(old), "--out", out)
    assert not (tmp_path / "a.gif").exists()
