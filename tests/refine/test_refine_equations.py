"""Derivatives, normal equations against dense algebra, and the deviations that follow from them."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest

from proba.geometry.camera import K1, MODELS, WIDTH
from proba.refine import UncertaintyOptions
from proba.refine.block_matrix import taken_from
from proba.refine.bundle import Bundle, project
from proba.refine.gauge_free import bodies_of, gauge_directions
from proba.refine.lens_derivatives import lenses_of
from proba.refine.normal_equations import Equations, derivatives
from proba.refine.triangulate import refine_points, triangulate
from proba.refine.uncertainty import (
    CameraUncertainty,
    _robust_noise,
    camera_uncertainty,
    point_std,
)

LOSS_PX = 2.0
NOISE_PX = LOSS_PX / 2
FOCAL_ONLY = np.arange(WIDTH)[None] == 0


def linearise(bundle: Bundle, used: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Residuals [U, 2], derivatives by camera [U, 2, 6 + WIDTH] and by point [U, 2, 3], and weights [U]."""
    residuals, by_camera, by_point, weights = [], [], [], []
    tracks, owner, one_focal = bundle.tracks, bundle.tracks.track_of_observation, bundle.one_focal
    lenses = lenses_of(bundle)
    for k in np.flatnonzero(used):
        camera, point = np.zeros((2, 6 + WIDTH)), np.zeros((2, 3))
        c = bundle.camera_of_image[tracks.image[k]]
        right, down, weight = derivatives(
            bundle.cam_from_world[tracks.image[k], :3], lenses[c], one_focal[c], bundle.xyz[owner[k]],
            tracks.xy[k], LOSS_PX**2, camera, point,
        )  # fmt: skip
        residuals.append((right, down))
        by_camera.append(camera)
        by_point.append(point)
        weights.append(weight)
    return np.array(residuals), np.array(by_camera), np.array(by_point), np.array(weights)


@pytest.fixture(scope="module")
def small(bundle: Bundle) -> Bundle:
    """Some tracks, seen by two cameras that have every parameter."""
    placed = triangulate(bundle, 4.0)
    some = np.flatnonzero(placed.alive_per_track() >= 2)[::40]
    tracks = placed.tracks.take(some)
    owner = placed.tracks.track_of_observation
    return replace(
        placed,
        tracks=tracks,
        xyz=placed.xyz[some],
        alive=placed.alive[np.isin(owner, some)],
        camera_of_image=np.arange(placed.n_images) % 2,
        camera_size=np.repeat(placed.camera_size, 2, axis=0),
        intrinsics=np.repeat(placed.intrinsics, 2, axis=0)
        + np.pad([[0, 0, 0, 0, -0.05, 0.02], [9, 9, 2, 1, 0.03, 0]], [(0, 0), (0, WIDTH - 6)]),
        camera_model=["RADIAL", "RADIAL"],
        known_focal=np.full(2, np.nan),
    )


class Dense:
    """The same equations, of all parameters at once."""

    def __init__(self, bundle: Bundle, free: np.ndarray, damping: float):
        equations = Equations(bundle, bundle.alive, free, LOSS_PX, NOISE_PX)
        owner = np.searchsorted(equations.points, bundle.tracks.track_of_observation[equations.used])  # [U]
        residual, by_camera, by_point, weight = linearise(bundle, equations.used)
        n, self.n_cameras = len(equations.points), equations.n_columns
        jacobian = np.zeros((len(residual), 2, equations.n_columns + 3 * n))
        for u, image in enumerate(equations.image):
            jacobian[u, :, 6 * image : 6 * image + 6] = by_camera[u, :, :6]
            columns = equations.columns[bundle.camera_of_image[image]]
            jacobian[u][:, columns[columns >= 0]] = by_camera[u, :, 6:][:, columns >= 0]
            jacobian[u, :, equations.n_columns + 3 * owner[u] :][:, :3] = by_point[u]
        jacobian, weight = jacobian.reshape(2 * len(residual), -1), np.repeat(weight, 2)
        self.system = jacobian.T @ (weight[:, None] * jacobian)
        self.system += damping * np.diag(np.diag(self.system))
        self.gradient = jacobian.T @ (weight * residual.ravel())

    def blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cameras with cameras, points with cameras, points with points."""
        d = self.n_cameras
        return self.system[:d, :d], self.system[d:, :d], self.system[d:, d:]


def free_of(*columns: list[int]) -> np.ndarray:
    """Which intrinsics are free, of the columns of each camera."""
    return np.array([np.isin(np.arange(WIDTH), some) for some in columns])


LENSES = {
    "RADIAL": [-0.05, 0.02],
    "OPENCV": [-0.05, 0.02, 0.003, -0.002],
    "FULL_OPENCV": [0.1, 0.02, 0.003, -0.002, 0.01, 0.2, -0.02, 0.03],
    "OPENCV_FISHEYE": [0.03, 0.02, 0, 0, -0.004, 0.001],
    "THIN_PRISM_FISHEYE": [0.03, 0.02, 0.003, -0.002, -0.004, 0.001, 0.005, -0.003],
}
"""k1, k2, p1, p2, k3, k4, and k5, k6 or sx1, sy1."""


@pytest.mark.parametrize("model", LENSES)
def test_derivatives_match_finite_differences(bundle: Bundle, model: str) -> None:
    part = triangulate(bundle, 4.0)
    intrinsics = part.intrinsics.copy()
    intrinsics[:, K1 : K1 + len(LENSES[model])] = LENSES[model]
    part = replace(part, intrinsics=intrinsics, camera_model=[model])
    pixels, _ = project(part)  # near enough to where the points were seen
    part = replace(part, tracks=replace(part.tracks, xy=pixels + 0.3))
    kept = part.alive.copy()
    kept[200:] = False
    residual, by_camera, by_point, weight = linearise(part, kept)
    step = 1e-6
    for axis in range(3):
        xyz = part.xyz.copy()
        xyz[:, axis] += step
        moved = linearise(replace(part, xyz=xyz), kept)[0]
        assert np.allclose((moved - residual) / step, by_point[:, :, axis], rtol=1e-3, atol=1e-2)
        poses = part.cam_from_world.copy()
        poses[:, :3, 3] -= step * poses[:, :3, axis]  # the centre moves along a world axis
        moved = linearise(replace(part, cam_from_world=poses), kept)[0]
        assert np.allclose((moved - residual) / step, by_camera[:, :, 3 + axis], rtol=1e-3, atol=1e-2)
        turn = np.eye(4)
        turn[:3, :3] += step * np.cross(np.eye(3), np.eye(3)[axis]).T @ -np.eye(3)
        moved = linearise(replace(part, cam_from_world=turn @ part.cam_from_world), kept)[0]
        numeric = (moved - residual) / step
        assert np.allclose(numeric, by_camera[:, :, axis], rtol=1e-3, atol=1e-2), axis
    free = [column for column in MODELS[model] if column != 1]
    for column, delta in [(column, 1e-4 if column < K1 else 1e-7) for column in free]:
        changed = part.intrinsics.copy()
        changed[:, column] += delta
        if column == 0:
            changed[:, 1] += delta
        moved = linearise(replace(part, intrinsics=changed), kept)[0]
        assert np.allclose((moved - residual) / delta, by_camera[:, :, 6 + column], rtol=1e-3, atol=1e-2)
    assert np.allclose(weight, 1 / (1 + (residual**2).sum(axis=1) / LOSS_PX**2))


@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_eliminating_the_points_changes_nothing(small: Bundle, damping: float) -> None:
    free = free_of([0, 2, 3, 4, 5], [0, 4])
    equations, dense = Equations(small, small.alive, free, LOSS_PX, NOISE_PX), Dense(small, free, damping)
    group = np.arange(len(equations.points)) % 3
    reduced = equations.reduced(small, damping, group)
    cameras, mixed, points = dense.blocks()
    d = dense.n_cameras
    scale = np.abs(cameras).max()
    assert np.abs(reduced.system.dense() - (cameras - mixed.T @ np.linalg.solve(points, mixed))).max() < 1e-9 * scale
    expected = dense.gradient[:d] - mixed.T @ np.linalg.solve(points, dense.gradient[d:])
    np.testing.assert_allclose(reduced.gradient, expected, rtol=1e-6, atol=1e-9 * np.abs(dense.gradient).max())
    assert reduced.gradients.shape == (3, d)
    np.testing.assert_allclose(reduced.slope, dense.gradient[:d], rtol=1e-9, atol=1e-9)
    step = np.linalg.lstsq(cameras, dense.gradient[:d], rcond=None)[0]
    shifts, _ = equations.follow(small, step, damping)
    expected = -np.linalg.solve(points, dense.gradient[d:] + mixed @ step)
    np.testing.assert_allclose(shifts.ravel(), expected, rtol=1e-5, atol=1e-9)


def test_points_inherit_the_deviations_of_their_cameras(small: Bundle) -> None:
    free = free_of([0, 2, 3, 4, 5], [0, 4])
    dense, equations = Dense(small, free, 0.0), Equations(small, small.alive, free, LOSS_PX, NOISE_PX)
    root = 1e-3 * np.random.default_rng(0).standard_normal((dense.n_cameras, dense.n_cameras))
    cameras = CameraUncertainty(
        noise_px=0.7,
        covariance=taken_from(root @ root.T, equations.blocks),
        pose_std=np.zeros((small.n_images, 6)),
        intrinsics_std=np.zeros(free.shape),
        intrinsics_wider=np.ones(free.shape),
    )
    _, mixed, points = dense.blocks()
    moves = np.linalg.solve(points, mixed) @ root  # [3 P, D]
    expected = 0.7**2 * np.diag(np.linalg.inv(points)) + (moves**2).sum(axis=1)  # [3 P]
    sigma = point_std(small, cameras, free, LOSS_PX)
    held = small.alive_per_track() >= 2
    np.testing.assert_allclose(sigma[held], np.sqrt(expected.reshape(-1, 3).mean(axis=1)), rtol=1e-6)
    assert np.isinf(sigma[~held]).all()


def deviations(bundle: Bundle) -> CameraUncertainty:
    return camera_uncertainty(bundle, FOCAL_ONLY, 2.0, 1.0, UncertaintyOptions())


def test_uncertainty_is_finite_positive_and_falls_with_more_data(bundle: Bundle) -> None:
    placed = refine_points(triangulate(bundle, 4.0), 2.0)
    everything = deviations(placed)
    assert np.isfinite(everything.pose_std).all()
    assert (everything.pose_std > 0).all()
    assert (everything.intrinsics_std[:, 2:] == 0).all()
    quarter = placed.alive & (placed.tracks.track_of_observation % 4 == 0)
    less = deviations(replace(placed, alive=quarter))
    ratio = less.intrinsics_std[0, 0] / everything.intrinsics_std[0, 0]
    assert 1.4 < ratio < 3.0  # a quarter of the data: about twice the deviation


def test_errors_that_neighbours_share_widen_the_deviation(bundle: Bundle) -> None:
    """A distortion that the model lacks counts more than the same residuals at random."""
    placed = refine_points(triangulate(bundle, 4.0), 2.0)
    tracks, free = placed.tracks, np.zeros(placed.intrinsics.shape, bool)
    free[:, 0] = True
    centred = tracks.xy / placed.camera_size[placed.camera_of_image[tracks.image]] - 0.5  # [K, 2]
    shift = 12 * centred * (centred**2).sum(axis=1, keepdims=True)
    mixed = np.random.default_rng(0).permutation(shift)

    def focal_std(xy: np.ndarray) -> float:
        moved = refine_points(replace(placed, tracks=replace(tracks, xy=xy)), 2.0)
        return float(camera_uncertainty(moved, free, 2.0, 1.0, UncertaintyOptions()).intrinsics_std[0, 0])

    assert focal_std(tracks.xy + shift) > 1.5 * focal_std(tracks.xy + mixed)


@pytest.mark.parametrize("views", [4, 6, 12])
def test_deviation_from_few_residuals_is_what_estimates_scatter_by(views: int) -> None:
    """Places in the plane from a few noisy views each: the loss is twice as wide as the noise."""
    seen = np.random.default_rng(0).normal(size=(20000, views, 2))
    place = seen.mean(axis=1)  # [P, 2]
    for _ in range(50):
        square = ((seen - place[:, None]) ** 2).sum(axis=-1)  # [P, V]
        weight = 1 / (1 + square / LOSS_PX**2)
        place = (weight[..., None] * seen).sum(axis=1) / weight.sum(axis=1, keepdims=True)
    noise2, _, _ = _robust_noise(square.ravel(), weight.ravel(), place.size)
    scatter2 = views * float((place**2).mean())  # the true place is the origin
    assert noise2 == pytest.approx(scatter2, rel=0.04)
    assert scatter2 > 1.05  # what the robust loss costs with this noise


def test_unseen_images_get_a_large_finite_deviation(bundle: Bundle) -> None:
    placed = triangulate(bundle, 4.0)
    blind = replace(placed, alive=placed.alive & (placed.tracks.image != 2))
    result = deviations(blind)
    assert (result.pose_std[2] >= 1).all()
    assert np.delete(result.pose_std, 2, axis=0).max() < 0.1


def test_gauge_directions_change_no_residual(bundle: Bundle) -> None:
    placed = triangulate(bundle, 4.0)
    reduced = Equations(placed, placed.alive, FOCAL_ONLY, 2.0, 1.0).reduced(placed)
    gauge = gauge_directions(bodies_of(placed), reduced.diagonal > 0)  # [D, 7]
    system = reduced.system.dense()
    assert np.abs(system @ gauge).max() < 1e-6 * np.abs(system).max()


def test_little_memory_gives_the_same_bits(bundle, monkeypatch):
    def reduced():
        return Equations(bundle, bundle.alive, FOCAL_ONLY, 2.0, 1.0).reduced(bundle, 1e-3)

    before = numba.get_num_threads()
    numba.set_num_threads(min(2, int(numba.config.NUMBA_NUM_THREADS)))
    try:
        at_once = reduced()
        monkeypatch.setattr("proba.refine.normal_equations.allowed_bytes", lambda: 0)
        monkeypatch.setattr(Equations, "_share", lambda *_: pytest.fail("all parts at once"))
        one_by_one = reduced()
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(at_once.system.values, one_by_one.system.values)
    for name in ("gradients", "slope", "diagonal"):
        np.testing.assert_array_equal(getattr(at_once, name), getattr(one_by_one, name))
