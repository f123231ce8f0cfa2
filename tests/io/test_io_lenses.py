"""Every camera model through our files, and COLMAP's own reader and writer."""

import json

import numpy as np
import pycolmap
import pytest
from exact_reconstruction import exact_reconstruction

from proba.errors import InputError
from proba.export.nerfstudio import write_nerfstudio
from proba.export.photo_files import PhotoSource
from proba.export.undistorted import undistorted
from proba.geometry.camera import MODELS, is_fisheye
from proba.io.colmap import read_colmap, write_colmap
from proba.io.ground_truth import load_ground_truth, save_ground_truth

RICH = ("OPENCV", "FULL_OPENCV", "OPENCV_FISHEYE", "THIN_PRISM_FISHEYE")


@pytest.fixture(scope="module")
def exact():
    return exact_reconstruction(models=RICH)[1]


def pixels_of(pieces, image: int) -> np.ndarray:
    points = pieces.points
    mine = points.obs_image == image
    return pieces.project(image, points.xyz[points.obs_point[mine]])


@pytest.mark.parametrize("text", [False, True])
def test_all_models_go_to_colmap_and_come_back(exact, tmp_path, text):
    write_colmap(exact, tmp_path, text=text)
    theirs = pycolmap.Reconstruction(tmp_path)
    for n, name in enumerate(exact.image_names):
        image = next(image for image in theirs.images.values() if image.name == name)
        camera = theirs.cameras[image.camera_id]
        assert camera.model.name == exact.camera(n).model
        seen = exact.points.obs_point[exact.points.obs_image == n][:20]
        expected = [image.project_point(xyz) for xyz in exact.points.xyz[seen]]
        np.testing.assert_allclose(exact.project(n, exact.points.xyz[seen]), expected, atol=1e-9)
    back = read_colmap(tmp_path)
    for ours, read in zip(exact.cameras, back.cameras, strict=True):
        assert read.model == ours.model
        np.testing.assert_array_equal(read.params, ours.params)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_models_that_colmap_wrote_are_read(tmp_path, model):
    size = len(MODELS[model])
    params = np.concatenate([[300.0, 310.0, 320.0, 240.0][:4], np.full(12, 0.001)])[:size]
    camera = pycolmap.Camera(model=model, width=640, height=480, params=params, camera_id=1)
    theirs = pycolmap.Reconstruction()
    theirs.add_camera_with_trivial_rig(camera)
    image = pycolmap.Image(name="a.jpg", camera_id=1, image_id=1)
    theirs.add_image_with_trivial_frame(image, pycolmap.Rigid3d())
    theirs.write(tmp_path)
    read = read_colmap(tmp_path).cameras[0]
    assert read.model == model and read.is_fisheye == is_fisheye(model)
    np.testing.assert_array_equal(read.params, params)


def test_a_model_of_colmap_is_a_truth_with_its_lens(exact, tmp_path):
    write_colmap(exact, tmp_path)
    truth = load_ground_truth(tmp_path)
    save_ground_truth(truth, tmp_path / "gt.json")
    xy = np.array([[20.0, 30.0], [320.0, 240.0], [600.0, 400.0]])
    for found in (truth, load_ground_truth(tmp_path / "gt.json")):
        for n, name in enumerate(found.names):
            np.testing.assert_allclose(found.rays(n, xy), exact.camera(name).rays(xy), atol=1e-12)


@pytest.mark.parametrize(("models", "name"), [(RICH[:2], "OPENCV"), (RICH[2:3], "OPENCV_FISHEYE")])
def test_nerfstudio_keeps_the_lens(tmp_path, models, name):
    exact = exact_reconstruction(models=models)[1]
    write_nerfstudio(exact, tmp_path, no_photos(exact, tmp_path))
    assert json.loads((tmp_path / "transforms.json").read_text())["camera_model"] == name
    truth = load_ground_truth(tmp_path / "transforms.json")
    xy = np.array([[20.0, 30.0], [320.0, 240.0], [600.0, 400.0]])
    for n in range(len(exact)):
        np.testing.assert_allclose(truth.rays(n, xy), exact.camera(n).rays(xy), atol=1e-12)


def test_nerfstudio_takes_no_mixture_of_lenses(exact, tmp_path):
    with pytest.raises(InputError, match="fisheye photos or others"):
        write_nerfstudio(exact, tmp_path, no_photos(exact, tmp_path))


def no_photos(exact, folder) -> PhotoSource:
    from PIL import Image

    for name in exact.image_names:
        (folder / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 480)).save(folder / "set" / name)
    return PhotoSource(photos=folder / "set")


def test_any_lens_can_be_undistorted(exact):
    plain = undistorted(exact)
    for n in range(len(exact)):
        assert plain.camera(n).model == "PINHOLE"
        mine = plain.points.obs_image == n
        assert mine.sum() > 50
        expected = plain.project(n, plain.points.xyz[plain.points.obs_point[mine]])
        np.testing.assert_allclose(plain.points.obs_xy[mine], expected, atol=2e-3)


def test_depth_of_a_fisheye_is_the_distance(exact):
    n = 2  # OPENCV_FISHEYE
    points = exact.points
    mine = points.obs_image == n
    xyz, xy = points.xyz[points.obs_point[mine]], points.obs_xy[mine].astype(np.float64)
    pose = exact.cam_from_world[n]
    in_camera = xyz @ pose[:3, :3].T + pose[:3, 3]
    assert exact.camera(n).is_fisheye
    np.testing.assert_allclose(exact.camera(n).depths(in_camera), np.linalg.norm(in_camera, axis=1))
    rays = exact.camera(n).rays(xy)
    np.testing.assert_allclose(rays * exact.camera(n).depths(in_camera)[:, None], in_camera, atol=1e-4)
    found = exact.depth(n, xy)
    assert np.median(np.abs(found / exact.camera(n).depths(in_camera) - 1)) < 0.05
