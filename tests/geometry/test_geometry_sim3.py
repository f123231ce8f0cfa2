"""Similarity alignment, with and without outliers."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from proba.geometry.sim3 import Sim3, umeyama, umeyama_robust


def random_sim3(rng: np.random.Generator) -> Sim3:
    return Sim3(float(np.exp(rng.normal())), Rotation.random(rng=rng).as_matrix(), rng.normal(size=3) * 5)


def assert_same(a: Sim3, b: Sim3, atol: float = 1e-9) -> None:
    np.testing.assert_allclose(a.matrix(), b.matrix(), atol=atol)


@pytest.mark.parametrize("seed", range(5))
def test_umeyama_recovers_a_similarity(seed):
    rng = np.random.default_rng(seed)
    truth, source = random_sim3(rng), rng.normal(size=(3 + seed, 3))
    assert_same(umeyama(source, truth.apply(source)), truth)


def test_umeyama_never_reflects():
    source = np.random.default_rng(0).normal(size=(10, 3))
    rotation = umeyama(source, source * [1, 1, -1]).rotation
    np.testing.assert_allclose(np.linalg.det(rotation), 1)


def test_umeyama_without_scale():
    rng = np.random.default_rng(1)
    source = rng.normal(size=(10, 3))
    rotation = Rotation.random(rng=rng).as_matrix()
    fit = umeyama(source, 3 * source @ rotation.T + 1, with_scale=False)
    assert fit.scale == 1
    np.testing.assert_allclose(fit.rotation, rotation, atol=1e-12)


def test_weights_silence_points():
    rng = np.random.default_rng(2)
    truth, source = random_sim3(rng), rng.normal(size=(10, 3))
    target = truth.apply(source)
    target[:3] += 10
    assert_same(umeyama(source, target, np.r_[np.zeros(3), np.ones(7)]), truth)


def test_umeyama_is_the_least_squares_solution():
    rng = np.random.default_rng(3)
    source = rng.normal(size=(20, 3))
    target = random_sim3(rng).apply(source) + 0.1 * rng.normal(size=(20, 3))
    best = umeyama(source, target)
    error = lambda s: ((s.apply(source) - target) ** 2).sum()
    for _ in range(50):
        turn = Rotation.from_rotvec(0.01 * rng.normal(size=3)).as_matrix()
        other = Sim3(
            best.scale * np.exp(0.01 * rng.normal()),
            turn @ best.rotation,
            best.translation + 0.01 * rng.normal(size=3),
        )
        assert error(best) <= error(other)


@pytest.mark.parametrize(("n", "n_outliers"), [(5, 1), (10, 3), (40, 15)])
@pytest.mark.parametrize("seed", range(3))
def test_robust_alignment_ignores_lost_cameras(n, n_outliers, seed):
    rng = np.random.default_rng(seed)
    truth, source = random_sim3(rng), rng.normal(size=(n, 3))
    target = truth.apply(source)
    target[:n_outliers] += truth.scale * rng.normal(size=(n_outliers, 3)) * 20
    fit, inliers = umeyama_robust(source, target)
    assert_same(fit, truth, atol=1e-7)
    np.testing.assert_array_equal(inliers, np.arange(n) >= n_outliers)


def test_robust_alignment_of_noisy_centres_is_close_to_least_squares():
    rng = np.random.default_rng(4)
    source = rng.normal(size=(30, 3))
    target = source + 1e-3 * rng.normal(size=(30, 3))
    fit, inliers = umeyama_robust(source, target)
    assert inliers.mean() > 0.8
    np.testing.assert_allclose(fit.matrix(), np.eye(4), atol=3e-3)


def test_two_cameras_can_be_aligned():
    source = np.array([[0.0, 0, 0], [1, 0, 0]])
    target = np.array([[1.0, 1, 1], [1, 3, 1]])
    fit, inliers = umeyama_robust(source, target)
    np.testing.assert_allclose(fit.apply(source), target, atol=1e-12)
    assert inliers.all()


def test_group_operations_and_poses():
    rng = np.random.default_rng(5)
    a, b = random_sim3(rng), random_sim3(rng)
    points = rng.normal(size=(6, 3))
    assert_same(a @ a.inverse(), Sim3())
    np.testing.assert_allclose((a @ b).apply(points), a.apply(b.apply(points)))

    cam_from_world = np.eye(4)
    cam_from_world[:3, :3], cam_from_world[:3, 3] = Rotation.random(rng=rng).as_matrix(), rng.normal(size=3)
    moved = a.apply_to_poses(cam_from_world[None])[0]
    in_camera = points @ cam_from_world[:3, :3].T + cam_from_world[:3, 3]
    in_moved_camera = a.apply(points) @ moved[:3, :3].T + moved[:3, 3]
    np.testing.assert_allclose(in_moved_camera, a.scale * in_camera)
    np.testing.assert_allclose(moved[:3, :3] @ moved[:3, :3].T, np.eye(3), atol=1e-12)


def test_point_sets_of_different_shape_are_refused():
    with pytest.raises(ValueError, match="two equal sets"):
        umeyama(np.zeros((3, 3)), np.zeros((4, 3)))
