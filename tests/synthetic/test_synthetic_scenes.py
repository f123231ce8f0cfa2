"""Synthetic scenes: exact depth, enough overlap, and noise as asked."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from proba.errors import InputError
from proba.synthetic import LAYOUTS, Solids, candidate_pairs, cast, make_scene, scene_matches


def test_cast_hits_sphere_box_and_plane_at_known_distances():
    solids = Solids(
        spheres=np.array([[0.0, 0.0, 5.0, 1.0]]),
        boxes=np.array([[3.0, 0.0, 0.0, 0.5, 0.5, 0.5, np.pi / 4]]),
        planes=np.array([[0.0, 1.0, 0.0, 2.0]]),
    )
    rays = np.array([[0, 0, 1], [0, 0, 2], [1, 0, 0], [0, 1, 0], [-1, 0, 0]], float)
    distance, solid = cast(solids, np.zeros(3), rays)
    expected = [4.0, 2.0, 3.0 - np.sqrt(0.5), 2.0, np.inf]  # the turned box shows its edge
    np.testing.assert_allclose(distance, expected, atol=1e-12)
    assert solid.tolist() == [0, 0, 1, 2, -1]


def test_cast_sees_nothing_beyond_the_range():
    solids = Solids(planes=np.array([[0.0, 0.0, 1.0, 3.0]]))
    distance, _ = cast(solids, np.zeros(3), np.array([[0, 0, 1.0], [1.0, 0, 1.0]]), max_range=4.0)
    assert distance[0] == 3.0 and np.isinf(distance[1])


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("fov_deg", [30.0, 90.0])
def test_views_overlap_and_hang_together(name, fov_deg):
    grid = 24
    scene = make_scene(name, seed=5, fov_deg=fov_deg)
    assert 20 <= scene.n_images <= 50
    assert scene.fov_deg == pytest.approx(fov_deg)
    overlap = scene_matches(scene, grid=grid, noise_px=0.0).counts() / (2 * grid * grid)
    assert (overlap > 0.3).sum(axis=1).min() >= 3
    assert connected_components(overlap > 0.3)[0] == 1


@pytest.mark.parametrize("name", LAYOUTS)
def test_seed_varies_everything_and_repeats(name):
    one, same, other = make_scene(name, seed=1), make_scene(name, seed=1), make_scene(name, seed=2)
    np.testing.assert_array_equal(one.rotation, same.rotation)
    assert 30 <= one.fov_deg <= 90 and abs(one.fov_deg - other.fov_deg) > 0.1
    assert not np.allclose(one.centres, other.centres)


@pytest.mark.parametrize("name", LAYOUTS)
def test_cameras_stand_in_free_space(name):
    scene = make_scene(name, seed=3)
    for k in range(scene.n_images):
        depth = scene.depth_map(k, 16, 12)
        assert depth.min() > 0.15


def test_noise_free_matches_agree_with_both_depth_maps():
    scene = make_scene("room", n_images=20, seed=0, fov_deg=60)
    matches = scene_matches(scene, grid=16, noise_px=0.0)
    (i, j), pair = next(iter(matches.pairs.items()))
    depth, _ = scene.cast(i, pair.points_i.astype(float))
    points = scene.centre(i) + depth[:, None] * scene.rays(i, pair.points_i.astype(float))
    reprojected, depth_j = scene.project(j, points)
    assert np.abs(reprojected - pair.points_j).max() < 0.05  # pixels; the float32 target moves the ray a little
    seen, _ = scene.cast(j, pair.points_j.astype(float))
    assert np.median(np.abs(seen / depth_j - 1)) < 1e-5
    assert len(pair.points_i) == len(pair.scores) > 100


def test_facade_is_exactly_flat():
    points = make_scene("facade", n_images=20, seed=4).sample_points(16, 12)
    assert len(points) > 1000 and np.abs(points[:, 2]).max() < 1e-9


def test_noise_has_the_asked_size_and_share():
    scene = make_scene("facade", n_images=20, seed=0, fov_deg=60)
    clean = scene_matches(scene, grid=48, noise_px=0.0)
    noisy = scene_matches(scene, grid=48, noise_px=3.0, noise_ratio=0.25, seed=7)
    error = np.concatenate(
        [
            np.hstack([noisy.pairs[k].points_i - p.points_i, noisy.pairs[k].points_j - p.points_j])
            for k, p in clean.pairs.items()
        ]
    )  # [M, 4]
    moved = np.abs(error).max(axis=1) > 1e-3
    assert moved.mean() == pytest.approx(0.25, abs=0.01)
    assert error[moved].std() * np.sqrt(2) == pytest.approx(3.0, rel=0.02)  # half of the four columns are grid pixels


def test_outliers_have_the_asked_share():
    scene = make_scene("facade", n_images=20, seed=0, fov_deg=60)
    clean, wild = (scene_matches(scene, grid=32, noise_px=0.0, outliers=share, seed=7) for share in (0.0, 0.3))
    far = [np.abs(wild.pairs[k].points_j - p.points_j).max(axis=1) > 5 for k, p in clean.pairs.items()]
    far_i = [np.abs(wild.pairs[k].points_i - p.points_i).max(axis=1) > 5 for k, p in clean.pairs.items()]
    assert np.mean(np.concatenate(far) | np.concatenate(far_i)) == pytest.approx(0.3, abs=0.02)


def test_shortlist_bounds_the_pairs_of_a_long_walk():
    scene = make_scene("corridor", n_images=200, seed=0)
    pairs = candidate_pairs(scene, max_neighbours=6)
    assert len(pairs) <= 200 * 6
    matches = scene_matches(scene, grid=12, max_neighbours=6, min_matches=10)
    assert connected_components(matches.counts())[0] == 1


def test_unknown_scene_says_which_exist():
    with pytest.raises(InputError, match="corridor"):
        make_scene("castle")
