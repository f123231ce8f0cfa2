"""Lenses beyond two radial terms: found from a start without distortion, and taken as they are told."""

from dataclasses import replace

import numpy as np
import pytest
from perturbed_world import perturbed_solution, relative_errors_deg

from proba.matches import KnownLens, Matches
from proba.refine import CameraModelOptions, RefineOptions, TrackOptions, refine
from proba.refine.pinhole_views import with_lenses
from proba.solution import Solution
from proba.synthetic import Scene, make_scene, scene_matches

FAST = RefineOptions(tracks=TrackOptions(adjusted=1000, final=1500), camera_model=CameraModelOptions(few_images=8))


def seen_through(model: str, fov_deg: float) -> tuple[Scene, Matches]:
    scene = make_scene("room", n_images=8, seed=0, fov_deg=fov_deg, model=model)
    return scene, scene_matches(scene, grid=24, noise_px=0.2, seed=1)


def start(scene: Scene, matches: Matches, lens: KnownLens | None, model: str = "auto") -> tuple[Matches, Solution]:
    """A disturbed world whose photos have this lens."""
    world = perturbed_solution(scene, matches, focal_factor=1.0 if lens else 1.1)
    world.cameras = replace(world.cameras, lenses=(lens,) if lens else (), model=model)
    return with_lenses(matches, world.graph.images, world.cameras.lens_of_image), world


def assert_poses(found: np.ndarray, scene: Scene, images: np.ndarray) -> None:
    rotation, translation = relative_errors_deg(found, scene.cam_from_world[images])
    assert rotation.max() < 0.3 and translation.max() < 1


def test_tangential_distortion_is_found() -> None:
    scene, matches = seen_through("OPENCV", 70)
    seen, world = start(scene, matches, None)
    result = refine(seen, [world], FAST)
    camera = result.reconstruction.cameras[0]
    assert camera.model == "OPENCV" and camera.params[0] == camera.params[1]
    assert abs(camera.params[0] - scene.intrinsics[0, 0]) < 3 * camera.focal_std_px
    np.testing.assert_allclose(camera.params[4:], scene.distortion, atol=2e-3)
    assert (np.abs(camera.params[4:] - scene.distortion) < 6 * camera.params_std[4:]).all()
    assert camera.params_std[0] == camera.focal_std_px and (camera.params_std[4:] < 2e-3).all()
    assert_poses(result.reconstruction.cam_from_world, scene, world.graph.images)


@pytest.mark.parametrize("fov_deg", [120, 190])
def test_a_fisheye_is_found_from_an_equidistant_guess(fov_deg: float) -> None:
    scene, matches = seen_through("OPENCV_FISHEYE", fov_deg)
    guess = (0.93 * scene.intrinsics[0, 0], scene.width / 2, scene.height / 2)
    lens = KnownLens(model="SIMPLE_FISHEYE", params=guess, sigma=(np.inf,) * 3, assumed=True)
    seen, world = start(scene, matches, lens, "OPENCV_FISHEYE")
    result = refine(seen, [world], FAST)
    camera = result.reconstruction.cameras[0]
    assert camera.model == "OPENCV_FISHEYE"
    assert abs(camera.params[0] - scene.intrinsics[0, 0]) < 3 * camera.focal_std_px
    xy = np.array([[20.0, 30.0], [320.0, 240.0], [630.0, 240.0], [500.0, 470.0]])
    np.testing.assert_allclose(camera.rays(xy), scene.camera(0).rays(xy), atol=3e-3)
    assert_poses(result.reconstruction.cam_from_world, scene, world.graph.images)
    points = result.reconstruction.points
    if fov_deg > 180:  # some lie behind the plane of the camera
        pose = result.reconstruction.cam_from_world[points.obs_image]
        z = np.einsum("ki,ki->k", pose[:, 2, :3], points.xyz[points.obs_point]) + pose[:, 2, 3]
        assert (z < 0).sum() > 10


@pytest.mark.parametrize("model", ["FULL_OPENCV", "THIN_PRISM_FISHEYE"])
def test_a_told_lens_is_held(model: str) -> None:
    scene, matches = seen_through(model, 90)
    params = tuple(scene.camera(0).params.tolist())
    lens = KnownLens(model=model, params=params, sigma=(0.0,) * len(params))
    seen, world = start(scene, matches, lens)
    result = refine(seen, [world], FAST)
    camera = result.reconstruction.cameras[0]
    assert camera.model == model
    np.testing.assert_allclose(camera.params, params, rtol=1e-12)
    assert camera.focal_std_px == 0 and not camera.params_std.any()
    assert_poses(result.reconstruction.cam_from_world, scene, world.graph.images)


def test_each_parameter_is_held_pulled_or_free() -> None:
    scene, matches = seen_through("OPENCV", 70)
    truth = scene.camera(0).params
    params = truth + np.array([6.0, 6.0, 0, 0, 0.02, 0, 0, 0])  # of these only k1 may go where the matches say
    sigma = np.array([0.01, 0.01, 0, 0, np.inf, 0, 0, 0])
    lens = KnownLens(model="OPENCV", params=tuple(params.tolist()), sigma=tuple(sigma.tolist()))
    seen, world = start(scene, matches, lens)
    found = refine(seen, [world], FAST).reconstruction.cameras[0].params
    np.testing.assert_allclose(found[[2, 3, 5, 6, 7]], params[[2, 3, 5, 6, 7]], rtol=1e-12)
    assert abs(found[0] - params[0]) < 1 and abs(found[0] - truth[0]) > 4  # a strong prior, though wrong
    assert abs(found[4] - truth[4]) < 0.5 * abs(params[4] - truth[4])
    weak = replace(lens, sigma=(np.inf, np.inf, 0.0, 0.0, np.inf, 0.0, 0.0, 0.0))
    seen, world = start(scene, matches, weak)
    free = refine(seen, [world], FAST).reconstruction.cameras[0].params
    np.testing.assert_allclose(free, truth, atol=1)
    assert abs(free[4] - truth[4]) < 3e-3
