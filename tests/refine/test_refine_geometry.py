"""Projection, triangulation and derivatives of the bundle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from perturbed_world import perturbed_solution, relative_errors_deg

from proba.refine.adjust import Freedom
from proba.refine.agreement import PairAgreement
from proba.refine.bundle import (
    K1,
    K2,
    Bundle,
    bundle_from_solution,
    distort,
    pixel_rays,
    reprojection_errors,
    unit_px,
    unit_tracks,
)
from proba.refine.linearise import linearise
from proba.refine.normal_equations import _gauge_directions, normal_equations
from proba.refine.rescue import explained, grow
from proba.refine.tracks import build_tracks
from proba.refine.triangulate import (
    believable,
    points_from_depth_maps,
    reassess,
    refine_points,
    sample_maps,
    triangulate,
)
from proba.refine.uncertainty import CameraUncertainty, camera_uncertainty


@pytest.fixture(scope="module")
def bundle(room, room_matches) -> Bundle:
    """The exact cameras of the room, with points at the depths of the maps."""
    exact = perturbed_solution(room, room_matches, rotation_deg=0, position=0, focal_factor=1, depth_noise=0)
    tracks = unit_tracks(build_tracks(room_matches, exact.graph), unit_px(room_matches, exact))
    return points_from_depth_maps(bundle_from_solution(room_matches, exact, tracks), exact.log_depth)


def test_undistortion_inverts_distortion() -> None:
    rng = np.random.default_rng(0)
    ray = rng.uniform(-0.6, 0.6, (50, 2))
    intrinsics = np.tile([800.0, 810.0, 512.0, 400.0, -0.1, 0.02], (50, 1))
    pixels = distort(ray, intrinsics) * intrinsics[:, :2] + intrinsics[:, 2:4]
    assert np.abs(pixel_rays(pixels, intrinsics) - ray).max() < 1e-6


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
    kept = believable(replace(placed, xyz=xyz)).alive_per_track() == 2
    assert kept[wrong].mean() < 0.1
    assert kept[two[1::2]].mean() > 0.85
    assert (believable(placed).alive_per_track() >= 3).sum() == (placed.alive_per_track() >= 3).sum()


def test_a_lost_world_is_grown_anew(room, room_matches) -> None:
    """Nothing of the start is right: no pose, no focal length, no point."""
    lost = perturbed_solution(room, room_matches, rotation_deg=90, position=2.0, focal_factor=1.7, depth_noise=1.0)
    unit, images = unit_px(room_matches, lost), lost.graph.images
    tracks = unit_tracks(build_tracks(room_matches, lost.graph), unit)
    pairs = PairAgreement(
        {
            (i, j): (found.points_i / unit[i], found.points_j / unit[j])
            for i, j in lost.graph.edges.tolist()
            for found in [room_matches.pairs[int(images[i]), int(images[j])]]
        }
    )
    start = points_from_depth_maps(bundle_from_solution(room_matches, lost, tracks), lost.log_depth)
    grown = grow(start, pairs, Freedom(), good=0.75)
    assert explained(start, pairs) < 0.3
    assert explained(grown, pairs) > 0.9
    rotation, translation = relative_errors_deg(grown.cam_from_world, room.cam_from_world[images])
    assert rotation.max() < 1
    assert translation.max() < 2


def test_maps_are_sampled_at_cell_centres() -> None:
    maps = np.arange(16.0).reshape(1, 4, 4)
    image = np.zeros(3, int)
    relative = np.array([[0.125, 0.125], [0.625, 0.125], [2.0, 2.0]])
    assert np.allclose(sample_maps(maps, image, relative), [0.0, 2.0, 15.0])


def test_derivatives_match_finite_differences(bundle: Bundle) -> None:
    part = triangulate(bundle, 4.0)
    intrinsics = part.intrinsics.copy()
    intrinsics[:, [K1, K2]] = -0.05, 0.02
    part = replace(part, intrinsics=intrinsics, camera_model=["RADIAL"])
    kept = part.alive.copy()
    kept[200:] = False
    residual, by_camera, by_point = linearise(part, kept)
    step = 1e-6
    image, owner = part.tracks.image[kept], part.tracks.track_of_observation[kept]
    for axis in range(3):
        xyz = part.xyz.copy()
        xyz[:, axis] += step
        moved = linearise(replace(part, xyz=xyz), kept)[0]
        assert np.allclose((moved - residual) / step, by_point[:, :, axis], rtol=1e-3, atol=1e-2)
        poses = part.cam_from_world.copy()
        poses[:, :3, 3] -= step * poses[:, :3, axis]  # the centre moves along a world axis
        moved = linearise(replace(part, cam_from_world=poses), kept)[0]
        assert np.allclose((moved - residual) / step, by_camera[:, :, 3 + axis], rtol=1e-3, atol=1e-2)
        turn = np.eye(4)
        turn[:3, :3] += step * np.cross(np.eye(3), np.eye(3)[axis]).T @ -np.eye(3)
        moved = linearise(replace(part, cam_from_world=turn @ part.cam_from_world), kept)[0]
        numeric = (moved - residual) / step
        assert np.allclose(numeric, by_camera[:, :, axis], rtol=1e-3, atol=1e-2), axis
    for column, delta in ((0, 1e-4), (2, 1e-4), (3, 1e-4), (4, 1e-7), (5, 1e-7)):
        changed = part.intrinsics.copy()
        changed[:, column] += delta
        if column == 0:
            changed[:, 1] += delta
        moved = linearise(replace(part, intrinsics=changed), kept)[0]
        assert np.allclose((moved - residual) / delta, by_camera[:, :, 6 + column], rtol=1e-3, atol=1e-2)
    assert len(image) == len(owner) == len(residual)


FOCAL_ONLY = np.array([[True, False, False, False, False, False]])


def deviations(bundle: Bundle) -> CameraUncertainty:
    return camera_uncertainty(bundle, normal_equations(bundle, FOCAL_ONLY, 2.0))


def test_uncertainty_is_finite_positive_and_falls_with_more_data(bundle: Bundle) -> None:
    placed = refine_points(triangulate(bundle, 4.0), 2.0)
    everything = deviations(placed)
    assert np.isfinite(everything.pose_std).all()
    assert (everything.pose_std > 0).all()
    assert (everything.intrinsics_std[:, 2:] == 0).all()
    quarter = placed.alive & (placed.tracks.track_of_observation % 4 == 0)
    less = deviations(replace(placed, alive=quarter))
    ratio = less.intrinsics_std[0, 0] / everything.intrinsics_std[0, 0]
    assert 1.4 < ratio < 3.0  # a quarter of the data: about twice the deviation


def test_errors_that_neighbours_share_widen_the_deviation(bundle: Bundle) -> None:
    """A distortion that the model lacks counts more than the same residuals at random."""
    placed = refine_points(triangulate(bundle, 4.0), 2.0)
    tracks, free = placed.tracks, np.zeros(placed.intrinsics.shape, bool)
    free[:, 0] = True
    centred = tracks.xy / placed.camera_size[placed.camera_of_image[tracks.image]] - 0.5  # [K, 2]
    shift = 12 * centred * (centred**2).sum(axis=1, keepdims=True)
    mixed = np.random.default_rng(0).permutation(shift)

    def focal_std(xy: np.ndarray) -> float:
        moved = refine_points(replace(placed, tracks=replace(tracks, xy=xy)), 2.0)
        return float(camera_uncertainty(moved, normal_equations(moved, free, 2.0)).intrinsics_std[0, 0])

    assert focal_std(tracks.xy + shift) > 1.5 * focal_std(tracks.xy + mixed)


def test_unseen_images_get_a_large_finite_deviation(bundle: Bundle) -> None:
    placed = triangulate(bundle, 4.0)
    blind = replace(placed, alive=placed.alive & (placed.tracks.image != 2))
    result = deviations(blind)
    assert (result.pose_std[2] >= 1).all()
    assert np.delete(result.pose_std, 2, axis=0).max() < 0.1


def test_gauge_directions_change_no_residual(bundle: Bundle) -> None:
    placed = triangulate(bundle, 4.0)
    equations = normal_equations(placed, FOCAL_ONLY, 2.0)
    gauge = _gauge_directions(placed, equations.observed)  # [D, 7]
    assert np.abs(equations.system @ gauge).max() < 1e-6 * np.abs(equations.system).max()
