"""Photos that are read row by row are told from those that are not, and the read-out time is right."""

from dataclasses import replace

import numpy as np
import pytest
from perturbed_world import perturbed_solution, relative_errors_deg

from proba.matches import Matches
from proba.reconstruction import Camera, Points, Reconstruction
from proba.refine import RefineOptions, RefineResult, ShutterOptions, TrackOptions, refine
from proba.refine.rolling_shutter import RollingShutter, photo_steps, rolling_shutter
from proba.synthetic import Scene, make_scene, scene_matches
from proba.synthetic.rolling import rolling

NOISE_PX = 0.4
OUTLIERS = 0.05


def photographed(scene: Scene, seed: int) -> Reconstruction:
    """The true cameras and points with noisy observations, some of them wrong."""
    rng, xyz = np.random.default_rng(seed), scene.sample_points(20, 15)
    point, image, pixels = [], [], []
    for n in range(scene.n_images):
        xy, _ = scene.project(n, xyz)  # NaN behind the camera
        seen = np.flatnonzero((xy > 0).all(axis=1) & (xy < [scene.width, scene.height]).all(axis=1))
        seen = seen[scene.visible(n, xyz[seen])]
        xy = xy[seen] + rng.normal(0, NOISE_PX, (len(seen), 2))
        wild = rng.random(len(seen)) < OUTLIERS
        xy[wild] += rng.uniform(-8, 8, (int(wild.sum()), 2))
        point.append(seen)
        image.append(np.full(len(seen), n))
        pixels.append(xy)
    points = Points(
        xyz=xyz,
        rgb=np.zeros((len(xyz), 3), np.uint8),
        sigma=np.zeros(len(xyz)),
        error_px=np.zeros(len(xyz)),
        obs_point=np.concatenate(point),
        obs_image=np.concatenate(image),
        obs_xy=np.concatenate(pixels),
    )
    camera = Camera(model=scene.model, width=scene.width, height=scene.height, params=scene.camera(0).params)
    return Reconstruction(
        image_names=scene.image_names,
        cameras=[camera],
        camera_of_image=np.zeros(scene.n_images, int),
        cam_from_world=scene.cam_from_world,
        pose_std=np.zeros((scene.n_images, 6)),
        points=points,
    )


def asked(scene: Scene, seed: int = 0) -> RollingShutter:
    found = rolling_shutter(photographed(scene, seed), ShutterOptions())
    assert found is not None
    return found


@pytest.mark.parametrize("layout", ["object", "room", "corridor"])
@pytest.mark.parametrize("seed", range(3))
def test_a_global_shutter_is_never_called_rolling(layout: str, seed: int) -> None:
    found = asked(make_scene(layout, n_images=10, seed=seed), seed)
    assert not found.found and found.bend_px == 0
    assert abs(found.readout) < 4 * found.readout_std


@pytest.mark.parametrize("layout", ["object", "room", "corridor"])
@pytest.mark.parametrize("model", ["PINHOLE", "OPENCV_FISHEYE"])
def test_the_readout_time_of_a_video_is_found(layout: str, model: str) -> None:
    scene = make_scene(layout, n_images=10, seed=1, fov_deg=70, model=model)
    found = asked(rolling(scene, 0.05 * photo_steps(scene.cam_from_world)))
    assert found.found and found.ordered
    assert abs(found.readout - 0.05) < max(4 * found.readout_std, 0.01)
    assert found.bend_px > 0.3


@pytest.mark.parametrize("layout", ["object", "room"])
def test_single_photos_from_a_moving_hand(layout: str) -> None:
    scene, rng = make_scene(layout, n_images=10, seed=2, fov_deg=70), np.random.default_rng(0)
    motion = rng.normal(0, [0.005] * 3 + [0.003] * 3, (10, 6))
    found = asked(rolling(scene, motion))
    assert found.found and not found.ordered
    moved = 0.005 * scene.intrinsics[0, 0] * 1024 / 640 * 0.29  # of a turn about one axis, at a row in the mean
    assert 0.7 * moved < found.bend_px < 3 * moved
    true, seen = motion[:, 2], found.motion[:, 2]  # the roll is best seen
    assert np.corrcoef(true, seen)[0, 1] > 0.8


def test_the_columns_of_a_photo_are_no_shutter() -> None:
    """Photos that are stored on their side are read along the columns; nothing is said of the rows."""
    scene, rng = make_scene("object", n_images=10, seed=2, fov_deg=70), np.random.default_rng(0)
    quarter = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    photos = photographed(rolling(scene, rng.normal(0, 0.005, (10, 6))), 0)
    camera, poses = photos.cameras[0], photos.cam_from_world.copy()
    fx, fy, cx, cy = camera.params
    poses[:, :3] = quarter @ poses[:, :3]
    turned = Camera(model="PINHOLE", width=480, height=640, params=np.array([fy, fx, 480 - cy, cx]))
    xy = np.column_stack([480 - photos.points.obs_xy[:, 1], photos.points.obs_xy[:, 0]])
    photos.points.obs_xy, photos.cameras, photos.cam_from_world = xy, [turned], poses
    found = rolling_shutter(photos, ShutterOptions())
    assert found is not None and not found.found and found.ratio < 0.5


def test_too_little_says_nothing() -> None:
    scene = make_scene("object", n_images=3, seed=0)
    assert rolling_shutter(photographed(scene, 0), ShutterOptions()) is None


FAST = RefineOptions(tracks=TrackOptions(adjusted=1000, final=1500))


def refined(scene: Scene, rounds: int) -> tuple[Matches, RefineResult, float, float]:
    """A solve from a disturbed world, and its median errors of rotations and directions, degrees."""
    matches = scene_matches(scene, grid=24, noise_px=0.5, outliers=0.1, seed=1)
    world = perturbed_solution(scene, matches, rotation_deg=1, position=0.02, focal_factor=1.02, depth_noise=0.05)
    result = refine(matches, [world], replace(FAST, shutter=ShutterOptions(rounds=rounds)))
    truth = scene.cam_from_world[world.graph.images]
    errors = relative_errors_deg(result.reconstruction.cam_from_world, truth)
    return matches, result, *(float(np.median(error)) for error in errors)


def test_poses_are_those_of_the_middle_rows() -> None:
    scene = make_scene("room", n_images=10, seed=0, fov_deg=60)
    scene = rolling(scene, 0.1 * photo_steps(scene.cam_from_world))
    _, bent, turned, shifted = refined(scene, rounds=0)
    matches, straight, *errors = refined(scene, rounds=3)
    assert bent.shutter is not None and bent.shutter.found and not bent.shutter.modelled
    assert straight.shutter is not None and straight.shutter.modelled
    assert abs(straight.shutter.readout - 0.1) < 0.02
    assert errors[0] < turned / 4 and errors[1] < shifted / 4
    points = straight.reconstruction.points
    seen = np.concatenate([pair.points_i for pair in matches.pairs.values()])
    assert np.isin(points.obs_xy[:, 0], seen[:, 0]).mean() > 0.3  # where the photos have them


def test_without_a_rolling_shutter_nothing_changes() -> None:
    scene = make_scene("room", n_images=8, seed=0, fov_deg=60)
    _, one, *_ = refined(scene, rounds=0)
    _, other, *_ = refined(scene, rounds=3)
    assert other.shutter is not None and not other.shutter.found
    assert np.array_equal(one.reconstruction.cam_from_world, other.reconstruction.cam_from_world)
