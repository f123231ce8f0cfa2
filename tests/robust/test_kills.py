"""Commands that are killed at any moment: what is on disk is the old result or the new one, and --resume finishes it.

Ten kills in every test run, a hundred in the long one.
"""

import hashlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from killing import command

from proba.history.evolution import EVOLUTION_FILE, load_evolutions
from proba.io.atomic import TEMPORARY_PREFIX
from proba.io.dense_folder import load_dense
from proba.io.matches_h5 import load_matches
from proba.io.reconstruction_folder import load_reconstruction
from proba.synthetic import make_scene
from proba.synthetic.render import render_images

kills = pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
QUICK = ["--solver.iterations", "150", "--solver.checkpoint-seconds", "0", "--matcher", "sift", "--quiet"]


@dataclass(frozen=True)
class Reference:
    """What an undisturbed command leaves, and how long it takes."""

    folder: Path
    state: str
    seconds: float


def moments(reference: Reference, count: int) -> list[float]:
    """When to kill: anywhere in the time that the command takes."""
    return np.random.default_rng(count).uniform(0.0, 1.05 * reference.seconds, count).tolist()


def result_state(folder: Path) -> str:
    """Everything that belongs to a result, as one number; complains if its parts do not fit together."""
    (rec,) = load_reconstruction(folder)
    digest = hashlib.sha256(rec.cam_from_world.tobytes() + rec.points.xyz.tobytes() + rec.pose_std.tobytes())
    (evolution,) = load_evolutions(folder / EVOLUTION_FILE)
    digest.update(evolution.iteration.tobytes() + evolution.cam_from_world.tobytes())
    return digest.hexdigest()


def tree_state(folder: Path) -> str:
    """The names and contents of all files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".proba-")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()


def dense_state(folder: Path) -> str:
    """Everything of the dense depth, as its readers see it."""
    (rec,) = load_reconstruction(folder)
    piece = load_dense(folder, rec)
    assert piece is not None
    digest = hashlib.sha256(piece.read_cloud().xyz.tobytes())
    for name in rec.image_names:
        found = piece.read_depth(name)
        assert found is not None
        digest.update(found.depth.tobytes() + found.sigma.tobytes() + found.normal.tobytes())
    digest.update((folder / "points.ply").read_bytes())
    return digest.hexdigest()


def matches_state(file: Path) -> str:
    digest = hashlib.sha256()
    matches = load_matches(file)
    for pair in sorted(matches.pairs):
        digest.update(str(pair).encode() + b"".join(array.tobytes() for array in matches.pairs[pair]))
    return digest.hexdigest()


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.name.startswith(TEMPORARY_PREFIX)]


def reference(folder: Path, argv: list[str], state: Callable[[Path], str], out: str | None = None) -> Reference:
    seconds = command(*argv, "--out", str(folder) if out is None else str(folder / out))
    return Reference(folder, state(folder if out is None else folder / out), seconds)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kills") / "photos"
    render_images(make_scene("object", n_images=5, seed=0, width=320, height=240), folder)
    return folder


@pytest.fixture(scope="module")
def solved(photos) -> Reference:
    return reference(photos.parent / "solved", ["run", str(photos), *QUICK], result_state)


@pytest.fixture(scope="module")
def other(photos) -> Reference:
    """Another result, of another seed."""
    return reference(photos.parent / "other", ["run", str(photos), *QUICK, "--seed", "5"], result_state)


def copy_of(source: Path, target: Path) -> Path:
    """A copy that can be spoilt."""
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())
    return target


@kills
def test_a_killed_run_goes_on_to_the_same_result_and_film(photos, solved, tmp_path, kills):
    for k, moment in enumerate(moments(solved, kills)):
        out = tmp_path / str(k)
        command("run", str(photos), *QUICK, "--out", str(out), kill_after=moment)
        command("run", str(photos), *QUICK, "--out", str(out), "--resume")
        assert result_state(out) == solved.state
        assert leftovers(out) == []


@kills
def test_a_run_over_an_older_result_leaves_the_old_one_or_the_new_one(photos, solved, other, tmp_path, kills):
    for k, moment in enumerate(moments(solved, kills)):
        out = copy_of(other.folder, tmp_path / str(k))
        command("run", str(photos), *QUICK, "--out", str(out), kill_after=moment)
        assert result_state(out) in (other.state, solved.state)


@kills
def test_a_killed_match_goes_on_to_the_same_matches(photos, tmp_path, kills):
    argv = ["match", str(photos), "--matcher", "sift", "--quiet"]
    whole = reference(tmp_path / "whole", argv, matches_state, "m.h5")
    for k, moment in enumerate(moments(whole, kills)):
        out = tmp_path / f"{k}.h5"
        command(*argv, "--out", str(out), kill_after=moment)
        command(*argv, "--out", str(out), "--resume")
        assert matches_state(out) == whole.state


@kills
def test_a_killed_alignment_leaves_the_old_result_or_the_new_one(solved, tmp_path, kills):
    new = copy_of(solved.folder, tmp_path / "new")
    argv = ["align", "--up", "gravity"]
    whole = Reference(new, "", command(argv[0], str(new), *argv[1:]))
    states = (solved.state, result_state(new))
    for k, moment in enumerate(moments(whole, kills)):
        out = copy_of(solved.folder, tmp_path / str(k))
        command(argv[0], str(out), *argv[1:], kill_after=moment)
        assert result_state(out) in states


@kills
def test_killed_dense_depth_leaves_the_older_one_and_goes_on(solved, tmp_path, kills):
    older = copy_of(solved.folder, tmp_path / "older")
    argv = ["--max-side", "96", "--threads", "1", "--quiet"]
    command("dense", str(older), "--max-side", "64", "--threads", "1", "--quiet")
    new = copy_of(older, tmp_path / "new")
    whole = Reference(new, "", command("dense", str(new), *argv))
    states = [dense_state(older), dense_state(new)]
    assert states[0] != states[1]
    for k, moment in enumerate(moments(whole, kills)):
        out = copy_of(older, tmp_path / str(k))
        command("dense", str(out), *argv, kill_after=moment)
        assert dense_state(out) in states
        command("dense", str(out), *argv, "--resume")
        assert dense_state(out) == states[1]
        assert leftovers(out) == [] and not list(out.glob("dense/*/work"))


@pytest.mark.slow
def test_a_killed_run_with_dense_depth_goes_on(photos, tmp_path):
    argv = ["run", str(photos), *QUICK, "--dense", "--threads", "1"]
    whole = reference(tmp_path / "whole", argv, dense_state)
    for k, moment in enumerate(moments(whole, 20)):
        out = tmp_path / str(k)
        command(*argv, "--out", str(out), kill_after=moment)
        command(*argv, "--out", str(out), "--resume")
        assert dense_state(out) == whole.state


@kills
def test_a_killed_export_is_finished_by_the_next(solved, photos, tmp_path, kills):
    argv = ["export", str(solved.folder), "--to", "colmap-undistorted", "--images", str(photos)]
    whole = reference(tmp_path / "whole", argv, tree_state)
    for k, moment in enumerate(moments(whole, kills)):
        out = tmp_path / str(k)
        command(*argv, "--out", str(out), kill_after=moment)
        command(*argv, "--out", str(out))
        assert tree_state(out) == whole.state


@kills
def test_a_killed_video_run_goes_on(photos, tmp_path, kills):
    av = pytest.importorskip("av")
    clip = tmp_path / "clip.mp4"
    _encode(av, sorted(photos.glob("*")), clip)
    argv = ["run", str(clip), *QUICK]
    whole = reference(tmp_path / "whole", argv, result_state)
    for k, moment in enumerate(moments(whole, kills)):
        out = tmp_path / str(k)
        command(*argv, "--out", str(out), kill_after=moment)
        command(*argv, "--out", str(out), "--resume")
        assert result_state(out) == whole.state


def _encode(av, pictures: list[Path], clip: Path) -> None:
    """Each picture is shown for three frames."""
    from PIL import Image

    with av.open(str(clip), "w") as container:
        first = Image.open(pictures[0])
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = first.width // 2 * 2, first.height // 2 * 2, "yuv420p"
        stream.bit_rate = 8_000_000
        for picture in pictures:
            rgb = np.asarray(Image.open(picture).convert("RGB"))[: stream.height, : stream.width]
            for _ in range(3):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")))
        container.mux(stream.encode())


def test_a_program_that_is_asked_to_end_says_one_line(photos, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "proba", "run", str(photos), *QUICK, "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    while not (tmp_path / "out" / "matches.h5").exists() and process.poll() is None:
        time.sleep(0.05)
    process.terminate()
    output, _ = process.communicate()
    assert process.returncode in (0, 143)
    if process.returncode == 143:
        *summary, last = output.strip().splitlines()
        assert last == "proba: ended from outside; run the same command with --resume to go on"
        assert not summary or (len(summary) == 1 and "pairs kept" in summary[0])
        assert not (tmp_path / "out" / ".proba-lock").exists()


def test_a_program_without_standard_output_works(solved):
    done = subprocess.run(
        ["/bin/sh", "-c", f"'{sys.executable}' -m proba eval '{solved.folder}' --gt '{solved.folder}' >&-"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
