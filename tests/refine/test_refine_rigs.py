"""Images tied to a rig: their equations, an adjustment that finds the relation, and its deviations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from perturbed_world import disturb_poses, exact_bundle, relative_errors_deg

from proba.geometry.camera import WIDTH
from proba.refine import UncertaintyOptions
from proba.refine.bundle import Bundle
from proba.refine.gauge_free import bodies_of, gauge_directions
from proba.refine.levenberg import minimise
from proba.refine.normal_equations import Equations
from proba.refine.rig import Rig, stepped
from proba.refine.rig_equations import Tie
from proba.refine.triangulate import triangulate
from proba.refine.uncertainty import camera_uncertainty
from proba.synthetic import make_scene, on_rig, scene_matches, turned_cameras

FOCAL_ONLY = np.arange(WIDTH)[None] == 0
N, SENSORS = 6, turned_cameras([0.0, 35.0, -30.0], [[0, 0, 0], [0.3, 0.05, 0.0], [-0.2, 0.0, 0.1]])


@pytest.fixture(scope="module")
def exact() -> Bundle:
    scene = on_rig(make_scene("room", n_images=N, seed=0, fov_deg=60.0), SENSORS)
    matches = scene_matches(scene, grid=16, noise_px=0.5, seed=1)
    bundle = exact_bundle(scene, matches)
    assert bundle.n_images == 3 * N
    return triangulate(bundle, 6.0)


def rig_of(*, free: bool = True, metric: bool = False) -> Rig:
    return Rig(
        frame_of_image=np.tile(np.arange(N), 3),
        sensor_of_image=np.repeat(np.arange(3), N),
        sensor_from_rig=SENSORS.copy(),
        free=np.array([False, free, free]),
        metric=metric,
    )


def disturbed(bundle: Bundle, rig: Rig, seed: int = 0) -> Bundle:
    """Frames and free sensors moved; all images still on the rig."""
    rng = np.random.default_rng(seed)
    frames = disturb_poses(rig.frames(bundle.cam_from_world), rotation_deg=0.5, position=0.01, rng=rng)
    step = rng.normal(size=(3, 6)) * [0.01, 0.01, 0.01, 0.05, 0.05, 0.05] * rig.free[:, None]
    rig = rig.moved(step)
    return replace(bundle, rig=rig, cam_from_world=rig.images(frames))


def test_frames_and_sensors_give_the_images_back(exact):
    rig = rig_of()
    np.testing.assert_allclose(rig.images(rig.frames(exact.cam_from_world)), exact.cam_from_world, atol=1e-9)


def test_the_tie_is_the_derivative_of_what_it_moves(exact):
    bundle = disturbed(exact, rig_of())
    tie = Tie(bundle.rig, Equations(bundle, bundle.alive, FOCAL_ONLY, 2.0, 1.0))
    step = 1e-5 * np.random.default_rng(1).normal(size=tie.blocks.n_columns)
    moved, _ = tie.moved(bundle, step)
    linear = tie.at(bundle).images(step)[: 18 * N].reshape(-1, 6)
    np.testing.assert_allclose(moved, stepped(bundle.cam_from_world, linear), atol=1e-8)


def test_the_tied_system_is_the_projected_one(exact):
    bundle = disturbed(exact, rig_of())
    equations = Equations(bundle, bundle.alive, FOCAL_ONLY, 2.0, 1.0)
    tie, whole = Tie(bundle.rig, equations), equations.reduced(bundle, 1e-3)
    at = tie.at(bundle)
    dense = np.stack([at.images(row) for row in np.eye(tie.blocks.n_columns)], axis=1)  # [D, D']
    tied = at.reduced(whole, bundle.rig)
    expected = dense.T @ whole.system.dense() @ dense
    np.testing.assert_allclose(tied.system.dense(), expected, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(tied.gradient, dense.T @ whole.gradient, atol=1e-9 * np.abs(whole.gradient).max())
    covariance = tied.system  # any matrix of these blocks
    back = dense @ covariance.dense() @ dense.T
    stored = at.covariance(covariance).dense()
    np.testing.assert_allclose(stored[stored != 0], back[stored != 0], rtol=1e-6, atol=1e-9 * np.abs(back).max())


@pytest.mark.parametrize("metric", [False, True])
def test_gauge_directions_of_a_rig_change_no_residual(exact, metric):
    bundle = replace(exact, rig=rig_of(free=not metric, metric=metric))
    equations = Equations(bundle, bundle.alive, FOCAL_ONLY, 2.0, 1.0)
    tied = Tie(bundle.rig, equations).at(bundle).reduced(equations.reduced(bundle), bundle.rig)
    gauge = gauge_directions(bodies_of(bundle), tied.diagonal > 0)
    assert gauge.shape[1] == (6 if metric else 7)
    system = tied.system.dense()
    assert np.abs(system @ gauge).max() < 1e-6 * np.abs(system).max()
    if metric:  # a larger world would need a larger rig
        free = gauge_directions(replace(bodies_of(bundle), metric=False), tied.diagonal > 0)
        assert np.abs(system @ free).max() > 1e-6 * np.abs(system).max()


@pytest.mark.parametrize("free", [True, False])
def test_the_adjustment_finds_the_relation_or_keeps_it(exact, free):
    start = disturbed(exact, rig_of(free=free, metric=not free))
    found = minimise(start, start.alive, FOCAL_ONLY, loss_px=2.0, noise_px=1.0, iterations=40, tolerance=1e-9)
    np.testing.assert_allclose(
        found.rig.images(found.rig.frames(found.cam_from_world)), found.cam_from_world, atol=1e-9
    )
    rotation, translation = relative_errors_deg(found.cam_from_world, exact.cam_from_world)
    assert rotation.max() < 0.2 and np.median(translation) < 0.2
    if not free:
        np.testing.assert_array_equal(found.rig.sensor_from_rig, SENSORS)
        path = np.linalg.norm(np.diff(found.centres[:N], axis=0), axis=1).sum()
        truth = np.linalg.norm(np.diff(exact.centres[:N], axis=0), axis=1).sum()
        assert abs(path / truth - 1) < 0.01  # metres, from the rig alone
        return
    std = camera_uncertainty(found, FOCAL_ONLY, 2.0, 0.5, UncertaintyOptions()).sensor_std
    scale = np.linalg.norm(found.centres[0] - found.centres[5]) / np.linalg.norm(exact.centres[0] - exact.centres[5])
    off = replace(found.rig.scaled(1 / scale), expected=SENSORS, precision=np.ones((3, 6))).residual()[1:]
    assert np.abs(off / std[1:]).max() < 4.5 and std[1:, :3].max() < 0.002 and not std[0].any()


def test_a_prior_pulls_at_the_relation(exact):
    wrong = stepped(SENSORS, np.array([[0.0] * 6, [0, 0.02, 0, 0, 0, 0], [0.0] * 6]))
    precision = np.full((3, 6), 1e12)
    rig = replace(rig_of(metric=True), expected=wrong, precision=precision)
    start = disturbed(exact, rig)
    found = minimise(start, start.alive, FOCAL_ONLY, loss_px=2.0, noise_px=1.0, iterations=40, tolerance=1e-9)
    assert np.abs(found.rig.residual()[1:]).max() < 1e-4


def test_deviations_of_images_on_a_rig_are_smaller(exact):
    tied = replace(exact, rig=rig_of())
    options = UncertaintyOptions()
    alone = camera_uncertainty(exact, FOCAL_ONLY, 2.0, 0.5, options).pose_std
    together = camera_uncertainty(tied, FOCAL_ONLY, 2.0, 0.5, options).pose_std
    assert np.median(together / alone) < 0.9


def test_sparse_and_dense_deviations_agree(exact, monkeypatch):
    bundle = replace(exact, rig=rig_of())
    dense = camera_uncertainty(bundle, FOCAL_ONLY, 2.0, 0.5, UncertaintyOptions())
    monkeypatch.setattr("proba.refine.gauge_free.MAX_EIGEN", 0)
    sparse = camera_uncertainty(bundle, FOCAL_ONLY, 2.0, 0.5, UncertaintyOptions())
    np.testing.assert_allclose(sparse.pose_std, dense.pose_std, rtol=1e-3)
    np.testing.assert_allclose(sparse.sensor_std, dense.sensor_std, rtol=1e-3, atol=1e-9)


def test_some_images_keep_their_rig(exact):
    bundle = replace(exact, rig=rig_of())
    some = bundle.some_images(np.array([1, 7, 13, 4, 10]))
    assert some.rig.frame_of_image.tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_allclose(some.rig.images(some.rig.frames(some.cam_from_world)), some.cam_from_world, atol=1e-9)
