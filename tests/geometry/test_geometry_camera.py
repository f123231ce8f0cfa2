"""Camera models against pycolmap."""

import numpy as np
import pycolmap
import pytest

from proba.geometry import camera

CAMERAS = [
    ("SIMPLE_PINHOLE", [700.0, 401.0, 299.0]),
    ("PINHOLE", [700.0, 650.0, 401.0, 299.0]),
    ("SIMPLE_RADIAL", [700.0, 401.0, 299.0, 0.08]),
    ("SIMPLE_RADIAL", [700.0, 401.0, 299.0, -0.12]),
    ("RADIAL", [700.0, 401.0, 299.0, 0.1, -0.05]),
    ("RADIAL", [700.0, 401.0, 299.0, -0.2, 0.04]),
]


def pixels() -> np.ndarray:
    x, y = np.meshgrid(np.linspace(0, 800, 9), np.linspace(0, 600, 7))
    return np.stack([x, y], axis=-1)  # [7, 9, 2]


@pytest.mark.parametrize(("model", "params"), CAMERAS)
def test_project_agrees_with_pycolmap(model, params):
    points = np.random.default_rng(0).uniform([-1, -0.8, 2], [1, 0.8, 4], (50, 3))
    reference = pycolmap.Camera(model=model, width=800, height=600, params=params)
    expected = np.array([reference.img_from_cam(p) for p in points])
    np.testing.assert_allclose(camera.project(model, params, points), expected, atol=1e-9)


@pytest.mark.parametrize(("model", "params"), CAMERAS)
def test_unproject_agrees_with_pycolmap(model, params):
    reference = pycolmap.Camera(model=model, width=800, height=600, params=params)
    expected = np.array([reference.cam_from_img(p) for p in pixels().reshape(-1, 2)])[:, :2]
    np.testing.assert_allclose(camera.unproject(model, params, pixels()).reshape(-1, 2), expected, atol=1e-9)


@pytest.mark.parametrize(("model", "params"), CAMERAS)
def test_project_undoes_unproject(model, params):
    ray = camera.unproject(model, params, pixels())  # [7, 9, 2]
    points = 3 * np.concatenate([ray, np.ones((*ray.shape[:-1], 1))], axis=-1)
    np.testing.assert_allclose(camera.project(model, params, points), pixels(), atol=1e-9)


def test_points_behind_the_camera_have_no_pixel():
    xy = camera.project("SIMPLE_PINHOLE", [700.0, 400.0, 300.0], [[0, 0, 1], [0, 0, -1], [1, 1, 0]])
    np.testing.assert_array_equal(np.isnan(xy).any(axis=1), [False, True, True])


def test_beyond_the_rim_of_a_barrel_the_ray_stays_on_the_rim():
    k = -0.3
    rim = np.sqrt(-1 / (3 * k))  # where the distorted radius is largest
    ray = camera.unproject("SIMPLE_RADIAL", [100.0, 0.0, 0.0, k], [[1000.0, 0.0], [50.0, 0.0]])
    np.testing.assert_allclose(ray[0], [rim, 0], atol=1e-6)
    assert ray[1, 0] < rim


def test_fov_and_focal_are_inverse_and_known():
    np.testing.assert_allclose(camera.focal_from_fov(90.0, 800), 400)
    np.testing.assert_allclose(camera.fov_from_focal(400.0, 800), 90)
    fov_deg = np.array([17.0, 50.0, 120.0])
    np.testing.assert_allclose(camera.fov_from_focal(camera.focal_from_fov(fov_deg, 640), 640), fov_deg)


def test_wrong_models_and_parameters_are_refused():
    with pytest.raises(ValueError, match="not supported"):
        camera.project("OPENCV", [1.0] * 8, np.ones((1, 3)))
    with pytest.raises(ValueError, match="has 4 parameters"):
        camera.project("PINHOLE", [1.0, 2.0, 3.0], np.ones((1, 3)))
