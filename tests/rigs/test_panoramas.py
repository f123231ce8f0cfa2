"""Panoramas: their directions, the views they are cut into, and a solve on exact matches of such views."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "refine"))

from perturbed_world import perturbed_solution, relative_errors_deg

import proba
from proba.cameras import CameraOptions, make_setup
from proba.errors import InputError
from proba.geometry.equirectangular import panorama_directions, panorama_pixels
from proba.io.panoramas import RIG_CONFIG, view_camera, view_rotations, views_of
from proba.io.rig_files import load_rigs
from proba.matching.pairs import PairOptions, places_of
from proba.refine import Refinement
from proba.rigs import PanoramaOptions, RigOptions, with_rigs
from proba.synthetic import make_scene, on_rig, scene_matches
from proba.synthetic.render import render, render_panorama

WIDTH = 512
FOUR = PanoramaOptions(views=4)


@pytest.fixture(scope="module")
def scene():
    return make_scene("room", n_images=4, seed=0, fov_deg=90.0, width=240, height=240)


@pytest.fixture(scope="module")
def cut(scene, tmp_path_factory):
    """A panorama, an ordinary photo, and the folder of their views."""
    photos = tmp_path_factory.mktemp("photos")
    Image.fromarray(render_panorama(scene, 0, width=WIDTH)).save(photos / "a.png")
    Image.fromarray(render(scene, 1)).save(photos / "plain.png")
    masks = tmp_path_factory.mktemp("masks")
    Image.fromarray(np.where(np.arange(WIDTH) < WIDTH // 2, 255, 0).astype(np.uint8)[None].repeat(256, 0)).save(
        masks / "a.png"
    )
    return views_of(photos, tmp_path_factory.mktemp("out"), FOUR, masks=masks)


def test_directions_and_pixels_of_a_panorama_are_inverse():
    xy = np.random.default_rng(0).uniform([1, 1], [799, 399], (50, 2))
    np.testing.assert_allclose(panorama_pixels(3 * panorama_directions(xy, 800, 400), 800, 400), xy, atol=1e-9)
    np.testing.assert_allclose(panorama_directions(np.array([400.0, 200.0]), 800, 400), [0, 0, 1], atol=1e-12)
    assert panorama_directions(np.array([600.0, 100.0]), 800, 400)[0] > 0  # right
    assert panorama_directions(np.array([400.0, 300.0]), 800, 400)[1] > 0  # down


def test_views_show_what_pinhole_cameras_would(scene, cut):
    side, focal = view_camera(WIDTH, FOUR)
    turned = on_rig(replace(scene, width=side, height=side), poses(view_rotations(FOUR)))
    turned.intrinsics[:] = [focal, focal, side / 2, side / 2]
    for k in range(4):
        view = np.asarray(Image.open(cut[0] / f"view{k}" / "a.jpg"), float)
        exact = render(turned, k * scene.n_images).astype(float)
        assert view.shape == exact.shape
        assert np.median(abs(view - exact)) < 6
        assert np.corrcoef(view.ravel(), exact.ravel())[0, 1] > 0.97


def poses(rotations: np.ndarray) -> np.ndarray:
    full = np.tile(np.eye(4), (len(rotations), 1, 1))
    full[:, :3, :3] = rotations
    return full


def test_views_are_a_rig_with_one_centre_and_a_lens(cut):
    views, masks = cut
    infos = [photo.info for photo in proba.io.images.find_photos(views)]
    assert [info.name for info in infos] == ["plain.png", *(f"view{k}/a.jpg" for k in range(4))]
    rigs = load_rigs(RigOptions(cameras=str(views / RIG_CONFIG)), infos)
    assert rigs.sensor_of_image.tolist() == [-1, 0, 1, 2, 3] and rigs.one_place(0, 3)
    assert np.isclose(rigs.sensors[0].lens.params[0], WIDTH / (2 * np.pi))
    place = places_of([info.name for info in infos], PairOptions(one_place=tuple(s.name for s in rigs.sensors)))
    assert len(set(place[1:].tolist())) == 1 and place[0] not in place[1:]
    white = [np.asarray(Image.open(masks / f"view{k}" / "a.png")).mean() for k in range(4)]
    assert white[1] < 1 and white[3] > 254 and 100 < white[0] < 155


def test_a_folder_without_panoramas_is_refused(scene, tmp_path):
    (tmp_path / "in").mkdir()
    Image.fromarray(render(scene, 1)).save(tmp_path / "in" / "plain.png")
    with pytest.raises(InputError, match="twice as wide as high") as error:
        views_of(tmp_path / "in", tmp_path, FOUR)
    assert "\n" not in str(error.value)


def test_what_does_not_go_with_panoramas_is_refused(tmp_path):
    cameras = CameraOptions(model="EQUIRECTANGULAR")
    with pytest.raises(InputError, match="Leave --rig out"):
        options = proba.SolveOptions(cameras=cameras, rigs=RigOptions(cameras="folders"))
        proba.reconstruct(tmp_path, out=tmp_path / "out", options=options)
    with pytest.raises(InputError, match="proba run"):
        matches = scene_matches(make_scene("object", n_images=3, seed=0), grid=8)
        proba.solve(matches, options=proba.SolveOptions(cameras=cameras))


def test_panoramas_get_exact_poses_from_exact_views(scene, tmp_path):
    options, names = FOUR, [f"view{k}" for k in range(4)]
    sensors = poses(view_rotations(options))
    views = on_rig(scene, sensors, names)
    matches = scene_matches(views, grid=12, noise_px=0.3, seed=0, max_neighbours=6)
    lens = {"camera_model_name": "SIMPLE_PINHOLE", "camera_params": [scene.intrinsics[0, 0], 120, 120]}
    cameras = [{"image_prefix": f"{name}/", "ref_sensor": k == 0, **lens} for k, name in enumerate(names)]
    for camera, pose in zip(cameras[1:], sensors[1:], strict=True):
        camera |= proba.io.rig_files.pose_entry(pose)
    (tmp_path / "rig.json").write_text(json.dumps([{"cameras": cameras}]))
    rigs = load_rigs(RigOptions(cameras=str(tmp_path / "rig.json")), matches.images)
    seen = with_rigs(matches, rigs)
    world = perturbed_solution(views, seen, rotation_deg=2.0, position=0.03, focal_factor=1.0)
    members = world.graph.images
    world = replace(world, cameras=make_setup([seen.images[k] for k in members]))
    refinement = Refinement(seen, world.graph, rigs=rigs.of(members))
    found = refinement.finish(refinement.polish([world])).reconstruction
    assert len(found) == 16 and not found.notes
    rotation, translation = relative_errors_deg(found.cam_from_world[:4], scene.cam_from_world)
    assert rotation.max() < 0.1 and translation.max() < 0.5
    centres = np.array([found.centres[[n for n, k in enumerate(members) if k % 4 == f]] for f in range(4)])
    assert np.ptp(centres, axis=1).max() < 1e-9  # one place
    (rig,) = found.rigs
    assert len(rig.frames) == 4 and not rig.metric and all(not camera.std.any() for camera in rig.cameras)
