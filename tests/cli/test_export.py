"""`proba export`: every format from a folder with two pieces, and what it says to bad input."""

import json
import shutil

import numpy as np
import pycolmap
import pytest
from exact_reconstruction import exact_reconstruction
from failing import fails_in_one_line
from PIL import Image

from proba.cli import main
from proba.io.ply import read_ply
from proba.io.reconstruction_folder import save_reconstruction
from proba.reconstruction import Edge

FILES = {
    "colmap": "sparse/0/images.bin sparse/1/points3D.bin",
    "colmap-txt": "sparse/0/images.txt sparse/1/points3D.txt",
    "colmap-undistorted": "images/photos_000.png images/other_0.png sparse/0/images.bin sparse/1/points3D.bin",
    "nerfstudio": "transforms.json points.ply images/photos/000.png piece1/transforms.json piece1/images/other/0.png",
    "ply": "points.ply piece1/points.ply",
    "splat": "splat.ply piece1/splat.ply",
    "depth": "depth.json depth/photos/000.png.npy sigma/photos/000.png.npy piece1/depth.json",
    "tum": "trajectory.txt piece1/trajectory.txt",
    "glb": "scene.glb piece1/scene.glb",
}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """A result with two pieces and a report that names its photos."""
    folder = tmp_path_factory.mktemp("result")
    photos = tmp_path_factory.mktemp("set")
    first, second = exact_reconstruction(n_images=5)[1], exact_reconstruction(n_images=3, seed=5)[1]
    second.image_names = [f"other/{k}.png" for k in range(3)]
    for piece in (first, second):
        first_name, *others = piece.image_names
        piece.edges = [
            Edge(i=first_name, j=name, matches=9, weight=1.0, explainable=1.0, explained=1.0) for name in others
        ]
        for name in piece.image_names:
            (photos / name).parent.mkdir(exist_ok=True)
            Image.new("RGB", (640, 480), (10, 200, 30)).save(photos / name)
    save_reconstruction([first, second], folder)
    (folder / "report.json").write_text(json.dumps({"image_folder": str(photos)}))
    return folder


@pytest.mark.parametrize("to", FILES)
def test_every_format_writes_both_pieces(result, tmp_path, to):
    main(["export", str(result), "--to", to, "--out", str(tmp_path / "out")])
    for file in FILES[to].split():
        assert (tmp_path / "out" / file).stat().st_size > 100, file
    assert not list((tmp_path / "out").rglob(".*"))  # nothing temporary is left


def test_splatting_formats_say_what_to_run_next(result, tmp_path, capsys):
    for to, commands in {
        "colmap-undistorted": ("train.py -s", "simple_trainer.py default --data_dir", "brush", "ns-train splatfacto"),
        "nerfstudio": ("ns-train splatfacto --data", "brush"),
        "tum": (),
    }.items():
        out = tmp_path / f"to {to}"  # a name that a shell would split
        main(["export", str(result), "--to", to, "--out", str(out)])
        printed = capsys.readouterr().out
        assert all(command in printed for command in commands)
        assert printed.count(f"'{out}'") == len(commands)


def test_both_colmap_formats_open_in_pycolmap(result, tmp_path):
    for to in ("colmap", "colmap-txt"):
        main(["export", str(result), "--to", to, "--out", str(tmp_path / to)])
        for piece, count in (("0", 5), ("1", 3)):
            model = pycolmap.Reconstruction(str(tmp_path / to / "sparse" / piece))
            assert model.num_reg_images() == count and model.compute_mean_reprojection_error() < 1


def test_the_result_itself_is_the_default_place(result):
    main(["export", str(result), "--to", "tum"])
    assert len(np.loadtxt(result / "export" / "tum" / "trajectory.txt")) == 5


def test_density_makes_a_dense_cloud_in_the_colours_of_the_photos(result, tmp_path, capsys):
    sizes = []
    for density in ("16", "8"):
        main(["export", str(result), "--to", "ply", "--density", density, "--out", str(tmp_path / density)])
        cloud = read_ply(tmp_path / density / "points.ply")
        assert {"xyz", "rgb", "sigma", "normals"} <= cloud.keys()
        assert (cloud["rgb"] == [10, 200, 30]).all()
        sizes.append(len(cloud["xyz"]))
    assert 3 < sizes[1] / sizes[0] < 5  # half the step, four times the points
    assert f"{sizes[1]} points" in capsys.readouterr().out


def test_photos_are_looked_for_where_the_user_says(result, tmp_path, capsys):
    named = json.loads((result / "report.json").read_text())["image_folder"]
    main(["export", str(result), "--to", "nerfstudio", "--images", named, "--out", str(tmp_path / "a")])
    assert "does not hold" in fails_in_one_line(
        capsys, "export", str(result), "--to", "nerfstudio", "--images", str(tmp_path)
    )


def test_masks_are_found_where_they_were_when_the_photos_were_matched(result, tmp_path, capsys):
    shutil.copytree(result, tmp_path / "result")
    report = json.loads((result / "report.json").read_text())
    (tmp_path / "masks" / "photos").mkdir(parents=True)
    Image.new("L", (640, 480), 0).save(tmp_path / "masks" / "photos" / "000.png")
    for masks in (str(tmp_path / "masks"), "../masks"):  # absolute, or below the result
        (tmp_path / "result" / "report.json").write_text(json.dumps(report | {"matching": {"masks": masks}}))
        main(["export", str(tmp_path / "result"), "--to", "nerfstudio", "--out", str(tmp_path / "out")])
        with Image.open(tmp_path / "out" / "masks" / "photos" / "000.png.png") as image:
            assert not np.asarray(image).any()
        shutil.rmtree(tmp_path / "out")
    shutil.rmtree(tmp_path / "masks")
    with pytest.warns(UserWarning, match=r"no longer in \.\./masks; give their folder with --masks"):
        main(["export", str(tmp_path / "result"), "--to", "nerfstudio", "--out", str(tmp_path / "out")])
    assert (tmp_path / "out" / "transforms.json").exists() and not (tmp_path / "out" / "masks").exists()


def test_photos_that_nobody_knows_of_are_asked_for(tmp_path, capsys):
    save_reconstruction([exact_reconstruction(n_images=2)[1]], tmp_path)
    assert "--images" in fails_in_one_line(capsys, "export", str(tmp_path), "--to", "nerfstudio")
    assert "--images" in fails_in_one_line(capsys, "export", str(tmp_path), "--to", "ply", "--density", "8")
    (tmp_path / "report.json").write_text(json.dumps({"image_folder": str(tmp_path / "gone")}))
    text = fails_in_one_line(capsys, "export", str(tmp_path), "--to", "nerfstudio")
    assert "gone" in text and "--images" in text


def test_bad_input_gets_one_line_and_code_2(result, tmp_path, capsys, monkeypatch):
    assert "sparse/0" in fails_in_one_line(capsys, "export", str(tmp_path), "--to", "ply")
    assert "sparse/0" in fails_in_one_line(capsys, "export", str(tmp_path / "nowhere"), "--to", "ply")
    assert "1 or more" in fails_in_one_line(capsys, "export", str(result), "--to", "ply", "--density", "0")
    (tmp_path / "file").write_text("")
    assert "is a file" in fails_in_one_line(
        capsys, "export", str(result), "--to", "ply", "--out", str(tmp_path / "file")
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = fails_in_one_line(capsys, "export", str(result), "--to", "depth", "--depth-format", "exr")
    assert "proba-sfm[exr]" in told


def test_unknown_formats_are_refused(result, capsys):
    assert "nerfstudio" in fails_in_one_line(capsys, "export", str(result), "--to", "usdz")  # the choices are listed
