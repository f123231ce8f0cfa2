"""Camera models against pycolmap, against themselves, and their derivatives against differences."""

import numpy as np
import pycolmap
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proba.geometry import camera

CAMERAS = [
    ("SIMPLE_PINHOLE", [700.0, 401.0, 299.0]),
    ("PINHOLE", [700.0, 650.0, 401.0, 299.0]),
    ("SIMPLE_RADIAL", [700.0, 401.0, 299.0, 0.08]),
    ("SIMPLE_RADIAL", [700.0, 401.0, 299.0, -0.12]),
    ("RADIAL", [700.0, 401.0, 299.0, 0.1, -0.05]),
    ("RADIAL", [700.0, 401.0, 299.0, -0.2, 0.04]),
    ("OPENCV", [700.0, 650.0, 401.0, 299.0, -0.2, 0.06, 0.002, -0.001]),
    ("FULL_OPENCV", [700.0, 650.0, 401.0, 299.0, 0.3, -0.1, 0.002, -0.001, 0.02, 0.5, -0.05, 0.03]),
    ("SIMPLE_FISHEYE", [320.0, 401.0, 299.0]),
    ("FISHEYE", [320.0, 330.0, 401.0, 299.0]),
    ("SIMPLE_RADIAL_FISHEYE", [320.0, 401.0, 299.0, -0.03]),
    ("RADIAL_FISHEYE", [320.0, 401.0, 299.0, 0.02, -0.01]),
    ("OPENCV_FISHEYE", [320.0, 330.0, 401.0, 299.0, 0.02, -0.01, 0.004, -0.0008]),
    ("THIN_PRISM_FISHEYE", [320.0, 330.0, 401.0, 299.0, 0.02, -0.01, 0.002, -0.001, 0.004, -8e-4, 0.001, -0.002]),
]
FISHEYES = [entry for entry in CAMERAS if camera.is_fisheye(entry[0])]


def pixels() -> np.ndarray:
    x, y = np.meshgrid(np.linspace(0, 800, 9), np.linspace(0, 600, 7))
    return np.stack([x, y], axis=-1)  # [7, 9, 2]


def all_around() -> np.ndarray:
    """Directions [K, 3] up to 100 degrees from the axis, and the axis."""
    angle, turn = np.meshgrid(np.radians([0.0, 1e-10, 1, 30, 60, 89, 90, 91, 100]), np.linspace(0.1, 6, 7))
    return np.stack([np.sin(angle) * np.cos(turn), np.sin(angle) * np.sin(turn), np.cos(angle)], axis=-1).reshape(-1, 3)


@pytest.mark.parametrize(("model", "params"), CAMERAS)
def test_project_agrees_with_pycolmap(model, params):
    points = np.random.default_rng(0).uniform([-1, -0.8, 2], [1, 0.8, 4], (50, 3))
    if camera.is_fisheye(model):
        points[:25, 2] = 0.3
    reference = pycolmap.Camera(model=model, width=800, height=600, params=params)
    expected = np.array([reference.img_from_cam(p) for p in points])
    np.testing.assert_allclose(camera.project(model, params, points), expected, atol=1e-9)


@pytest.mark.parametrize(("model", "params"), CAMERAS)
def test_unproject_agrees_with_pycolmap(model, params):
    reference = pycolmap.Camera(model=model, width=800, height=600, params=params)
    xy = pixels().reshape(-1, 2)
    expected = np.array([[*reference.cam_from_img(p)[:2], 1.0] for p in xy])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = camera.unproject(model, params, pixels()).reshape(-1, 3)
    forward = found[:, 2] > 1e-3  # COLMAP's own rays end at 90 degrees
    assert forward.sum() > 40
    np.testing.assert_allclose(found[forward], expected[forward], atol=1e-8)


@pytest.mark.parametrize(("model", "params"), CAMERAS)
def test_project_undoes_unproject(model, params):
    direction = camera.unproject(model, params, pixels())  # [7, 9, 3]
    np.testing.assert_allclose(np.linalg.norm(direction, axis=-1), 1, atol=1e-12)
    np.testing.assert_allclose(camera.project(model, params, 3 * direction), pixels(), atol=1e-9)


@pytest.mark.parametrize(("model", "params"), FISHEYES)
def test_a_fisheye_sees_beyond_90_degrees(model, params):
    directions = all_around()
    back = camera.unproject(model, params, camera.project(model, params, 5 * directions))
    np.testing.assert_allclose(back, directions, atol=1e-9)


@pytest.mark.parametrize(("model", "params"), CAMERAS)
def test_derivatives_are_those_of_the_projection(model, params):
    points = all_around()
    points = points[np.hypot(points[:, 0], points[:, 1]) > 1e-3]  # differences across the axis are too coarse
    if not camera.is_fisheye(model):
        points = points[points[:, 2] > 0.3]
    by_point, by_params = camera.derivatives(model, params, points)
    step = 1e-6
    for axis in range(3):
        shift = step * np.eye(3)[axis]
        expected = camera.project(model, params, points + shift) - camera.project(model, params, points - shift)
        np.testing.assert_allclose(by_point[..., axis], expected / (2 * step), rtol=1e-6, atol=1e-4)
    for n in range(len(params)):
        shift = step * np.eye(len(params))[n]
        expected = camera.project(model, params + shift, points) - camera.project(model, params - shift, points)
        np.testing.assert_allclose(by_params[..., n], expected / (2 * step), rtol=1e-6, atol=1e-4)


def test_derivatives_on_the_axis_of_a_fisheye_are_those_of_a_pinhole():
    by_point, _ = camera.derivatives("SIMPLE_FISHEYE", [300.0, 400.0, 300.0], np.array([0.0, 0.0, 2.0]))
    np.testing.assert_allclose(by_point, [[150, 0, 0], [0, 150, 0]])


@given(
    k=st.tuples(*[st.floats(-s, s) for s in (0.25, 0.1, 0.003, 0.003, 0.02, 0.1, 0.05, 0.01)]),
    place=st.tuples(st.floats(-0.7, 0.7), st.floats(-0.5, 0.5)),
)
@settings(max_examples=200, deadline=None)
def test_any_rational_lens_comes_back(k, place):
    params = np.array([700.0, 690.0, 400.0, 300.0, *k])
    if np.linalg.norm(place) > 0.9 * camera.reach("FULL_OPENCV", params):
        return
    xy = camera.project("FULL_OPENCV", params, np.array([*place, 1.0]))
    found = camera.unproject("FULL_OPENCV", params, xy)
    np.testing.assert_allclose(found[:2] / found[2], place, atol=1e-7)


@given(
    k=st.tuples(*[st.floats(-s, s) for s in (0.05, 0.02, 0.002, 0.002, 0.005, 0.001, 0.002, 0.002)]),
    angle=st.floats(0, 1.8),
    turn=st.floats(0, 6.3),
)
@settings(max_examples=200, deadline=None)
def test_any_fisheye_comes_back(k, angle, turn):
    params = np.array([300.0, 310.0, 400.0, 300.0, *k])
    if angle > 0.9 * camera.reach("THIN_PRISM_FISHEYE", params):
        return
    direction = np.array([np.sin(angle) * np.cos(turn), np.sin(angle) * np.sin(turn), np.cos(angle)])
    xy = camera.project("THIN_PRISM_FISHEYE", params, direction)
    np.testing.assert_allclose(camera.unproject("THIN_PRISM_FISHEYE", params, xy), direction, atol=1e-7)


def test_many_cameras_at_once_agree_with_one():
    rng = np.random.default_rng(0)
    k = np.array([camera.widened("OPENCV", [1, 1, 0, 0, -0.2, 0.05, 0.002, -0.001])] * 20)
    k[:, camera.K1] *= rng.uniform(0.5, 1.5, 20)
    plane = rng.uniform(-0.5, 0.5, (20, 2))
    moved = camera.distorted(plane, k, False)
    np.testing.assert_allclose(camera.undistorted_of_many(moved, k), plane, atol=1e-6)
    for one, place, columns in zip(moved, plane, k, strict=True):
        np.testing.assert_allclose(camera.undistorted(one, columns, False), place, atol=1e-12)


def test_points_behind_the_camera_have_no_pixel():
    points = [[0, 0, 1], [0, 0, -1], [1, 1, 0]]
    xy = camera.project("SIMPLE_PINHOLE", [700.0, 400.0, 300.0], points)
    np.testing.assert_array_equal(np.isnan(xy).any(axis=1), [False, True, True])
    xy = camera.project("SIMPLE_FISHEYE", [300.0, 400.0, 300.0], points)
    np.testing.assert_array_equal(np.isnan(xy).any(axis=1), [False, True, False])


def test_beyond_the_rim_of_a_barrel_the_ray_stays_on_the_rim():
    k = -0.3
    rim = np.sqrt(-1 / (3 * k))  # where the distorted radius is largest
    assert camera.reach("SIMPLE_RADIAL", [100.0, 0.0, 0.0, k]) == pytest.approx(rim)
    ray = camera.unproject("SIMPLE_RADIAL", [100.0, 0.0, 0.0, k], [[1000.0, 0.0], [50.0, 0.0]])
    np.testing.assert_allclose(ray[0] / ray[0, 2], [rim, 0, 1], atol=1e-6)
    assert ray[1, 0] / ray[1, 2] < rim


def test_a_fisheye_that_turns_around_sees_nothing_beyond():
    params = [300.0, 400.0, 300.0, -0.2]  # grows up to 1.29 rad
    assert camera.reach("SIMPLE_RADIAL_FISHEYE", params) == pytest.approx(np.sqrt(1 / 0.6))
    angle = np.array([1.2, 1.4])
    xy = camera.project("SIMPLE_RADIAL_FISHEYE", params, np.stack([np.sin(angle), 0 * angle, np.cos(angle)], axis=-1))
    np.testing.assert_array_equal(np.isnan(xy).any(axis=1), [False, True])


def test_fov_and_focal_are_inverse_and_known():
    np.testing.assert_allclose(camera.focal_from_fov(90.0, 800), 400)
    np.testing.assert_allclose(camera.fov_from_focal(400.0, 800), 90)
    fov_deg = np.array([17.0, 50.0, 120.0])
    np.testing.assert_allclose(camera.fov_from_focal(camera.focal_from_fov(fov_deg, 640), 640), fov_deg)


def test_wrong_models_and_parameters_are_refused():
    with pytest.raises(ValueError, match="not supported"):
        camera.project("FOV", [1.0] * 5, np.ones((1, 3)))
    with pytest.raises(ValueError, match="has 4 parameters"):
        camera.project("PINHOLE", [1.0, 2.0, 3.0], np.ones((1, 3)))
