"""Gaussians of several photos: who agrees, who looks through, who cannot see."""

import numpy as np
import pytest

from proba.dense.confirm import confirm

SIDE = 20
LENS = np.array([[20.0, 0, 10], [0, 20.0, 10], [0, 0, 1]])


def judged(depth, others, *, sigma=0.002, scale=1.0, other_sigma=0.002):
    """Fused depth and deviation and the votes at the middle of a photo that sees a wall at `depth`.

    `others` are depths of walls in photos to the right, each a little farther.
    """
    rho = np.full((SIDE, SIDE), 1 / depth, np.float32)
    towards = np.zeros((SIDE, SIDE, 3), np.int8)
    towards[..., 2] = -127
    own = (rho, np.full_like(rho, sigma / depth**2), towards)
    count = len(others)
    rhos = np.stack([np.full((SIDE, SIDE), 1 / z, np.float32) for z in others])
    sigmas = np.stack([np.full((SIDE, SIDE), other_sigma / z**2, np.float32) for z in others])
    slopes = np.zeros((count, SIDE, SIDE, 2), np.float32)
    seen = (rhos, sigmas, np.stack([towards] * count), slopes, np.full((count, 2), SIDE))
    e = np.stack([LENS @ [-0.02 * (k + 1), 0, 0] for k in range(count)])
    transfers = (np.stack([np.eye(3)] * count), e, np.stack([np.eye(3)] * count))
    fused, deviation = np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE))
    votes = np.zeros((SIDE, SIDE, 3), np.int32)
    confirm(own, seen, transfers, scale, fused, deviation, votes, 0, SIDE)
    middle = (SIDE // 2, SIDE // 2)
    return 1 / fused[middle], deviation[middle] / fused[middle] ** 2, votes[middle]


def test_photos_that_agree_are_fused_by_precision():
    depth, sigma, votes = judged(2.0, [2.003, 2.003], other_sigma=0.001)
    assert votes.tolist() == [0b11, 2, 0]
    assert depth == pytest.approx((2.0 * 0.25 + 2 * 2.003) / 2.25, abs=1e-4)
    assert 0.0005 < sigma < 0.002


def test_a_photo_that_looks_through_votes_against():
    _, _, votes = judged(2.0, [2.5, 2.0])
    assert votes.tolist() == [0b10, 1, 1]


def test_a_photo_whose_view_is_blocked_has_no_vote():
    _, _, votes = judged(2.0, [1.5, 2.0])
    assert votes.tolist() == [0b10, 1, 0]


def test_wide_gaussians_reach_farther_and_the_scale_widens_all():
    assert judged(2.0, [2.02], sigma=0.002)[2][1] == 0
    assert judged(2.0, [2.02], sigma=0.002, scale=4.0)[2][1] == 1
    assert judged(2.0, [2.02], sigma=0.01)[2][1] == 1


def test_no_deviation_makes_depths_agree_that_are_far_apart():
    assert judged(2.0, [2.2], sigma=1.0, other_sigma=1.0)[2][1] == 0
