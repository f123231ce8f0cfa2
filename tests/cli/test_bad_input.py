"""What people really give to the commands: huge, damaged, tiny and forbidden files, and a full disk."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent / "matching"))
from failing import fails_after_warnings
from textures import save, two_plane_views

from proba.cli import main
from proba.io.matches_h5 import load_matches


@pytest.fixture
def photos(tmp_path):
    for k, view in enumerate(two_plane_views(3)):
        save(tmp_path / "photos" / f"{k}.png", view)
    return tmp_path / "photos"


def command(*argv: str, largest_file: int | None = None) -> tuple[subprocess.CompletedProcess, float]:
    """Run a command by itself; also returns its peak memory in MB. `largest_file` (bytes) plays the full disk."""
    code = (
        "import resource, sys\n"
        f"limit = {largest_file}\n"
        "if limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))\n"
        "from proba.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n"
        # On Linux ru_maxrss begins with what the process that started this one holds.
        "    try:\n        peak = open('/proc/self/status').read().split('VmHWM:')[1].split()[0]\n"
        "    except OSError:\n        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    print('PEAK', peak)\n"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, env=environment)
    peak = float(done.stdout.split("PEAK")[1]) / (1024**2 if sys.platform == "darwin" else 1024)
    return done, peak


def test_photos_of_fifty_megapixels_stay_bounded(tmp_path):
    for k, view in enumerate(two_plane_views(2, width=866, height=577, focal_px=866.0)):
        large = Image.fromarray(view).resize((8660, 5770), Image.Resampling.BICUBIC)
        (tmp_path / "photos").mkdir(exist_ok=True)
        large.save(tmp_path / "photos" / f"{k}.jpg", quality=90)
    argv = ["match", str(tmp_path / "photos"), "--out", str(tmp_path / "m.h5"), "--matcher", "sift", "--quiet"]
    done, peak_mb = command(*argv)
    assert done.returncode == 0, done.stderr
    assert peak_mb < 2000
    matches = load_matches(tmp_path / "m.h5")
    assert (matches.images[0].width, matches.images[0].height) == (8660, 5770)
    assert matches.pairs[0, 1].points_i[:, 0].max() > 6000  # original pixels


def test_more_pixels_than_can_be_held_are_left_out(photos, tmp_path, monkeypatch):
    save(photos / "vast.png", np.zeros((300, 300, 3), np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40_000)
    with (
        pytest.warns(UserWarning, match=r"left out vast\.png: it has more than .* million pixels"),
        pytest.raises(SystemExit),
    ):
        main(["match", str(photos), "--out", str(tmp_path / "m.h5"), "--quiet"])


def test_damaged_and_tiny_photos_are_named_and_the_rest_is_matched(photos, tmp_path):
    view = two_plane_views(1)[0]
    whole = save(photos / "whole.jpg", np.ascontiguousarray(view[:, ::-1])).read_bytes()
    (photos / "whole.jpg").write_bytes(whole[: len(whole) * 2 // 3])
    save(photos / "dot.png", np.zeros((1, 1, 3), np.uint8))
    with pytest.warns(UserWarning) as caught:
        main(["match", str(photos), "--out", str(tmp_path / "m.h5"), "--matcher", "sift", "--quiet"])
    texts = [str(w.message) for w in caught]
    assert any("whole.jpg" in text and "truncated" in text for text in texts)
    assert any("dot.png" in text and "1 x 1 pixels" in text for text in texts)
    assert [image.name for image in load_matches(tmp_path / "m.h5").images] == ["0.png", "1.png", "2.png"]


def test_nothing_but_tiny_photos(tmp_path, capsys):
    for k in range(3):
        save(tmp_path / "photos" / f"{k}.png", np.full((1, 1, 3), k, np.uint8))
    assert "at least two are needed" in fails_after_warnings(
        capsys, "run", str(tmp_path / "photos"), "--out", str(tmp_path / "out")
    )


def test_a_folder_that_may_not_be_read(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read everything
    text = fails_after_warnings(capsys, "match", str(photos), "--out", str(tmp_path / "m.h5"))
    assert "may not be read. Change its permissions" in text


def test_a_matches_file_cut_in_half(photos, tmp_path, capsys):
    out = tmp_path / "m.h5"
    main(["match", str(photos), "--out", str(out), "--matcher", "sift", "--quiet"])
    content = out.read_bytes()
    out.write_bytes(content[: len(content) // 2])
    capsys.readouterr()
    assert "match" in fails_after_warnings(capsys, "solve", str(out), "--out", str(tmp_path / "result"), "--quiet")
    assert "Delete it" in fails_after_warnings(capsys, "match", str(photos), "--out", str(out), "--resume", "--quiet")


def test_a_disk_that_fills_up_while_matching_loses_nothing(photos, tmp_path):
    out = tmp_path / "m.h5"
    argv = ["match", str(photos), "--out", str(out), "--matcher", "sift", "--quiet", "--jobs", "1"]
    out.write_text("the result of an earlier run")
    done, _ = command(*argv, largest_file=12_000)  # room for one pair
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert "cannot be written" in done.stderr and "--resume" in done.stderr
    assert out.read_text() == "the result of an earlier run"
    out.unlink()
    done, _ = command(*argv, "--resume")
    assert done.returncode == 0 and len(load_matches(out).pairs) == 3


def test_a_disk_that_fills_up_while_the_result_is_written(photos, tmp_path, capsys, monkeypatch):
    import h5py

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "m.h5"
    argv = ["match", str(photos), "--out", str(out), "--matcher", "sift", "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(h5py.File, "create_group", full)
        text = fails_after_warnings(capsys, *argv)
    assert "No space left on device" in text and "--resume" in text
    assert not out.exists() and sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []
    main([*argv, "--resume"])
    assert len(load_matches(out).pairs) == 3


def test_a_disk_that_fills_up_during_a_run(photos, tmp_path):
    done, _ = command("run", str(photos), "--out", str(tmp_path / "out"), "--matcher", "sift", largest_file=12_000)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "cannot be written" in done.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "out" / "report.json").exists()


def test_filters_and_lists_that_do_not_exist(photos, tmp_path, capsys):
    argv = ["match", str(photos), "--out", str(tmp_path / "m.h5")]
    assert "package.module:function" in fails_after_warnings(capsys, *argv, "--pair-filter", "no_such_module:f")
    assert "is not a function but a" in fails_after_warnings(capsys, *argv, "--pair-filter", "math:pi")
    assert "no pairs file" in fails_after_warnings(capsys, *argv, "--pairs-file", str(tmp_path / "none.txt"))
    assert not (tmp_path / "m.h5").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="pipes end otherwise there")
@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_a_reader_who_has_enough_is_no_error(argument):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "proba", argument]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.stderr == "" and done.returncode == 128 + 13
