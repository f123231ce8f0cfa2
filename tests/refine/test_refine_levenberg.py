"""The adjustment against COLMAP's, threads, and what may move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pycolmap
import pytest
from perturbed_world import perturbed_solution

from proba.refine import AdjustOptions
from proba.refine.adjust import Freedom, adjust, noise_px, noise_round
from proba.refine.bundle import Bundle, bundle_from_solution, project, reprojection_errors, unit_px, unit_tracks
from proba.refine.levenberg import minimise
from proba.refine.tracks import build_tracks
from proba.refine.triangulate import points_from_depth_maps
from proba.threads import set_threads

LOSS_PX = 2.0
NOISE_PX = LOSS_PX / 2
ADJUST = AdjustOptions()
FREE = Freedom(principal_point=True, distortion=True)


@pytest.fixture(scope="module")
def rough(room, room_matches) -> Bundle:
    """A world a little off its minimum, of the tracks that hold, seen by cameras that have every parameter."""
    solution = perturbed_solution(room, room_matches)
    tracks = unit_tracks(build_tracks(room_matches, solution.graph), unit_px(room_matches, solution.graph))
    start = points_from_depth_maps(bundle_from_solution(room_matches, solution, tracks), solution.log_depth)
    settled = adjust(start, ADJUST.annealed, Freedom(), ADJUST)
    whole = np.flatnonzero(settled.alive_per_track() == tracks.length)
    wrong = settled.intrinsics * [1.01, 1.01, 1.005, *[1] * 9]
    return replace(
        settled,
        tracks=tracks.take(whole),
        xyz=settled.xyz[whole],
        alive=np.ones(tracks.take(whole).n_observations, bool),
        intrinsics=wrong,
        camera_model=["RADIAL"] * settled.n_cameras,
    )


def cost(bundle: Bundle) -> float:
    return float(np.log1p((reprojection_errors(bundle) / LOSS_PX) ** 2).sum())


def adjusted(bundle: Bundle, freedom: Freedom = FREE, tolerance: float = 1e-10, **masks) -> Bundle:
    free = freedom.columns(bundle, **masks)
    return minimise(bundle, bundle.alive, free, loss_px=LOSS_PX, noise_px=NOISE_PX, iterations=100, tolerance=tolerance)


def by_colmap(bundle: Bundle) -> Bundle:
    """The same problem, solved by COLMAP."""
    model = pycolmap.Reconstruction()
    width, height = np.round(bundle.camera_size[0]).astype(int).tolist()
    params = bundle.intrinsics[0, [0, 2, 3, 4, 5]]
    camera = pycolmap.Camera(model="RADIAL", width=width, height=height, params=params, camera_id=1)
    model.add_camera_with_trivial_rig(camera)
    tracks, config = bundle.tracks, pycolmap.BundleAdjustmentConfig()
    slot = np.zeros(tracks.n_observations, int)
    for n in range(bundle.n_images):
        mine = tracks.image == n
        slot[mine] = np.arange(mine.sum())
        image = pycolmap.Image(name=str(n), keypoints=tracks.xy[mine], camera_id=1, image_id=n + 1)
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(bundle.cam_from_world[n, :3]))
        config.add_image(n + 1)
    for t, xyz in enumerate(bundle.xyz):
        track = pycolmap.Track()
        for k in range(tracks.offset[t], tracks.offset[t + 1]):
            track.add_element(int(tracks.image[k]) + 1, int(slot[k]))
        model.add_point3D(xyz, track)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary, options.refine_principal_point = False, True
    options.ceres.loss_function_type, options.ceres.loss_function_scale = pycolmap.LossFunctionType.CAUCHY, LOSS_PX
    options.ceres.solver_options.max_num_iterations = 200
    options.ceres.solver_options.function_tolerance = 1e-12
    pycolmap.create_default_bundle_adjuster(options, config, model).solve()
    poses = bundle.cam_from_world.copy()
    poses[:, :3] = [model.image(n + 1).cam_from_world().matrix() for n in range(bundle.n_images)]
    focal, cx, cy, k1, k2 = model.camera(1).params
    xyz = np.stack([model.point3D(t + 1).xyz for t in range(tracks.n_tracks)])
    return replace(bundle, cam_from_world=poses, intrinsics=np.array([[focal, focal, cx, cy, k1, k2]]), xyz=xyz)


def test_minimum_is_that_of_colmap(rough) -> None:
    ours, theirs = adjusted(rough), by_colmap(rough)
    assert cost(ours) < 0.9 * cost(rough)
    assert cost(ours) == pytest.approx(cost(theirs), rel=1e-5)
    np.testing.assert_allclose(ours.intrinsics[:, :4], theirs.intrinsics[:, :4], atol=0.2)


def test_two_threads_find_the_same_minimum_and_always_the_same_bits(rough) -> None:
    try:
        results = []
        for threads in (1, 2, 2):
            set_threads(threads)
            results.append(adjusted(rough, tolerance=1e-5))
    finally:
        set_threads(None)
    assert cost(results[0]) == pytest.approx(cost(results[1]), rel=1e-6)
    assert np.array_equal(results[1].cam_from_world, results[2].cam_from_world)
    assert np.array_equal(results[1].xyz, results[2].xyz)


def test_only_what_is_free_moves(rough) -> None:
    poor = np.zeros(rough.n_cameras, bool)
    moved = adjusted(rough, rich=poor).intrinsics
    assert moved[0, 0] != rough.intrinsics[0, 0] and moved[0, 0] == moved[0, 1]
    assert np.array_equal(moved[:, 2:], rough.intrinsics[:, 2:])
    fixed = adjusted(rough, Freedom(focal=False))
    assert np.array_equal(fixed.intrinsics, rough.intrinsics) and cost(fixed) < cost(rough)


def test_a_prior_holds_the_principal_point(rough) -> None:
    prior = np.zeros(rough.intrinsics.shape)
    apart = []
    for precision in (0.0, 30.0, 1e9):
        prior[:, 2:4] = precision
        moved = adjusted(replace(rough, prior=prior.copy()))
        apart.append(np.linalg.norm((moved.intrinsics - moved.expected)[0, 2:4]))
    assert apart[0] > 2 * apart[1] > 100 * apart[2]
    assert apart[2] < 0.01


def test_images_and_points_without_observations_stay(rough) -> None:
    blind = replace(rough, alive=rough.tracks.image != 3)
    moved = adjusted(blind)
    assert np.allclose(moved.cam_from_world[3], rough.cam_from_world[3], atol=1e-12)
    lonely = blind.alive_per_track() < 2
    assert np.array_equal(moved.xyz[lonely], rough.xyz[lonely])


def test_nothing_to_adjust_changes_nothing(rough) -> None:
    nobody = np.zeros(rough.tracks.n_observations, bool)
    same = minimise(
        rough, nobody, FREE.columns(rough), loss_px=LOSS_PX, noise_px=NOISE_PX, iterations=5, tolerance=1e-5
    )
    assert np.array_equal(same.xyz, rough.xyz) and np.array_equal(same.intrinsics, rough.intrinsics)


def test_what_is_behind_a_camera_does_not_pull_the_others(rough) -> None:
    turned = rough.cam_from_world.copy()
    turned[6] = np.diag([-1.0, 1.0, -1.0, 1.0]) @ turned[6]
    right = adjusted(replace(rough, alive=rough.tracks.image != 6))
    disturbed = adjusted(replace(rough, cam_from_world=turned))
    assert disturbed.intrinsics[0, 0] == pytest.approx(right.intrinsics[0, 0], rel=0.01)


def test_photos_of_many_cameras_get_a_wider_loss(rough) -> None:
    random = np.random.default_rng(0)
    seen = project(rough)[0] + random.normal(scale=0.1, size=rough.tracks.xy.shape)
    shared = replace(rough, tracks=replace(rough.tracks, xy=seen))
    n = shared.n_images
    own = replace(
        shared,
        camera_of_image=np.arange(n),
        camera_size=np.repeat(shared.camera_size, n, axis=0),
        intrinsics=np.repeat(shared.intrinsics, n, axis=0),
        camera_model=shared.camera_model * n,
        prior=np.repeat(shared.prior, n, axis=0),
        known_focal=np.repeat(shared.known_focal, n),
    )
    assert noise_px(own) == pytest.approx(noise_px(shared)) and noise_px(own) < 0.2
    assert noise_round(own, ADJUST).loss_px > 2 * noise_round(shared, ADJUST).loss_px
