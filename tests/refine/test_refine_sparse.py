"""The sparse system of the cameras against the dense one: the same factor, minimum, and deviations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from perturbed_world import exact_bundle
from scipy.linalg import LinAlgError

from proba.refine import UncertaintyOptions
from proba.refine.block_cholesky import FrontFactor, factorised
from proba.refine.block_matrix import BlockMatrix, Blocks, coupled_blocks, taken_from
from proba.refine.bundle import Bundle, PosePrior
from proba.refine.elimination import Plan, cost_of_front, plan_as_one, plan_elimination
from proba.refine.levenberg import minimise
from proba.refine.normal_equations import Equations
from proba.refine.triangulate import triangulate
from proba.refine.uncertainty import camera_uncertainty, point_std
from proba.synthetic import make_scene, scene_matches
from proba.threads import one_library_thread

LOSS_PX, NOISE_PX = 2.0, 1.0


def chain(n_images: int, n_cameras: int, reach: int = 5, seed: int = 0) -> Blocks:
    """Of images in a row, each of which shares points with those next to it; the intrinsics of one camera are fixed."""
    rng = np.random.default_rng(seed)
    tracks = [np.unique(np.clip(k + rng.integers(0, reach, 4), 0, n_images - 1)) for k in range(n_images)]
    offset = np.concatenate([[0], np.cumsum([len(track) for track in tracks])])
    free = np.where(np.arange(n_cameras) == 1, 0, 3)
    camera = rng.permutation(np.arange(n_images) % n_cameras)
    return coupled_blocks(offset, np.concatenate(tracks), camera, free, 6)


def random_matrix(blocks: Blocks, seed: int = 0) -> BlockMatrix:
    """A positive definite one."""
    matrix = taken_from(np.random.default_rng(seed).normal(size=(blocks.n_columns,) * 2), blocks)
    dense = matrix.dense()
    dense = np.tril(dense) + np.tril(dense, -1).T
    return taken_from(dense, blocks).raised(np.full(blocks.n_columns, 1 + np.abs(dense).sum(axis=1).max()))


def test_blocks_are_those_of_the_images_that_share_a_point() -> None:
    offset, image = np.array([0, 3, 5]), np.array([0, 1, 3, 1, 2])
    blocks = coupled_blocks(offset, image, np.array([0, 1, 0, 1, 2]), np.array([2, 0, 1]), 6)
    pairs = set(zip(blocks.row.tolist(), blocks.column.tolist(), strict=True))
    poses = {(k, k) for k in range(5)} | {(1, 0), (3, 0), (3, 1), (2, 1)}
    first = {(5, 0), (5, 1), (5, 2), (5, 3)}  # the first camera took images 0 and 2; the second has nothing free
    assert pairs == poses | first | {(5, 5), (7, 4), (7, 7)}
    assert blocks.n_columns == 5 * 6 + 3 and blocks.first[7] == 32


@pytest.mark.parametrize("n_cameras", [1, 3, 120])
def test_factor_and_inverse_are_those_of_the_dense_matrix(n_cameras: int) -> None:
    blocks = chain(120, n_cameras)
    plan, matrix = plan_elimination(blocks), random_matrix(blocks)
    assert plan is not None and len(plan.fronts) > 1
    dense = matrix.dense()
    np.testing.assert_array_equal(taken_from(dense, blocks).values, matrix.values)
    np.testing.assert_array_equal(matrix.diagonal, np.diag(dense))
    right = np.random.default_rng(1).normal(size=(blocks.n_columns, 3))
    factor = FrontFactor(matrix, plan)
    np.testing.assert_allclose(factor.solve(right), np.linalg.solve(dense, right), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(factor.solve(right[:, 0]), factor.solve(right)[:, 0], rtol=1e-12)
    expected = taken_from(np.linalg.inv(dense), blocks).values
    np.testing.assert_allclose(factor.inverse().values, expected, rtol=1e-10, atol=1e-14 * np.abs(expected).max())


def test_a_matrix_that_is_not_positive_has_no_factor() -> None:
    blocks = chain(120, 1)
    matrix = random_matrix(blocks)
    with pytest.raises(LinAlgError):
        factorised(matrix.raised(-2 * matrix.diagonal), plan_elimination(blocks))


def test_cost_grows_with_the_images_and_not_with_their_cube() -> None:
    def cost(n: int) -> float:
        plan = plan_elimination(chain(n, 1))
        assert plan is not None
        return plan.cost

    assert cost(1600) < 4.4 * cost(400)
    assert cost(1600) < 0.01 * cost_of_front(0, 6 * 1600)


def test_the_plan_of_the_same_blocks_is_made_once():
    assert plan_elimination(chain(400, 1)) is plan_elimination(chain(400, 1))
    assert plan_elimination(chain(400, 1)) is not plan_elimination(chain(401, 1))


def test_few_images_stay_with_the_dense_factor() -> None:
    assert plan_elimination(chain(12, 1)) is None
    everything = np.arange(60)
    coupled = coupled_blocks(np.array([0, 60]), everything, np.zeros(60, int), np.array([3]), 6)
    assert plan_elimination(coupled) is None


@pytest.fixture(scope="module")
def corridor() -> Bundle:
    """Points of a corridor of so many images that its system is sparse."""
    scene = make_scene("corridor", n_images=60, seed=0)
    bundle = exact_bundle(scene, scene_matches(scene, grid=12, max_neighbours=4, noise_px=0.5, seed=1))
    return triangulate(bundle, 4.0)


FREE = np.isin(np.arange(12), (0, 4))[None]


def plan_of(bundle: Bundle) -> Plan | None:
    return Equations(bundle, bundle.alive, FREE, LOSS_PX, NOISE_PX).plan


def with_model(bundle: Bundle) -> Bundle:
    return replace(bundle, camera_model=["SIMPLE_RADIAL"])


def with_places(bundle: Bundle) -> Bundle:
    """Every second image has a place that is known to a tenth, and one a whole pose."""
    precision = np.zeros((bundle.n_images, 6))
    precision[::2, 3:], precision[5] = 100.0, 400.0
    return replace(bundle, pose_prior=PosePrior(bundle.cam_from_world.copy(), precision))


def test_the_minimum_is_that_of_the_dense_system(corridor: Bundle, monkeypatch) -> None:
    bundle = with_model(corridor)
    assert plan_of(bundle) is not None

    def adjusted() -> Bundle:
        settings = {"loss_px": LOSS_PX, "noise_px": NOISE_PX, "iterations": 40, "tolerance": 1e-14}
        with one_library_thread():
            return minimise(bundle, bundle.alive, FREE, **settings)

    sparse, again = adjusted(), adjusted()
    assert np.array_equal(sparse.cam_from_world, again.cam_from_world) and np.array_equal(sparse.xyz, again.xyz)
    monkeypatch.setattr("proba.refine.normal_equations.plan_elimination", lambda _: None)
    dense = adjusted()

    def cost(bundle: Bundle) -> float:
        return Equations(bundle, corridor.alive, FREE, LOSS_PX, NOISE_PX).cost(bundle)

    assert cost(sparse) < 0.95 * cost(bundle)
    assert cost(sparse) == pytest.approx(cost(dense), rel=1e-8)
    np.testing.assert_allclose(sparse.intrinsics, dense.intrinsics, rtol=1e-8, atol=1e-8)
    depth = np.abs(dense.xyz).max()
    np.testing.assert_allclose(sparse.cam_from_world, dense.cam_from_world, atol=1e-8 * depth)


@pytest.mark.parametrize("fronts", [True, False])
def test_deviations_are_those_of_the_dense_inverse(corridor: Bundle, fronts: bool, monkeypatch) -> None:
    bundle = with_model(corridor)
    if not fronts:  # as with many images that all share points
        monkeypatch.setattr("proba.refine.normal_equations.plan_elimination", plan_as_one)
    blind = replace(bundle, alive=bundle.alive & (bundle.tracks.image != 7))
    for case in (bundle, blind, with_places(bundle)):
        sparse = camera_uncertainty(case, FREE, LOSS_PX, NOISE_PX, UncertaintyOptions())
        of_points = point_std(case, sparse, FREE, LOSS_PX)
        with monkeypatch.context() as patch:
            patch.setattr("proba.refine.normal_equations.plan_elimination", lambda _: None)
            dense = camera_uncertainty(case, FREE, LOSS_PX, NOISE_PX, UncertaintyOptions())
        np.testing.assert_allclose(sparse.pose_std, dense.pose_std, rtol=1e-8)
        np.testing.assert_allclose(sparse.intrinsics_std, dense.intrinsics_std, rtol=1e-8)
        np.testing.assert_allclose(of_points, point_std(case, dense, FREE, LOSS_PX), rtol=1e-8)
        scale = np.sqrt(dense.covariance.diagonal)
        difference = (sparse.covariance.dense() - dense.covariance.dense()) / scale[:, None] / scale
        assert np.abs(difference).max() < 1e-8


def test_two_parts_without_common_points_have_huge_deviations_not_wrong_ones(corridor: Bundle) -> None:
    owner, part = corridor.tracks.track_of_observation, corridor.tracks.image < 30
    mixed = np.zeros(corridor.tracks.n_tracks, bool)
    mixed[np.intersect1d(owner[part], owner[~part])] = True
    apart = replace(corridor, alive=corridor.alive & ~mixed[owner])
    free = np.zeros((1, 12), bool)
    whole = camera_uncertainty(corridor, free, LOSS_PX, NOISE_PX, UncertaintyOptions()).pose_std
    broken = camera_uncertainty(apart, free, LOSS_PX, NOISE_PX, UncertaintyOptions()).pose_std
    assert np.isfinite(broken).all()
    assert np.median(broken[:, 3:]) > 100 * np.median(whole[:, 3:])
