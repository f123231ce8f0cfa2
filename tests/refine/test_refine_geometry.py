"""Projection, triangulation and derivatives of the bundle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from perturbed_world import perturbed_solution, relative_errors_deg

from proba.geometry.camera import widened
from proba.matches import Matches
from proba.refine import RefineOptions, RescueOptions
from proba.refine.adjust import Freedom, adjust
from proba.refine.agreement import PairAgreement, explained
from proba.refine.bundle import (
    FX,
    FY,
    Bundle,
    bundle_from_solution,
    observed_depths,
    pixel_rays,
    point_pixels,
    reprojection_errors,
    unit_px,
    unit_tracks,
)
from proba.refine.growing import grow
from proba.refine.placement import Placement, known_observations, place_by_points
from proba.refine.rescue import rescue
from proba.refine.tracks import build_tracks
from proba.refine.triangulate import (
    believable,
    points_from_depth_maps,
    reassess,
    refine_points,
    sample_maps,
    triangulate,
)
from proba.solution import Solution

OPTIONS = RefineOptions()
TWICE = RefineOptions(rescue=RescueOptions(rounds=2))


def test_undistortion_inverts_distortion(bundle: Bundle) -> None:
    rng = np.random.default_rng(0)
    ray = rng.uniform(-0.6, 0.6, (50, 2))
    camera, points = np.zeros(50, int), np.column_stack([ray, np.ones(50)])
    lenses = (
        ("RADIAL", [800.0, 512.0, 400.0, -0.1, 0.02]),
        ("OPENCV", [800.0, 810.0, 512.0, 400.0, -0.1, 0.02, 0.002, -0.001]),
        ("OPENCV_FISHEYE", [400.0, 410.0, 512.0, 400.0, -0.01, 0.02, 0.0, 0.001]),
    )
    for model, params in lenses:
        seen = replace(bundle, intrinsics=widened(model, np.array(params))[None], camera_model=[model])
        rays = pixel_rays(seen, camera, point_pixels(seen, camera, points))
        assert np.abs(rays / rays[:, 2:] - points).max() < 1e-6


def test_depth_maps_place_points_near_the_truth(bundle: Bundle) -> None:
    assert np.median(reprojection_errors(bundle)) < 15


def test_triangulation_holds_nearly_everything_and_polishing_lowers_the_error(bundle: Bundle) -> None:
    placed = triangulate(bundle, 4.0)
    assert placed.share > 0.97
    polished = refine_points(placed, 2.0)
    before, after = (np.mean(reprojection_errors(b)[placed.alive] ** 2) for b in (placed, polished))
    assert after <= before
    assert np.abs(polished.xyz - placed.xyz)[placed.alive_per_track() >= 2].max() > 0


def test_triangulation_survives_wrong_observations(bundle: Bundle) -> None:
    rng = np.random.default_rng(0)
    long = bundle.with_tracks(bundle.tracks.take(np.flatnonzero(bundle.tracks.length >= 5)))
    wrong = rng.random(long.tracks.n_observations) < 0.3
    xy = long.tracks.xy + wrong[:, None] * rng.uniform(100, 300, long.tracks.xy.shape)
    spoilt = triangulate(replace(long, tracks=replace(long.tracks, xy=xy)), 4.0)
    assert spoilt.alive[~wrong].mean() > 0.9
    assert spoilt.alive[wrong].mean() < 0.02


def test_reassess_brings_lost_points_back(bundle: Bundle) -> None:
    lost = replace(bundle, xyz=bundle.xyz + 100.0, alive=np.zeros_like(bundle.alive))
    assert reassess(lost, 4.0, 0.0).share > 0.95


def test_points_without_parallax_do_not_count(bundle: Bundle) -> None:
    placed = triangulate(bundle, 4.0)
    assert reassess(placed, 4.0, 179.0).share == 0.0


def test_two_view_points_at_odd_depths_take_no_part(bundle: Bundle) -> None:
    placed = triangulate(bundle, 4.0)
    tracks = placed.tracks
    two = np.flatnonzero(tracks.length > 2)[::5]  # cut to their first two observations
    seen = np.ones(tracks.n_observations, bool)
    for track in two:
        seen[tracks.offset[track] + 2 : tracks.offset[track + 1]] = False
    placed = replace(placed, alive=placed.alive & seen)
    wrong = two[::2]
    xyz = placed.xyz.copy()
    xyz[wrong] = placed.centres.mean(axis=0) + 4.0 * (xyz[wrong] - placed.centres.mean(axis=0))
    kept = believable(replace(placed, xyz=xyz), OPTIONS.adjust).alive_per_track() == 2
    assert kept[wrong].mean() < 0.1
    assert kept[two[1::2]].mean() > 0.85
    assert (believable(placed, OPTIONS.adjust).alive_per_track() >= 3).sum() == (placed.alive_per_track() >= 3).sum()


def test_an_image_that_only_two_view_points_hold_keeps_them(bundle: Bundle) -> None:
    placed = triangulate(bundle, 4.0)
    tracks = placed.tracks
    mine = tracks.image == 0  # [K]
    seen = np.ones(tracks.n_observations, bool)
    xyz = placed.xyz.copy()
    for track in np.unique(tracks.track_of_observation[mine]):
        here = np.arange(tracks.offset[track], tracks.offset[track + 1])
        seen[here[~mine[here]][1:]] = False  # one other observation remains
        xyz[track] = placed.centres[0] + 4.0 * (xyz[track] - placed.centres[0])  # how far, nobody else knows
    alone = replace(placed, xyz=xyz, alive=placed.alive & seen)
    assert alone.alive[mine].sum() > 50
    assert believable(alone, OPTIONS.adjust).alive[mine].sum() == alone.alive[mine].sum()


def test_a_lost_world_is_grown_anew(room, room_matches) -> None:
    """Nothing of the start is right: no pose, no focal length, no point."""
    lost = perturbed_solution(room, room_matches, rotation_deg=90, position=2.0, focal_factor=1.7, depth_noise=1.0)
    start, pairs = _start(lost, room_matches)
    grown = grow(start, pairs, Freedom(), OPTIONS, good=0.75)
    assert explained(start, pairs) < 0.3
    assert explained(grown, pairs) > 0.9
    rotation, translation = relative_errors_deg(grown.cam_from_world, room.cam_from_world[lost.graph.images])
    assert rotation.max() < 1
    assert translation.max() < 2


def test_an_image_with_its_own_camera_is_placed_with_another_focal_length(room, room_matches) -> None:
    nearly = perturbed_solution(room, room_matches, rotation_deg=0.5, position=0.01, depth_noise=0.05, shared=False)
    start, _ = _start(nearly, room_matches)
    start = adjust(start, OPTIONS.adjust.annealed, Freedom(), OPTIONS.adjust)
    intrinsics = start.intrinsics.copy()
    intrinsics[3, [FX, FY]] *= 3.0
    spoilt, others = replace(start, intrinsics=intrinsics), np.arange(start.n_images) != 3
    known = replace(spoilt, known_focal=intrinsics[:, FX])

    def placement(world: Bundle) -> Placement | None:
        return place_by_points(world, others, 3, known_observations(world, others)[3], OPTIONS.placement)

    held, free = placement(known), placement(spoilt)
    assert held is not None and free is not None
    assert held.focal == intrinsics[3, FX] and free.inliers > 1.5 * held.inliers
    assert 0.7 < free.focal / start.intrinsics[3, FX] < 1.4  # the nearest of a few
    common = replace(spoilt, camera_of_image=np.zeros(start.n_images, int))
    again = placement(common)
    assert again is not None and again.focal == intrinsics[0, FX]  # the others know it


def test_an_image_whose_focal_length_ran_away_is_placed_anew(room, room_matches) -> None:
    """Eight times as far away, with eight times the focal length, it looks nearly the same."""
    nearly = perturbed_solution(room, room_matches, rotation_deg=0.5, position=0.01, depth_noise=0.05, shared=False)
    start, pairs = _start(nearly, room_matches)
    start = adjust(start, OPTIONS.adjust.annealed, Freedom(), OPTIONS.adjust)
    intrinsics, poses = start.intrinsics.copy(), start.cam_from_world.copy()
    intrinsics[3, [FX, FY]] *= 8.0
    poses[3, 2, 3] += 7.0 * np.median(observed_depths(start)[start.tracks.image == 3])
    away = reassess(replace(start, intrinsics=intrinsics, cam_from_world=poses), 4.0, 0.3)
    back = rescue(away, pairs, Freedom(), TWICE)
    assert explained(back.bundle, pairs) > explained(away, pairs) + 0.02
    assert back.anew[3] and not back.left.any()
    assert abs(back.bundle.intrinsics[3, FX] / start.intrinsics[3, FX] - 1) < 0.02
    known = replace(away, known_focal=away.intrinsics[:, FX], focal_sigma=0.0)
    held = rescue(known, pairs, Freedom(), TWICE)
    assert held.bundle.intrinsics[3, FX] == away.intrinsics[3, FX]


def _start(solution: Solution, matches: Matches) -> tuple[Bundle, PairAgreement]:
    """The bundle of a solution with points from its depth maps, and what its pairs could explain."""
    unit, images = unit_px(matches, solution.graph), solution.graph.images
    tracks = unit_tracks(build_tracks(matches, solution.graph), unit)
    pairs = PairAgreement(
        {
            (i, j): (found.points_i / unit[i], found.points_j / unit[j])
            for i, j in solution.graph.edges.tolist()
            for found in [matches.pairs[int(images[i]), int(images[j])]]
        }
    )
    return points_from_depth_maps(bundle_from_solution(matches, solution, tracks), solution.log_depth), pairs


def test_maps_are_sampled_at_cell_centres() -> None:
    maps = np.arange(16.0).reshape(1, 4, 4)
    image = np.zeros(3, int)
    relative = np.array([[0.125, 0.125], [0.625, 0.125], [2.0, 2.0]])
    assert np.allclose(sample_maps(maps, image, relative), [0.0, 2.0, 15.0])
