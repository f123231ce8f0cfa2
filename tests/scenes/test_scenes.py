"""Two places that look alike, placed on top of each other, are told from one place."""

from __future__ import annotations

import numpy as np
import pytest

from proba.reconstruction import Camera, Points, Reconstruction
from proba.scenes import SceneOptions, Sightings, count_sightings, find_scenes, weakest_cut
from proba.scenes.cut import judge_cut
from proba.synthetic.layouts import look_at

FOCAL, WIDTH, HEIGHT = 800.0, 1000, 800


def arcs(
    alike: float, *, photos: int = 8, points: int = 1500, found: float = 0.6, hidden: float = 0.0, seed: int = 0
) -> Reconstruction:
    """Two arcs of photos around one place. A share `alike` of what one arc sees the other one sees as well.

    `hidden` is the share of the points of each photo that something stands before.
    """
    rng = np.random.default_rng(seed)
    xyz = rng.uniform(-1, 1, (points, 3))
    kind = rng.random(points)  # [P]: below alike: both; above: the half of one arc or the other
    angles = np.concatenate([np.linspace(-0.5, 0.5, photos), np.linspace(-0.45, 0.55, photos)])
    centres = np.stack([5 * np.sin(angles), 0.2 * rng.normal(size=len(angles)), -5 * np.cos(angles)], axis=1)
    poses = np.tile(np.eye(4), (2 * photos, 1, 1))
    for pose, centre in zip(poses, centres, strict=True):
        pose[:3, :3] = look_at(centre, np.zeros(3))
        pose[:3, 3] = -pose[:3, :3] @ centre
    rec = Reconstruction(
        image_names=[f"{k:02d}.png" for k in range(2 * photos)],
        cameras=[Camera(model="SIMPLE_PINHOLE", width=WIDTH, height=HEIGHT, params=np.array([FOCAL, 500.0, 400.0]))],
        camera_of_image=np.zeros(2 * photos, int),
        cam_from_world=poses,
        pose_std=np.full((2 * photos, 6), 1e-3),
        points=Points(
            xyz=xyz,
            rgb=np.zeros((points, 3), np.uint8),
            sigma=np.full(points, 0.01),
            error_px=np.full(points, 0.5),
            obs_point=np.zeros(0, int),
            obs_image=np.zeros(0, int),
            obs_xy=np.zeros((0, 2), np.float32),
        ),
    )
    parts = []
    for n in range(2 * photos):
        other = alike + (1 - alike) / 2
        there = (kind < alike) | ((kind < other) if n < photos else (kind >= other))
        there &= rng.random(points) < found * (1 - hidden)
        parts.append((np.flatnonzero(there), np.full(there.sum(), n), rec.project(n, xyz[there])))
    rec.points.obs_point, rec.points.obs_image, xy = (np.concatenate(part) for part in zip(*parts, strict=True))
    rec.points.obs_xy = xy.astype(np.float32)
    return rec


def two_sides(rec: Reconstruction) -> np.ndarray:
    return np.arange(len(rec)) < len(rec) // 2


@pytest.mark.parametrize("alike", [0.03, 0.1])
def test_two_places_that_look_alike_fall_apart(alike: float):
    rec, options = arcs(alike), SceneOptions()
    cut = weakest_cut(count_sightings(rec, options.sightings), options)
    assert cut is not None
    assert set(np.flatnonzero(cut.side ^ cut.side[0])) == set(np.flatnonzero(~two_sides(rec)))
    assert cut.most < options.most_shared and cut.chance < 1e-6
    assert cut.seen > 0
    assert [len(group) for group in find_scenes(rec, options).groups] == [8, 8]


@pytest.mark.parametrize("hidden", [0.0, 0.5])
def test_one_place_stays_whole(hidden: float):
    rec, options = arcs(1.0, hidden=hidden), SceneOptions()
    cut = weakest_cut(count_sightings(rec, options.sightings), options)
    assert cut is not None
    assert cut.ratio > 2 * options.most_shared


def test_the_share_is_that_of_what_looks_alike():
    rec, options = arcs(0.3), SceneOptions()
    cut = judge_cut(count_sightings(rec, options.sightings), two_sides(rec))
    # Of the points of one side, those that both sides see: 0.3 of 0.65.
    assert cut.ratio == pytest.approx(0.3 / 0.65, abs=0.05)
    assert cut.ratio < cut.most < 1.2 * cut.ratio


def test_two_pairs_that_match_badly_are_no_evidence():
    """A ring of photos, each with its two neighbours alone, of which two pairs see a tenth of what the others see."""
    n, options = 16, SceneOptions()
    pairs = np.array([(k, (k + 1) % n) for k in range(n)])
    seen = np.where(np.isin(np.arange(n), (3, 11)), 12.0, 90.0 + np.arange(n))
    classes = np.zeros((n, options.sightings.classes))
    should, found = classes.copy(), classes.copy()
    should[:, 0], found[:, 0] = 200, seen
    cut = weakest_cut(Sightings(images=n, zooms=3, pairs=np.sort(pairs, axis=1), should=should, seen=found), options)
    assert cut is not None
    assert set(np.flatnonzero(cut.side ^ cut.side[0])) == set(range(4, 12))
    assert cut.most < options.most_shared
    assert cut.chance > options.max_chance


def test_a_single_image_that_shares_too_little_is_named():
    rec, options = arcs(1.0), SceneOptions()
    points, rng = rec.points, np.random.default_rng(1)
    lost = (points.obs_image == 5) & (rng.random(len(points.obs_image)) > 0.08)
    # It shows other things in the same places: points of its own, which another photo near it has as well.
    own = np.flatnonzero(lost)
    points.xyz = np.concatenate([points.xyz, points.xyz[points.obs_point[own]]])
    points.obs_point[own] = len(points.xyz) - len(own) + np.arange(len(own))
    scenes = find_scenes(rec, options)
    assert len(scenes.groups) == 1 and scenes.lone == [5]
    assert find_scenes(arcs(1.0), options).lone == []
