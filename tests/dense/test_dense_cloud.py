"""Clouds: normals, and dense points on the true surface in the colours of the photos."""

import numpy as np
import pytest
from exact_reconstruction import exact_reconstruction
from PIL import Image

from proba.dense.fusion import CloudOptions, dense_cloud
from proba.errors import InputError
from proba.point_cloud import estimate_normals, point_cloud


def test_normals_of_a_plane_and_a_ball():
    rng = np.random.default_rng(0)
    plane = np.column_stack([rng.uniform(-1, 1, (400, 2)), np.zeros(400)])
    normals = estimate_normals(plane, np.tile([0.0, 0.0, -5.0], (400, 1)))
    np.testing.assert_allclose(normals, np.tile([0.0, 0.0, -1.0], (400, 1)), atol=1e-6)
    ball = rng.normal(size=(3000, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    outward = np.einsum("pi,pi->p", estimate_normals(ball, 5 * ball), ball)
    assert np.percentile(outward, 5) > 0.97
    scattered = estimate_normals(rng.uniform(-1, 1, (300, 3)), np.zeros((300, 3)))
    assert (scattered == 0).all(axis=1).mean() > 0.3  # no surface, no normal


def test_normals_of_points_look_at_the_cameras_that_see_them():
    _, exact = exact_reconstruction("room")
    cloud = point_cloud(exact)
    points = exact.points
    towards = exact.centres[points.obs_image] - points.xyz[points.obs_point]
    facing = np.einsum("ki,ki->k", cloud.normals[points.obs_point], towards)
    assert np.mean(facing >= 0) > 0.97
    assert (np.abs(np.linalg.norm(cloud.normals, axis=1) - 0.5) > 0.49).all()  # unit, or zero


@pytest.fixture(scope="module")
def photographed(tmp_path_factory):
    """Photos whose colours name the pixel, so that a point tells where it was taken from."""
    scene, exact = exact_reconstruction("object", 8)
    exact.cameras[0].params = scene.intrinsics[0].copy()
    for n in range(8):
        mine = exact.points.obs_image == n
        exact.points.obs_xy[mine] = scene.project(n, exact.points.xyz[exact.points.obs_point[mine]])[0]
    folder = tmp_path_factory.mktemp("photos")
    (folder / "photos").mkdir()
    columns, rows = np.meshgrid(np.arange(640), np.arange(480))
    rgb = np.stack([columns * 255 / 640, rows * 255 / 480, np.zeros_like(rows)], axis=-1).round().astype(np.uint8)
    for name in exact.image_names:
        Image.fromarray(rgb).save(folder / name)
    return scene, exact, folder


def test_dense_points_lie_on_the_surface_and_look_outwards(photographed):
    scene, exact, folder = photographed
    cloud = dense_cloud(exact, folder, CloudOptions(step_px=8))
    assert len(cloud.xyz) > 10_000
    assert len(dense_cloud(exact, folder, CloudOptions(step_px=16)).xyz) < 0.35 * len(cloud.xyz)
    # Distance to the surface: depth of the scene at the pixel where each image that sees the point sees it.
    errors = np.full(len(cloud.xyz), np.inf)
    for n in range(scene.n_images):
        xy, depth = scene.project(n, cloud.xyz)
        inside = ((xy > 0) & (xy < [640, 480])).all(axis=1)
        true, _ = scene.cast(n, xy[inside])
        errors[inside] = np.minimum(errors[inside], np.abs(true / depth[inside] - 1))
    assert np.median(errors) < 0.002 and np.percentile(errors, 90) < 0.02
    nearest = np.linalg.norm(exact.centres - cloud.xyz[:, None], axis=2).argmin(axis=1)
    facing = np.einsum("pi,pi->p", cloud.normals, exact.centres[nearest] - cloud.xyz)
    assert np.mean(facing > 0) > 0.9


def test_dense_points_have_the_colours_of_their_pixels(photographed):
    _, exact, folder = photographed
    cloud = dense_cloud(exact, folder, CloudOptions(step_px=8))
    told = (cloud.rgb[:, :2] + 0.5) / 255 * [640, 480]  # the pixel that each colour names
    off = [np.linalg.norm(exact.project(n, cloud.xyz) - told, axis=1) for n in range(len(exact))]
    assert np.percentile(np.nanmin(off, axis=0), 99) < 4


def test_what_the_neighbours_contradict_is_left_out(photographed):
    _, exact, folder = photographed
    _ = exact.depth(0)  # fits the maps
    good = exact.log_depth.copy()
    before = dense_cloud(exact, folder, CloudOptions(step_px=16))
    exact.log_depth[0] += np.float32(np.log(1.5))
    try:
        spoilt = dense_cloud(exact, folder, CloudOptions(step_px=16))
    finally:
        exact.log_depth = good
    pixels = len(before.xyz) - len(spoilt.xyz)
    assert pixels > 0.5 * len(before.xyz) / len(exact)  # most of the spoilt image is gone


def test_missing_photos_are_said(photographed, tmp_path):
    with pytest.raises(InputError, match="--images"):
        dense_cloud(photographed[1], tmp_path)
