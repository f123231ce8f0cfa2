import numpy as np
import torch
from scipy.spatial.transform import Rotation

from proba.geometry.epipolar import epipolar_lines, in_front, sampson, two_view_depths


def two_views():
    """Homogeneous rays [50, 3] of the same points in i and in j, and j_from_i [4, 4]."""
    points = np.random.default_rng(0).uniform([-1, -1, 2], [1, 1, 6], (50, 3))
    j_from_i = np.eye(4)
    j_from_i[:3] = np.column_stack([Rotation.from_rotvec([0.1, -0.3, 0.05]).as_matrix(), [0.8, 0.1, -0.2]])
    in_j = points @ j_from_i[:3, :3].T + j_from_i[:3, 3]
    return points, points / points[:, 2:], in_j / in_j[:, 2:], j_from_i


def test_depths_of_points_seen_twice():
    points, rays_i, rays_j, j_from_i = two_views()
    depths = two_view_depths(rays_i, rays_j, j_from_i[:3, :3], j_from_i[:3, 3])
    np.testing.assert_allclose(depths, points[:, 2], rtol=1e-9)


def test_true_matches_lie_on_their_lines_in_front_of_both_cameras():
    _, rays_i, rays_j, j_from_i = two_views()
    assert sampson(rays_j, *epipolar_lines(rays_i, rays_j, j_from_i)).max() < 1e-12
    assert in_front(rays_i, rays_j, j_from_i).all()
    behind = j_from_i.copy()
    behind[:3, 3] *= -1  # the same lines, all points on the other side
    assert not in_front(rays_i, rays_j, behind).any()


def test_the_distance_is_the_shift_of_both_points_that_makes_them_meet():
    """A point off its line by d in one image: half of the residual is taken by each image of equal slope."""
    _, rays_i, rays_j, j_from_i = two_views()
    lines_i, lines_j = epipolar_lines(rays_i, rays_j, j_from_i)
    off = 1e-6
    normal = lines_j[:, :2] / np.linalg.norm(lines_j[:, :2], axis=1, keepdims=True)
    moved = rays_j + off * np.column_stack([normal, np.zeros(len(normal))])
    slope_i, slope_j = (np.linalg.norm(lines[:, :2], axis=1) for lines in (lines_i, lines_j))
    expected = off * slope_j / np.hypot(slope_i, slope_j)
    distance = sampson(moved, *epipolar_lines(rays_i, moved, j_from_i))
    np.testing.assert_allclose(distance, expected, rtol=1e-4)


def test_one_pose_each_is_one_pose_for_all_and_torch_agrees():
    _, rays_i, rays_j, j_from_i = two_views()
    rays_j += np.array([0.01, -0.02, 0])
    lines = epipolar_lines(rays_i, rays_j, j_from_i)
    for one, each in zip(lines, epipolar_lines(rays_i, rays_j, np.tile(j_from_i, (50, 1, 1))), strict=True):
        np.testing.assert_allclose(one, each, rtol=1e-12, atol=1e-15)
    tensors = sampson(*(torch.from_numpy(array) for array in (rays_j, *lines)))
    np.testing.assert_array_equal(tensors.numpy(), sampson(rays_j, *lines))
