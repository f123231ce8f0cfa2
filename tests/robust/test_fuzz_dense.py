"""Folders of dense depth from elsewhere: index, depth files, clouds, and what an interrupted run has left."""

import json
import shutil

import numpy as np
import pytest
from fuzzing import counts, fuzz
from mutations import damaged_bytes, damaged_json, damaged_table, snapshot
from samples import DENSE, write_dense_result

from proba.api import dense_folder
from proba.cli import main
from proba.io.dense_folder import DensePiece, read_index
from proba.io.reconstruction_folder import load_reconstruction
from proba.viewer.scene import load_scene


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A result with a small dense folder, and the photos of its images."""
    return write_dense_result(tmp_path_factory.mktemp("dense") / "result")


def use(result, folder, rng):
    """Every reader of dense depth; nothing changes but what it is told to write."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    before = snapshot(result)
    try:
        kind = rng.integers(5)
        if kind < 3:
            target = ("depth", "ply", "splat")[kind]
            main(["export", str(result), "--to", target, "--out", str(out)])
        elif kind == 3:
            main(["eval", str(result), "--gt", str(result / "gt.json"), "--json", str(out / "eval.json")])
        else:
            load_scene(result)
    finally:
        assert snapshot(result) == before


def copy_of(whole, folder):
    result = folder / "result"
    shutil.rmtree(result, ignore_errors=True)
    return shutil.copytree(whole, result)


@counts
def test_indices(tmp_path, whole, count):
    content = read_index(whole)

    def damaged_index(rng):
        result = copy_of(whole, tmp_path)
        (result / "dense" / "dense.json").write_text(damaged_json(content, rng))
        use(result, tmp_path, rng)

    fuzz(count // 3, damaged_index)


@counts
def test_depth_files(tmp_path, whole, count):
    piece = DensePiece(whole, 0)
    name = load_reconstruction(whole)[0].image_names[0]
    path = piece.depth_file(name)
    content = path.read_bytes()
    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}

    def damaged_depth(rng):
        result = copy_of(whole, tmp_path)
        target = DensePiece(result, 0).depth_file(name)
        if rng.random() < 0.4:
            target.write_bytes(damaged_bytes(content, rng))
        else:
            np.savez_compressed(target, **damaged_table(arrays, rng))
        use(result, tmp_path, rng)

    fuzz(count // 2, damaged_depth)


@counts
def test_clouds(tmp_path, whole, count):
    content = DensePiece(whole, 0).cloud.read_bytes()

    def damaged_cloud(rng):
        result = copy_of(whole, tmp_path)
        DensePiece(result, 0).cloud.write_bytes(damaged_bytes(content, rng))
        use(result, tmp_path, rng)

    fuzz(count // 3, damaged_cloud)


@counts
def test_what_an_interrupted_run_has_left(tmp_path, whole, count):
    """A run that goes on from damaged work either refuses it or ends."""

    class Stop(Exception):
        pass

    class StopAtFusion:
        def begin(self, what, total, unit):
            if what == "fusing":
                raise Stop

        def advance(self):
            pass

    began = copy_of(whole, tmp_path / "began")
    with pytest.raises(Stop):
        dense_folder(began, options=DENSE, observer=StopAtFusion())
    files = sorted(DensePiece(began, 0).work.rglob("*.npz"))
    assert len(files) == 2 * len(load_reconstruction(began)[0].image_names)

    def damaged_work(rng):
        result = copy_of(began, tmp_path)
        chosen = files[rng.integers(len(files))]
        target = result / chosen.relative_to(began)
        if rng.random() < 0.4:
            target.write_bytes(damaged_bytes(chosen.read_bytes(), rng))
        else:
            with np.load(chosen) as file:
                arrays = {key: file[key] for key in file.files}
            np.savez(target, **damaged_table(arrays, rng))
        dense_folder(result, options=DENSE, resume=True)

    fuzz(count // 4, damaged_work)


def test_an_index_that_is_gone_means_no_dense_depth(tmp_path, whole):
    """The index goes first when dense depth is made anew, so that what is half removed never passes for whole."""
    result = copy_of(whole, tmp_path)
    (result / "dense" / "dense.json").unlink()
    shutil.rmtree(result / "dense" / "0" / "depth")
    assert read_index(result) is None
    main(["export", str(result), "--to", "ply", "--out", str(tmp_path / "out")])
    assert json.loads((result / "report.json").read_text())["image_folder"] == "images"
