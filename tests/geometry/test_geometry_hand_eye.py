"""Two worlds joined by two cameras on one body."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from proba.geometry.hand_eye import hand_eye
from proba.geometry.sim3 import Sim3

WORLD = Sim3(3.0, Rotation.from_rotvec([0.5, -1.2, 0.8]).as_matrix(), np.array([1.0, -2.0, 4.0]))
"""The first world from the second."""


def moments(turns_deg: np.ndarray, noise: float = 0.0):
    """Poses of two cameras along a path, each in its own world, and second_from_first."""
    rng = np.random.default_rng(0)
    n = len(turns_deg)
    first, relation = np.tile(np.eye(4), (n, 1, 1)), np.eye(4)
    first[:, :3, :3] = Rotation.from_rotvec(turns_deg, degrees=True).as_matrix()
    centres = np.cumsum(rng.uniform(0.2, 1.0, (n, 3)) * [1, 0.3, 1], axis=0)
    first[:, :3, 3] = -np.einsum("nij,nj->ni", first[:, :3, :3], centres)
    relation[:3, :3] = Rotation.from_rotvec([0.1, 2.5, -0.2]).as_matrix()
    relation[:3, 3] = [0.3, -0.1, 0.4]
    second = WORLD.inverse().apply_to_poses(relation @ first)
    jitter = Rotation.from_rotvec(noise * rng.normal(size=(n, 3))).as_matrix()
    second[:, :3] = jitter @ second[:, :3]
    return first, second, relation


def turning(n: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, 3)) * [10, 40, 10]


@pytest.mark.parametrize("noise", [0.0, 0.001])
@pytest.mark.parametrize("known", [False, True])
def test_the_similarity_is_found(noise, known):
    first, second, relation = moments(turning(12), noise)
    found = hand_eye(first, second, relation if known else None)
    assert abs(found.scale / WORLD.scale - 1) < 0.02
    assert np.degrees(Rotation.from_matrix(found.rotation @ WORLD.rotation.T).magnitude()) < 0.3


def test_the_unit_of_a_known_relation_is_its_own():
    first, second, relation = moments(turning(12))
    relation[:3, 3] *= 100
    assert abs(hand_eye(first, second, relation).scale / WORLD.scale - 1) < 1e-6


def test_moments_that_tell_nothing_are_refused():
    straight = np.zeros((12, 3))
    first, second, _ = moments(straight)
    first[:, :3, 3] = np.outer(np.arange(12), [0, 0, -1.0])  # ahead, without a turn
    second = WORLD.inverse().apply_to_poses(first)
    assert hand_eye(first, second) is None
    assert hand_eye(*(poses[:3] for poses in moments(turning(12))[:2])) is None


def test_cameras_that_move_against_each_other_are_refused():
    first, second, _ = moments(turning(12))
    assert hand_eye(first, second[::-1]) is None
