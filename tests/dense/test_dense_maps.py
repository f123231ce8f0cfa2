"""Depth maps: they agree with the points, and their sigma with their errors."""

from dataclasses import replace

import numpy as np
import pytest
from exact_reconstruction import exact_reconstruction

from proba.dense import depth_at, fit_maps, maps_of, pixel_grid, sample_maps
from proba.reconstruction import Reconstruction


def with_observations(reconstruction: Reconstruction, kept: np.ndarray) -> Reconstruction:
    points = reconstruction.points
    some = replace(
        points, obs_point=points.obs_point[kept], obs_image=points.obs_image[kept], obs_xy=points.obs_xy[kept]
    )
    return replace(reconstruction, points=some)


def observed_depth(reconstruction: Reconstruction) -> np.ndarray:  # [K]
    points = reconstruction.points
    pose = reconstruction.cam_from_world[points.obs_image]
    return np.einsum("ki,ki->k", pose[:, 2, :3], points.xyz[points.obs_point]) + pose[:, 2, 3]


def map_depth(reconstruction: Reconstruction, points) -> tuple[np.ndarray, np.ndarray]:
    depth, sigma = np.empty(len(points.obs_image)), np.empty(len(points.obs_image))
    for n in range(len(reconstruction)):
        mine = points.obs_image == n
        depth[mine], sigma[mine] = depth_at(reconstruction, n, points.obs_xy[mine])
    return depth, sigma


@pytest.fixture(scope="module", params=["object", "room"])
def exact(request):
    return exact_reconstruction(request.param, models=("PINHOLE", "RADIAL"))[1]


def test_maps_agree_with_the_points(exact):
    depth, _ = map_depth(exact, exact.points)
    disagreement = np.abs(depth / observed_depth(exact) - 1)
    assert np.median(disagreement) < 0.003
    assert np.percentile(disagreement, 80) < 0.03


def test_maps_and_sigma_hold_for_points_that_they_were_not_fitted_to(exact):
    held_out = np.random.default_rng(1).random(len(exact.points.xyz))[exact.points.obs_point] < 0.2
    part = with_observations(exact, ~held_out)
    rest = with_observations(exact, held_out)
    depth, sigma = map_depth(part, rest.points)
    error = np.abs(depth - observed_depth(rest))
    assert np.median(error / depth) < 0.01
    assert np.mean(error < sigma) > 0.68 and np.mean(error < 2 * sigma) > 0.85
    sure = sigma / depth < np.median(sigma / depth)
    assert np.median((error / depth)[sure]) < 0.5 * np.median((error / depth)[~sure])  # sigma tells good from bad


def test_wrong_points_do_not_bend_the_maps(exact):
    spoilt = replace(exact, points=replace(exact.points, xyz=exact.points.xyz.copy()))
    wrong = np.random.default_rng(2).random(len(spoilt.points.xyz)) < 0.05
    spoilt.points.xyz[wrong] *= 3
    depth, _ = map_depth(spoilt, exact.points)
    assert np.median(np.abs(depth / observed_depth(exact) - 1)) < 0.005


def test_sigma_grows_where_nothing_is_seen(exact):
    left = exact.points.obs_xy[:, 0] < 300
    log_depth, log_variance = fit_maps(with_observations(exact, left))
    relative = np.exp(log_variance / 2 - log_depth)  # [N, m, m]
    assert (np.median(relative[:, :, -8:], axis=(1, 2)) > 3 * np.median(relative[:, :, :20], axis=(1, 2))).all()


def test_images_without_points_keep_their_maps(exact):
    some = with_observations(exact, exact.points.obs_image != 1)
    kept = np.full((len(some), 2, 2), 0.7, np.float32)
    some.log_depth, some.log_variance = kept, kept - 3
    log_depth, log_variance = fit_maps(some)
    np.testing.assert_allclose(log_depth[1], 0.7, rtol=1e-6)
    np.testing.assert_allclose(log_variance[1], -2.3, rtol=1e-6)
    assert np.abs(log_depth[0] - 0.7).max() > 0.01


def test_samples_are_bilinear_between_cell_centres():
    maps = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    # Cell centres at 1/4 and 3/4; the middle is the mean; beyond the outer centres the map is constant.
    relative = np.array([[0.25, 0.25], [0.75, 0.25], [0.5, 0.5], [0.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(sample_maps(maps, np.ones(5, int), relative), [4.0, 5.0, 5.5, 4.0, 7.0])


def test_grid_cells_cover_the_image():
    camera = exact_reconstruction(n_images=2)[1].cameras[0]
    xy, rows, columns = pixel_grid(camera, 4)
    assert (rows, columns) == (120, 160)
    np.testing.assert_allclose(xy[[0, 1, 160, -1]], [[2, 2], [6, 2], [2, 6], [638, 478]])


def test_maps_of_keeps_what_is_there(exact):
    fitted = maps_of(replace(exact, log_depth=None, log_variance=None))
    again = maps_of(replace(exact, log_depth=fitted[0], log_variance=fitted[1]))
    assert again[0] is fitted[0]
