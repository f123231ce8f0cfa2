"""Ground truth and clouds from elsewhere."""

import json

import numpy as np
import pytest
from fuzzing import counts, fuzz
from mutations import damaged_bytes, damaged_json
from samples import write_small_result

from proba.evaluation import evaluate
from proba.io.ground_truth import load_ground_truth, true_points
from proba.io.ply import read_ply, write_ply
from proba.io.reconstruction_folder import load_reconstruction


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return write_small_result(tmp_path_factory.mktemp("whole"), history=False)


@counts
def test_gt_json(tmp_path, result, count):
    pieces = load_reconstruction(result)
    content = json.loads((result / "gt.json").read_text())
    content |= {"units": "metres; depth png uint16 /5000", "pixel_convention": "center0"}
    write_ply(tmp_path / "cloud.ply", np.random.default_rng(0).normal(size=(50, 3)))
    content["cloud"] = "cloud.ply"

    def damaged_gt_json(rng):
        (tmp_path / "gt.json").write_text(damaged_json(content, rng))
        evaluate(pieces, load_ground_truth(tmp_path / "gt.json"))

    fuzz(count, damaged_gt_json)


@counts
def test_transforms_json(tmp_path, result, count):
    pieces = load_reconstruction(result)
    frames = [
        {"file_path": f"../images/{name}", "transform_matrix": pose.tolist()}
        for name, pose in zip(pieces[0].image_names, np.linalg.inv(pieces[0].cam_from_world), strict=True)
    ]
    content = {"w": 640, "h": 480, "fl_x": 500.0, "fl_y": 500.0, "cx": 320.0, "cy": 240.0, "frames": frames}

    def damaged_transforms(rng):
        (tmp_path / "transforms.json").write_text(damaged_json(content, rng))
        truth = load_ground_truth(tmp_path / "transforms.json")
        evaluate(pieces, truth)
        true_points(truth)

    fuzz(count, damaged_transforms)


@counts
def test_json_with_damaged_bytes(tmp_path, result, count):
    content = (result / "gt.json").read_bytes()
    pieces = load_reconstruction(result)

    def damaged_json_bytes(rng):
        (result / "other.json").write_bytes(damaged_bytes(content, rng))
        evaluate(pieces, load_ground_truth(result / "other.json"))

    fuzz(count // 2, damaged_json_bytes)


@counts
def test_ply(tmp_path, count):
    rng = np.random.default_rng(0)
    xyz = rng.normal(size=(20, 3))
    write_ply(tmp_path / "whole.ply", xyz, rng.integers(0, 255, (20, 3)), rng.uniform(size=20), xyz)
    content = (tmp_path / "whole.ply").read_bytes()
    words = [b"element vertex 99999999999999", b"element vertex -1", b"property list uchar int x", b"property double x",
             b"element vertex", b"element vertex x", b"property", b"format ascii 1.0"]  # fmt: skip

    def damaged_ply(rng):
        data = damaged_bytes(content, rng)
        if rng.random() < 0.4:
            lines = content.split(b"\n")
            lines[rng.integers(1, 8)] = words[rng.integers(len(words))]
            data = b"\n".join(lines)
        (tmp_path / "c.ply").write_bytes(data)
        read_ply(tmp_path / "c.ply")

    fuzz(count, damaged_ply)
