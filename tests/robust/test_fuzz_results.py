"""Result folders from elsewhere: models, maps, histories and reports that are damaged or mean ill."""

import json
import shutil
import struct

import numpy as np
import pytest
from fuzzing import counts, fuzz
from mutations import HOSTILE_NAMES, damaged_bytes, damaged_json, damaged_table, snapshot
from samples import write_small_result

from proba.cli import main
from proba.history.evolution import EVOLUTION_FILE, load_evolutions
from proba.io.colmap import read_colmap

TARGETS = ("colmap", "colmap-txt", "tum", "glb", "ply", "splat", "depth")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A result with text files of its model beside it."""
    folder = write_small_result(tmp_path_factory.mktemp("whole"))
    main(["export", str(folder), "--to", "colmap-txt", "--out", str(folder / "text")])
    (folder / "report.json").write_text(json.dumps({"image_folder": "images", "components": [{"pose_std": {}}]}))
    return folder


def use(result, folder, rng):
    """One of the commands that read a result; nothing changes but what it is told to write."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    before = snapshot(folder, without=out)
    try:
        kind = rng.integers(10)
        if kind < len(TARGETS):
            main(
                ["export", str(result), "--to", TARGETS[kind], "--out", str(out), "--density", "16"][
                    : 8 if kind == 6 else 6
                ]
            )
        elif kind == 7:
            main(["eval", str(result), "--gt", str(result / "gt.json"), "--json", str(out / "eval.json")])
        else:
            main(["align", str(result), "--up", "z", "--out", str(out)])
    finally:
        assert snapshot(folder, without=out) == before


def copy_of(whole, folder):
    result = folder / "result"
    shutil.rmtree(result, ignore_errors=True)
    return shutil.copytree(whole, result)


@counts
@pytest.mark.parametrize("name", ["cameras.bin", "images.bin", "points3D.bin"])
def test_binary_models(tmp_path, whole, name, count):
    content = (whole / "sparse" / "0" / name).read_bytes()

    def damaged_binary_model(rng):
        result = copy_of(whole, tmp_path)
        (result / "sparse" / "0" / name).write_bytes(damaged_bytes(content, rng))
        use(result, tmp_path, rng)

    fuzz(count // 2, damaged_binary_model)


@counts
@pytest.mark.parametrize("name", ["cameras.txt", "images.txt", "points3D.txt"])
def test_text_models(tmp_path, whole, name, count):
    content = (whole / "text" / "sparse" / "0" / name).read_bytes()

    def damaged_text_model(rng):
        result = copy_of(whole, tmp_path)
        shutil.rmtree(result / "sparse")
        shutil.copytree(whole / "text" / "sparse", result / "sparse")
        words = content.split(b" ")
        if rng.random() < 0.5:
            values = [
                b"",
                b"nan",
                b"-1",
                b"1e400",
                b"99999999999999999999",
                b"../../x.jpg",
                b"\n",
                b"OPENCV",
                b"\xff\xfe",
            ]
            for _ in range(rng.integers(1, 4)):
                words[rng.integers(len(words))] = values[rng.integers(len(values))]
            (result / "sparse" / "0" / name).write_bytes(b" ".join(words))
        else:
            (result / "sparse" / "0" / name).write_bytes(damaged_bytes(content, rng))
        use(result, tmp_path, rng)

    fuzz(count // 2, damaged_text_model)


@counts
def test_maps(tmp_path, whole, count):
    with np.load(whole / "maps.npz") as file:
        arrays = {name: file[name] for name in file.files}
    maps = np.zeros((4, 6, 6), np.float32)
    arrays |= {"log_depth_0": maps + 1, "log_variance_0": maps - 4}

    def damaged_maps(rng):
        result = copy_of(whole, tmp_path)
        changed = damaged_table(arrays, rng)
        if rng.random() < 0.3:
            for name in ("edges_0", "notes_0"):
                changed[name] = np.array(damaged_json(json.loads(str(arrays[name])), rng))
        np.savez_compressed(result / "maps.npz", **changed)
        use(result, tmp_path, rng)

    fuzz(count, damaged_maps)


@counts
def test_maps_with_damaged_bytes(tmp_path, whole, count):
    content = (whole / "maps.npz").read_bytes()

    def damaged_maps_bytes(rng):
        result = copy_of(whole, tmp_path)
        (result / "maps.npz").write_bytes(damaged_bytes(content, rng))
        use(result, tmp_path, rng)

    fuzz(count // 2, damaged_maps_bytes)


@counts
def test_histories(tmp_path, whole, count):
    with np.load(whole / EVOLUTION_FILE) as file:
        arrays = {name: file[name] for name in file.files}
    content = (whole / EVOLUTION_FILE).read_bytes()

    def damaged_history(rng):
        path = tmp_path / EVOLUTION_FILE
        kind = rng.random()
        if kind < 0.3:
            path.write_bytes(damaged_bytes(content, rng))
        else:
            changed = damaged_table(arrays, rng) if kind < 0.7 else dict(arrays)
            if kind > 0.7:
                for name in ("header", "image_names_0", "worlds_0"):
                    changed[name] = np.array(damaged_json(json.loads(str(arrays[name])), rng))
            np.savez(path, **changed)
        for evolution in load_evolutions(path):
            for frame in evolution.timeline(evolution.told):
                evolution.state(int(frame))

    fuzz(count, damaged_history)


@counts
def test_reports(tmp_path, whole, count):
    names = json.loads((whole / "gt.json").read_text())["cameras"]
    report = {
        "image_folder": "images",
        "components": [{"pose_std": {camera["image"]: {"centre": 0.1, "rotation": 0.1} for camera in names}}],
    }

    def damaged_report(rng):
        result = copy_of(whole, tmp_path)
        (result / "report.json").write_text(damaged_json(report, rng))
        main(["align", str(result), "--up", "z", "--out", str(tmp_path / f"out{rng.integers(10**9)}")])

    fuzz(count // 3, damaged_report)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names_go_nowhere(tmp_path, whole, name, capsys):
    result = copy_of(whole, tmp_path)
    model = result / "sparse" / "0" / "images.bin"
    encoded = name.encode("utf-8", "surrogateescape")
    model.write_bytes(model.read_bytes().replace(b"000.png", encoded, 1))
    before = snapshot(tmp_path)
    for target in ("depth", "colmap-txt", "colmap-undistorted", "nerfstudio"):
        with pytest.raises(SystemExit) as exit_info:
            main(["export", str(result), "--to", target, "--out", str(tmp_path / "deep" / "er" / "out")])
        assert exit_info.value.code == 2
        assert "Traceback" not in capsys.readouterr().err
    assert snapshot(tmp_path) == before


def test_counts_that_a_file_has_no_room_for(tmp_path, whole):
    """Four flipped bytes once took more than ten gigabytes."""
    for name in ("cameras.bin", "images.bin", "points3D.bin"):
        content = (whole / "sparse" / "0" / name).read_bytes()

        def vast(rng, name=name, content=content):
            result = copy_of(whole, tmp_path)
            number = [2**20, 2**32, 2**40, 2**61, 2**63, 2**64 - 1][rng.integers(6)]
            at = 0 if rng.random() < 0.3 else int(rng.integers(0, len(content) - 8))
            (result / "sparse" / "0" / name).write_bytes(content[:at] + struct.pack("<Q", number) + content[at + 8 :])
            read_colmap(result / "sparse" / "0")

        fuzz(30, vast)


def test_a_camera_line_without_parameters(tmp_path, whole):
    result = copy_of(whole, tmp_path)
    (result / "text" / "sparse" / "0" / "cameras.txt").write_text("1 SIMPLE_PINHOLE 640 480\n")
    with pytest.raises(SystemExit) as exit_info:
        main(["eval", str(result), "--gt", str(result / "text" / "sparse" / "0")])
    assert exit_info.value.code == 2


def test_the_page_of_a_damaged_history_is_refused(tmp_path, whole):
    result = copy_of(whole, tmp_path)
    (result / EVOLUTION_FILE).write_bytes(b"PK\3\4 half")
    with pytest.raises(SystemExit) as exit_info:
        main(["view", str(result), "--save", str(tmp_path / "page.html")])
    assert exit_info.value.code == 2
    assert not (tmp_path / "page.html").exists()
