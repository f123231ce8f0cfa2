"""Calibrations in the formats of other programs, and what they mean for photos."""

import json

import numpy as np
import pytest
from exact_reconstruction import exact_reconstruction

from proba.cameras import CameraOptions, make_setup
from proba.errors import InputError
from proba.geometry import camera as lens
from proba.io.colmap import write_colmap
from proba.io.intrinsics import read_intrinsics, with_known_intrinsics
from proba.matches import ImageInfo, Matches
from proba.refine.pinhole_views import pinhole_matches, pinhole_pixels

OPENCV_YAML = """%YAML:1.0
---
image_width: 640
image_height: 480
camera_matrix: !!opencv-matrix
   rows: 3
   cols: 3
   dt: d
   data: [ 500., 0., 319.5, 0., 510., 239.5, 0., 0., 1. ]
distortion_coefficients: !!opencv-matrix
   rows: 5
   cols: 1
   dt: d
   data: [ -0.1, 0.02, 0.001, -0.002, 0.003 ]
"""
ROS_YAML = """image_width: 640
image_height: 480
camera_name: left
camera_matrix: {rows: 3, cols: 3, data: [300, 0, 319.5, 0, 300, 239.5, 0, 0, 1]}
distortion_model: equidistant
distortion_coefficients: {rows: 1, cols: 4, data: [0.03, -0.01, 0.004, -0.001]}
"""
KALIBR_YAML = """cam0:
  camera_model: pinhole
  intrinsics: [461.5, 460.0, 362.0, 246.5]
  distortion_model: radtan
  distortion_coeffs: [-0.27, 0.06, 0.0008, 0.00003]
  resolution: [752, 480]
"""


def photos(*names: str, width: int = 640, height: int = 480) -> Matches:
    return Matches(images=[ImageInfo(name=name, width=width, height=height) for name in names])


def told(path, matches: Matches, **options) -> Matches:
    return with_known_intrinsics(matches, CameraOptions(intrinsics=path, **options))


@pytest.mark.parametrize(
    ("text", "model", "params"),
    [
        (OPENCV_YAML, "FULL_OPENCV", [500, 510, 320, 240, -0.1, 0.02, 0.001, -0.002, 0.003, 0, 0, 0]),
        (ROS_YAML, "OPENCV_FISHEYE", [300, 300, 320, 240, 0.03, -0.01, 0.004, -0.001]),
        (KALIBR_YAML, "OPENCV", [461.5, 460, 362.5, 247, -0.27, 0.06, 0.0008, 0.00003]),
    ],
)
def test_yaml_of_opencv_ros_and_kalibr(tmp_path, text, model, params):
    (tmp_path / "c.yaml").write_text(text)
    (camera,) = read_intrinsics(tmp_path / "c.yaml")
    assert camera.model == model
    np.testing.assert_allclose(lens.narrowed(model, camera.columns), params)


def test_colmap_cameras_are_for_their_photos_or_for_all(tmp_path):
    exact = exact_reconstruction(models=("OPENCV", "OPENCV_FISHEYE"))[1]
    write_colmap(exact, tmp_path, text=True)
    seen = told(tmp_path, photos(*exact.image_names))
    for image in seen.images:
        assert image.lens.model == exact.camera(image.name).model
        np.testing.assert_array_equal(image.lens.params, exact.camera(image.name).params)
        assert set(image.lens.sigma) == {0.0}
    setup = make_setup(seen.images)
    assert setup.n_cameras == 2 and {known.model for known in setup.lenses} == {"OPENCV", "OPENCV_FISHEYE"}
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "cameras.txt").write_text("1 SIMPLE_RADIAL 1280 960 1000 640 480 -0.1\n")
    half = told(alone / "cameras.txt", photos("a.jpg"))
    np.testing.assert_allclose(half.images[0].lens.params, [500, 320, 240, -0.1])  # the photo is half as large


def test_json_names_photos_folders_and_deviations(tmp_path):
    cameras = [
        {"fx": 500, "cx": 320, "cy": 240, "k1": -0.1, "images": ["left/*"], "sigma": {"fx": 5, "k1": None}},
        {"model": "OPENCV_FISHEYE", "params": [300, 300, 320, 240, 0, 0, 0, 0], "images": "right"},
    ]
    (tmp_path / "c.json").write_text(json.dumps({"cameras": cameras}))
    seen = told(tmp_path / "c.json", photos("left/1.jpg", "right/1.jpg", "other/1.jpg"))
    left, right, other = (image.lens for image in seen.images)
    assert (left.model, left.sigma) == ("SIMPLE_RADIAL", (5.0, 0.0, 0.0, np.inf))
    assert right.model == "OPENCV_FISHEYE" and other is None


def test_the_mode_says_what_the_file_does_not(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({"fx": 500, "fy": 510, "cx": 320, "cy": 240}))
    (free,) = told(tmp_path / "c.json", photos("a.jpg"), calibration="free").images
    assert set(free.lens.sigma) == {np.inf}
    (init,) = told(tmp_path / "c.json", photos("a.jpg"), calibration="init", calibration_sigma=0.02).images
    np.testing.assert_allclose(init.lens.sigma, [10, 10.2, 12.8, 12.8])


def test_a_focal_length_of_all_photos_is_a_start_and_a_prior_or_held():
    options = CameraOptions(focal_px=920)
    assert options.focal == "init"
    setup = make_setup(with_known_intrinsics(photos("a.jpg", "b.jpg"), options).images, options)
    np.testing.assert_allclose(setup.known_focal_px, [920])
    assert not setup.held.any()
    assert make_setup(photos("a.jpg").images, CameraOptions()).n_cameras == 1
    options = CameraOptions(focal_px=920, focal="fixed")
    assert make_setup(with_known_intrinsics(photos("a.jpg"), options).images, options).held.all()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.json", "[1, 2", "is not intrinsics that can be read"),
        ("c.json", '{"fx": 500}', "cx is missing"),
        ("c.json", '{"model": "FOV", "params": [1, 2, 3, 4, 5]}', "FOV is not supported"),
        ("c.json", '{"fx": -5, "cx": 1, "cy": 1}', "not positive"),
        ("c.json", '{"fx": 500, "cx": 1, "cy": 1, "sigma": {"focal": 1}}', "must name parameters"),
        ("c.json", '{"fx": 500, "cx": 1, "cy": 1, "sigma": {"fx": -1}}', "is negative"),
        ("c.json", '{"fx": 500, "cx": 1, "cy": 1, "width": 100, "height": 100}', "640 x 480 pixels"),
        ("c.json", '{"cameras": [{"fx": 500, "cx": 1, "cy": 1, "images": ["b.jpg"]}]}', "no camera for any photo"),
        ("c.yaml", "a: [1", "is no YAML"),
        ("c.yaml", KALIBR_YAML.replace("pinhole", "omni"), "omni of Kalibr is not supported"),
        ("c.yaml", ROS_YAML.replace("equidistant", "thin"), "thin is not supported"),
        ("cameras.txt", "1 OPENCV 640 480 500 500\n", "8|parameters"),
        ("cameras.txt", "", "no camera"),
    ],
)
def test_bad_files_are_one_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message) as failure:
        told(tmp_path / name, photos("a.jpg"))
    assert "\n" not in str(failure.value)


def test_what_is_missing_or_contradicts_is_said(tmp_path):
    with pytest.raises(InputError, match="no intrinsics at"):
        told(tmp_path / "none.json", photos("a.jpg"))
    with pytest.raises(ValueError, match="not both"):
        CameraOptions(focal_px=900, intrinsics=tmp_path)
    with pytest.raises(ValueError, match="--camera-model FOV is not known"):
        CameraOptions(model="FOV")
    with pytest.raises(ValueError, match="must be positive"):
        CameraOptions(focal_px=-1)


def test_the_solver_sees_photos_without_distortion(tmp_path):
    (tmp_path / "c.yaml").write_text(OPENCV_YAML)
    matches = photos("a.jpg", "b.jpg")
    rng = np.random.default_rng(0)
    points = rng.uniform([0, 0], [640, 480], (50, 2))
    matches.add(0, 1, points, points)
    seen = told(tmp_path / "c.yaml", matches)
    flat = pinhole_matches(seen)
    known = seen.images[0].lens
    direction = lens.unproject(known.model, np.array(known.params), points)
    expected = direction[:, :2] / direction[:, 2:] * flat.images[0].focal_px + [320, 240]
    np.testing.assert_allclose(flat.pairs[0, 1].points_i, expected, atol=1e-3)


def test_a_fisheye_becomes_a_pinhole_view_up_to_its_limit(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({"model": "SIMPLE_FISHEYE", "params": [200, 320, 240]}))
    (image,) = told(tmp_path / "c.json", photos("a.jpg")).images
    angle = np.radians([0.0, 45.0, 69.0, 71.0, 91.0])
    seen = pinhole_pixels(image, np.column_stack([320 + 200 * angle, np.full(5, 240)]))
    view = pinhole_matches(Matches(images=[image])).images[0]
    np.testing.assert_allclose(seen[:3, 0], view.width / 2 + 200 * np.tan(angle[:3]), atol=1e-6)
    assert np.isnan(seen[3:]).all() and view.width > 640
