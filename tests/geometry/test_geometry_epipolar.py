import numpy as np
from scipy.spatial.transform import Rotation

from proba.geometry.epipolar import two_view_depths


def test_depths_of_points_seen_twice():
    rng = np.random.default_rng(0)
    points = rng.uniform([-1, -1, 2], [1, 1, 6], (50, 3))
    rotation, shift = Rotation.from_rotvec([0.1, -0.3, 0.05]).as_matrix(), np.array([0.8, 0.1, -0.2])
    in_j = points @ rotation.T + shift
    depths = two_view_depths(points / points[:, 2:], in_j / in_j[:, 2:], rotation, shift)
    np.testing.assert_allclose(depths, points[:, 2], rtol=1e-9)
