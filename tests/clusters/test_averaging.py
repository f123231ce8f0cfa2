"""Parts of a world in frames of their own are joined, and wrong ones voted out."""

from dataclasses import replace

import numpy as np
import pytest
from known_parts import own_frame, part, parts_of_ring
from scipy.spatial.transform import Rotation

from proba.clusters.averaging import compare, join_parts
from proba.graph import ClusterOptions

OPTIONS = ClusterOptions()


def errors(joined, frames, k: int, root: int) -> tuple[float, float, float]:
    """Rotation (degrees), logarithm of the scale and place (world units) of a part against the truth."""
    root_from_world = frames[root]
    said = joined.world_from_part[k]  # the frame of the root
    true = root_from_world @ frames[k].inverse()
    turn = np.degrees(Rotation.from_matrix(said.rotation.T @ true.rotation).magnitude())
    middle = frames[k].apply(np.zeros(3))
    return (
        turn,
        abs(np.log(said.scale / true.scale)),
        float(np.linalg.norm(said.apply(middle) - true.apply(middle)) / root_from_world.scale),
    )


def root_of(joined) -> int:
    return next(k for k, sim in enumerate(joined.world_from_part) if np.allclose(sim.matrix(), np.eye(4)))


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_a_ring_are_joined(seed):
    _, parts, frames = parts_of_ring(seed=seed)
    joined = join_parts(parts, OPTIONS, trusted=[True] * 5)
    assert joined.kept.all() and not joined.reason
    found = np.array([errors(joined, frames, k, root_of(joined)) for k in range(5)])
    assert (found.max(axis=0) < [0.2, 0.01, 0.1]).all(), found


def test_a_part_that_others_contradict_is_voted_out():
    """Half of its images are turned against the others: neighbours on its two sides see it at two places."""
    truth, parts, frames = parts_of_ring(reach=10)
    turned = truth.copy()
    turned[:, :3, :3] = Rotation.from_euler("y", 25, degrees=True).as_matrix() @ turned[:, :3, :3]
    bent = parts[2].cam_from_world.copy()
    far = np.arange(len(bent)) >= len(bent) // 2
    bent[far] = frames[2].apply_to_poses(turned[parts[2].images[far]])
    joined = join_parts([*parts[:2], replace(parts[2], cam_from_world=bent), *parts[3:]], OPTIONS, trusted=[True] * 5)
    assert joined.kept.tolist() == [True, True, False, True, True]
    assert set(joined.reason) == {2}
    found = np.array([errors(joined, frames, k, root_of(joined)) for k in (0, 1, 3, 4)])
    assert (found.max(axis=0) < [0.2, 0.01, 0.1]).all(), found


def test_of_two_that_contradict_each_other_the_trusted_one_stays():
    rng = np.random.default_rng(1)
    truth, parts, _ = parts_of_ring(count=2)
    noise = part(truth[rng.permutation(len(truth))], parts[1].images, own_frame(rng), rng, explained=0.99)
    joined = join_parts([parts[0], noise], OPTIONS, trusted=[True, False])
    assert joined.kept.tolist() == [True, False]


def test_parts_without_shared_images_are_not_compared():
    rng = np.random.default_rng(0)
    truth, _, _ = parts_of_ring()
    two = [part(truth, images, own_frame(rng), rng) for images in (np.arange(10), np.arange(8, 20))]
    assert compare(two, 0, 1, OPTIONS) is None
    joined = join_parts(two, OPTIONS, trusted=[True, True])
    assert joined.kept.tolist() == [False, True]


def test_images_that_ran_away_tell_nothing():
    """Three of eight shared images are far off in one part, with the depths that belong to such a place."""
    rng = np.random.default_rng(4)
    truth, _, _ = parts_of_ring()
    frames = [own_frame(rng), own_frame(rng)]
    one, other = (part(truth, m, f, rng) for m, f in zip((np.arange(20), np.arange(12, 32)), frames, strict=True))
    poses, depth = one.cam_from_world.copy(), one.seen_depth.copy()
    poses[17:, :3, 3] += 5000 * one.depth
    depth[np.isin(one.seen_image, [17, 18, 19])] *= 1000
    lost = replace(one, cam_from_world=poses, seen_depth=depth)
    assert np.flatnonzero(lost.astray).tolist() == [17, 18, 19]
    link = compare([lost, other], 0, 1, OPTIONS)
    assert link is not None and link.shared == link.agreeing == 5
    true = frames[0] @ frames[1].inverse()
    assert np.linalg.norm(link.translation - true.translation) < 0.05 * one.depth
    assert link.log_scale == pytest.approx(np.log(true.scale), abs=0.01)


def test_the_scale_follows_from_depths_where_cameras_stand_together():
    """Cameras that only turn say nothing about a scale; what they see does."""
    rng = np.random.default_rng(3)
    truth = np.tile(np.eye(4), (20, 1, 1))
    truth[:, :3, :3] = Rotation.from_euler("y", np.linspace(0, 60, 20)[:, None], degrees=True).as_matrix()
    frames = [own_frame(rng), own_frame(rng)]
    members = [np.arange(14), np.arange(6, 20)]
    two = [part(truth, m, f, rng) for m, f in zip(members, frames, strict=True)]
    link = compare(two, 0, 1, OPTIONS)
    assert link is not None
    assert link.log_scale == pytest.approx(np.log(frames[0].scale / frames[1].scale), abs=0.01)
