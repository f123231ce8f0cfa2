"""Exports that take photos with them: all files inside, nothing outside touched, whatever the names say."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exact_reconstruction import exact_reconstruction
from PIL import Image

from proba.errors import InputError
from proba.export import ExportOptions, export
from proba.io.names import flat_names, is_safe_name, safe_relative_path

SIZE = (640, 480)


@pytest.fixture
def small(tmp_path):
    """Two images, their photos below `set`, and a mask for the first."""
    _, exact = exact_reconstruction(n_images=2)
    for name in exact.image_names:
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", SIZE, (200, 30, 30)).save(tmp_path / "set" / name)
    mask = np.zeros(SIZE[::-1], np.uint8)
    mask[:, :320] = 255
    (tmp_path / "masks" / "photos").mkdir(parents=True)
    Image.fromarray(mask).save(tmp_path / "masks" / f"{exact.image_names[0]}.png")
    return exact


def read_mask(path):
    with Image.open(path) as image:
        return np.asarray(image)


def test_the_nerfstudio_folder_can_be_taken_elsewhere(tmp_path, small):
    export(small, to="nerfstudio", out=tmp_path / "out", photos=tmp_path / "set", masks=tmp_path / "masks")
    moved = tmp_path / "moved"
    shutil.move(tmp_path / "out", moved)
    shutil.rmtree(tmp_path / "set")
    shutil.rmtree(tmp_path / "masks")
    content = json.loads((moved / "transforms.json").read_text())
    assert (moved / content["ply_file_path"]).is_file()
    for n, frame in enumerate(content["frames"]):
        paths = [Path(frame[key]) for key in ("file_path", "mask_path", "depth_file_path")]
        assert not any(path.is_absolute() or ".." in path.parts for path in paths)
        with Image.open(moved / paths[0]) as image:
            assert image.size == SIZE and image.getpixel((5, 5)) == (200, 30, 30)
        mask = read_mask(moved / paths[1])
        assert mask.shape == SIZE[::-1] and (mask[:, :310] == 255).all()
        assert (mask[:, 330:] == (0 if n == 0 else 255)).all()  # nerfstudio wants masks of all photos or of none
        depth = np.load(moved / paths[2])
        height, width = depth.shape
        assert abs(width / height - 4 / 3) < 0.02
        seen = np.flatnonzero(small.points.obs_image == n)
        xyz = small.points.xyz[small.points.obs_point[seen]]
        pose = small.cam_from_world[n]
        true_depth = (xyz @ pose[:3, :3].T + pose[:3, 3])[:, 2]
        column, row = (small.points.obs_xy[seen] * [width / 640, height / 480]).astype(int).T
        # nerfstudio multiplies by 0.001 unless told otherwise.
        assert np.median(np.abs(0.001 * depth[row, column] / true_depth - 1)) < 0.03


@pytest.mark.parametrize("mode", ["hardlink", "symlink"])
def test_photos_can_be_linked(tmp_path, small, mode):
    for _ in range(2):  # also over the links of an earlier export
        options = ExportOptions(photo_files=mode)
        export(small, to="nerfstudio", out=tmp_path / "out", photos=tmp_path / "set", options=options)
    for name in small.image_names:
        link, photo = tmp_path / "out" / "images" / name, tmp_path / "set" / name
        assert os.path.samefile(link, photo) and link.is_symlink() == (mode == "symlink")
        assert photo.stat().st_nlink == (2 if mode == "hardlink" else 1)


def test_known_up_is_kept(tmp_path, small):
    for up in (None, "z"):
        export(replace(small, up=up), to="nerfstudio", out=tmp_path / str(up), photos=tmp_path / "set")
        content = json.loads((tmp_path / str(up) / "transforms.json").read_text())
        assert content.get("orientation_override") == ("none" if up else None)


@pytest.mark.parametrize("to", ["nerfstudio", "colmap-undistorted"])
def test_the_photos_themselves_are_never_overwritten(tmp_path, small, to):
    shutil.move(tmp_path / "set", tmp_path / "images")
    with pytest.raises(InputError, match="overwritten"):
        export(small, to=to, out=tmp_path, photos=tmp_path / "images")


@pytest.mark.parametrize(
    "name", ["../a.png", "/a.png", "b/../../a.png", "C:\\a.png", "C:a.png", "..\\a.png", "", "a\0.png"]
)
def test_names_that_leave_the_folder_are_refused(tmp_path, small, name):
    assert not is_safe_name(name)
    with pytest.raises(InputError, match="The image name"):
        safe_relative_path(name)
    small.image_names = [name, small.image_names[1]]
    for to in ("nerfstudio", "colmap-undistorted", "depth"):
        with pytest.raises(InputError, match="The image name"):
            export(small, to=to, out=tmp_path / "out", photos=tmp_path / "set")


def test_ordinary_names_are_taken_as_they_are():
    for name in ("a.png", "b/c d.png", "..a.png", "b/..c/d.png", "12:30.png"):
        assert str(safe_relative_path(name)) == name


def test_flat_names_differ():
    assert flat_names(["a/b.png", "a_b.png", "A/b.png", "c.png"]) == ["a_b.png", "2_a_b.png", "3_A_b.png", "c.png"]


def test_a_target_that_does_not_exist_is_refused(tmp_path, small):
    with pytest.raises(InputError, match="nerfstudio"):
        export(small, to="usdz", out=tmp_path)
    with pytest.raises(InputError, match="photos"):
        export(small, to="nerfstudio", out=tmp_path / "out")


def test_a_reconstruction_exports_itself(tmp_path, small):
    small.export("nerfstudio", tmp_path / "out", photos=tmp_path / "set")
    assert (tmp_path / "out" / "transforms.json").is_file()
