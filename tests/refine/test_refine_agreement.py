"""Which images a world places without contradictions."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from scipy.spatial.transform import Rotation

from proba.refine.agreement import PairAgreement, group_without_contradictions, same_world, symmetric_weights
from proba.refine.bundle import Bundle

RNG = np.random.default_rng(0)


def agreement(good: list[tuple[int, int]], broken: list[tuple[int, int]]) -> PairAgreement:
    """Pairs whose matches a plain shift explains, of which the world explains all (good) or nothing (broken)."""
    x = RNG.uniform(0, 1000, (60, 2))
    pairs = PairAgreement({pair: (x, x + np.array([30.0, 0.0])) for pair in [*good, *broken]})
    pairs.support = lambda _: np.array([1.0] * len(good) + [0.0] * len(broken))  # type: ignore[method-assign]
    return pairs


def core(pairs: PairAgreement, n: int) -> list[int]:
    return np.flatnonzero(pairs.core(SimpleNamespace(n_images=n))).tolist()  # type: ignore[arg-type]


CLIQUE = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_one_neighbour_is_enough_where_nothing_is_broken() -> None:
    assert core(agreement([*CLIQUE, (3, 4)], []), 5) == [
        0,
        1,
        2,
        3,
        4,
    ]


def test_an_image_in_broken_pairs_is_taken_out() -> None:
    assert core(agreement(CLIQUE, [(0, 4), (1, 4)]), 5) == [0, 1, 2, 3]


def test_a_cluster_does_not_stay_by_one_good_pair() -> None:
    """4, 5 and 6 are wrong against the rest; 4 agrees with 3 in direction only."""
    assert core(agreement([*CLIQUE, (3, 4)], [(4, 5), (4, 6), (5, 6), (3, 5), (3, 6)]), 7) == [0, 1, 2, 3]


def test_worlds_are_one_up_to_a_rotation_and_a_wrong_camera(bundle: Bundle) -> None:
    turn = np.eye(4)
    turn[:3, :3] = Rotation.random(random_state=0).as_matrix()
    poses = bundle.cam_from_world @ turn
    poses[0, :3, :3] = np.eye(3)
    assert same_world(bundle, replace(bundle, cam_from_world=poses), 0.3)
    several = replace(bundle, cam_from_world=np.tile(bundle.cam_from_world, (130, 1, 1)))  # 540,280 pairs
    assert same_world(several, replace(several, cam_from_world=np.tile(poses, (130, 1, 1))), 0.3)
    poses[:, :3, :3] = Rotation.random(len(poses), random_state=1).as_matrix()
    assert not same_world(bundle, replace(bundle, cam_from_world=poses), 0.3)


def test_images_that_hang_on_one_other_each_leave_no_core():
    """Noise alone can look like that: two pairs that agree, and matches across that do not."""
    ends = np.array([[0, 1], [2, 3], [1, 2], [0, 3]])
    good, bad = (symmetric_weights(ends, np.array(w, float), 4) for w in ([99, 99, 0, 0], [0, 0, 5, 5]))
    assert not group_without_contradictions(bad, good, 0.4).any()
