"""A disk that fills up: the command says so in one line, and what was there before is still there, whole."""

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from mutations import snapshot
from PIL import Image
from samples import DENSE, npz_arrays, small_matches, write_dense_result, write_small_result

from proba.api import dense_folder
from proba.bench.charts import bars
from proba.bench.experiment import Experiment, Row, RunOptions, table
from proba.bench.runner import run
from proba.cli import main
from proba.errors import ProbaError, StorageError
from proba.export import Format
from proba.export.mesh import write_mesh
from proba.io.atomic import all_or_nothing, atomic_file, atomic_write_text
from proba.io.dense_folder import DensePiece
from proba.io.ground_truth import load_ground_truth, save_ground_truth
from proba.io.matches_h5 import load_matches, save_matches
from proba.io.ply import write_ply
from proba.io.reconstruction_folder import load_reconstruction, save_reconstruction
from proba.synthetic import make_scene
from proba.synthetic.render import render_images

resource = pytest.importorskip("resource", reason="limits of a process are POSIX")


@contextmanager
def largest_file(size: int):
    """Files of this process cannot grow beyond `size` bytes: writes fail as on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a disk of a given size, where that is allowed."""
    mounted = []

    def mount(size_kb: int) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k", "tmpfs", str(folder)]
        if sys.platform != "linux" or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting is not allowed here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """A result with photos of its images."""
    folder = write_small_result(tmp_path_factory.mktemp("result"))
    np.savez(folder / "m.npz", **npz_arrays(small_matches(n_images=6, n_matches=300)))
    pieces = load_reconstruction(folder)
    rng = np.random.default_rng(0)
    for name in pieces[0].image_names:
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        camera = pieces[0].cameras[0]
        noise = rng.integers(0, 255, (camera.height // 8, camera.width // 8, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((camera.width, camera.height)).save(path)
    return folder


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """A result with dense depth and a cloud that a surface can be laid through."""
    folder = write_dense_result(tmp_path_factory.mktemp("dense") / "result")
    ball = np.random.default_rng(0).normal(size=(1000, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    write_ply(DensePiece(folder, 0).cloud, ball, np.full(ball.shape, 90, np.uint8), np.full(len(ball), 0.01), ball)
    return folder


def import_npz(result, out):
    main(["import", str(result / "m.npz"), "--out", str(out / "m.h5")])


def align_in_place(result, out):
    if not out.exists():
        shutil.copytree(result, out)
    main(["align", str(out), "--up", "x"])


def dense_in_place(result, out):
    if not out.exists():
        shutil.copytree(result, out)
    dense_folder(out, options=DENSE, threads=1, resume=True)


def export_to(target):
    sparse = ["--density", "16"] if target == "depth" else []
    return lambda result, out: main(["export", str(result), "--to", target, "--out", str(out), *sparse])


def write_rows(result, out):
    """The page and the picture of rows that are there."""
    rows = [{**row.settings, "square": 4} for row in ROWS]
    if not out.exists():
        atomic_write_text(out / "toy.json", json.dumps({"rows": rows}))
    run(TOY, out, RunOptions())


ROWS = [Row(settings={"number": number, "seed": 0}, work=dict) for number in (1, 2, 3)]
TOY = Experiment(
    name="toy", title="A toy", about="Squares.", quoted=(), plan=lambda options: ROWS,
    tables=lambda rows: table(("number", "square"), [(row["number"], row["square"]) for row in rows]),
    draw=lambda rows, path: bars(path, ["x"], {str(row["number"]): [row["square"]] for row in rows}, ylabel="y"),
)  # fmt: skip


SMALL_FILM = ["--width", "96", "--height", "64", "--fps", "4", "--seconds", "1", "--ending", "0.5", "--quiet"]
WRITERS = {
    "import": import_npz,
    "save": lambda result, out: save_reconstruction(load_reconstruction(result), out),
    "align": align_in_place,
    "eval": lambda r, out: main(["eval", str(r), "--gt", str(r / "gt.json"), "--json", str(out / "eval.json")]),
    "page": lambda r, out: main(["view", str(r), "--save", str(out / "page.html")]),
    "gif": lambda r, out: main(["render", str(r), "--out", str(out / "film.gif"), *SMALL_FILM]),
    "mp4": lambda r, out: main(["render", str(r), "--out", str(out / "film.mp4"), *SMALL_FILM]),
    "pictures": lambda r, out: main(["render", str(r), "--out", str(out), *SMALL_FILM]),
    "truth": lambda r, out: save_ground_truth(load_ground_truth(r / "gt.json"), out / "gt.json"),
    "photos": lambda r, out: render_images(make_scene("object", n_images=1, width=64, height=48), out),
    **{f"export {target}": export_to(target) for target in get_args(Format) if target != "mesh"},
    "rows": write_rows,
}
OF_DENSE = {"dense": dense_in_place, **{f"dense {to}": export_to(to) for to in ("mesh", "depth", "nerfstudio", "ply")}}


def is_work(path):
    """What `proba dense` keeps to go on from."""
    return path.startswith("dense/") and ("work" in path or "unfinished" in path)


@pytest.mark.parametrize("name", [*WRITERS, *OF_DENSE])
def test_a_full_disk_leaves_what_was_there(name, request, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("proba.export.targets.write_mesh", partial(write_mesh, octree_depth=5))
    result, out = request.getfixturevalue("dense" if name in OF_DENSE else "result"), tmp_path / "out"
    write = {**WRITERS, **OF_DENSE}[name]
    write(result, out)
    before, source = snapshot(out), snapshot(result)
    written = {"align": "sparse", "dense": "dense"}.get(name, "")
    largest = max(len(content) for path, (_, content) in before.items() if written in path)
    for limit in (1, largest // 2, largest * 9 // 10):  # encoders may differ by some bytes from run to run
        capsys.readouterr()
        with pytest.raises((SystemExit, ProbaError)) as caught, largest_file(limit):
            write(result, out)
        if caught.type is SystemExit:
            assert caught.value.code == 2
            told = capsys.readouterr().err.strip().splitlines()
            assert "no space left" in told[-1] and "Free some" in told[-1]
        else:
            assert caught.type is StorageError
        kept = {path: content for path, content in snapshot(out).items() if not is_work(path)}
        assert kept == before
    assert snapshot(result) == source


def test_import_on_a_disk_with_little_room(small_disk, result, capsys):
    """HDF5 once said that it had written all, crashed, and left a file with wrong matches."""
    disk = small_disk(136)
    save_matches(disk / "m.h5", small_matches())
    before = snapshot(disk)
    arrays = npz_arrays(small_matches(n_images=10, n_matches=837))
    np.savez(result.parent / "m.npz", **arrays)
    with pytest.raises(SystemExit) as caught:
        main(["import", str(result.parent / "m.npz"), "--out", str(disk / "m.h5")])
    assert caught.value.code == 2 and "no space left" in capsys.readouterr().err
    assert snapshot(disk) == before and len(load_matches(disk / "m.h5").pairs) == 3


@pytest.mark.parametrize("target", ["colmap", "colmap-txt", "splat", "depth"])
def test_export_on_a_disk_with_little_room(small_disk, result, target, capsys):
    disk = small_disk(8)
    with pytest.raises(SystemExit) as caught:
        main(["export", str(result), "--to", target, "--out", str(disk)])
    assert caught.value.code == 2 and "no space left" in capsys.readouterr().err
    assert snapshot(disk) == {}


def test_files_of_one_block_appear_together_or_not_at_all(tmp_path):
    atomic_write_text(tmp_path / "a", "old a")
    atomic_write_text(tmp_path / "b", "old b")
    before = snapshot(tmp_path)
    with pytest.raises(KeyError), all_or_nothing():
        atomic_write_text(tmp_path / "a", "new a")
        atomic_write_text(tmp_path / "b", "new b")
        assert snapshot(tmp_path)["a"] == before["a"]
        raise KeyError
    assert snapshot(tmp_path) == before
    with all_or_nothing():
        atomic_write_text(tmp_path / "a", "new a")
        with all_or_nothing():
            atomic_write_text(tmp_path / "b", "new b")
        assert (tmp_path / "b").read_text() == "old b"
    assert (tmp_path / "a").read_text() == "new a" and (tmp_path / "b").read_text() == "new b"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_failures_that_a_library_swallows_come_out_at_the_end(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(StorageError, match="no space left"), atomic_file(tmp_path / "a", errors_at_end=True) as file:
        with largest_file(100):
            file.write(b"x" * 100_000)
            file.flush()
        file.write(b"y")
    assert (tmp_path / "a").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1
