"""Coarse matches are refined on the pixels of rendered photos, whose cameras are known exactly."""

from __future__ import annotations

import numpy as np
import pytest
from perturbed_world import exact_bundle, perturbed_solution, relative_errors_deg
from PIL import Image

from proba.matches import Matches
from proba.refine import PixelOptions, RefineOptions, TrackOptions, refine
from proba.refine.adjust import noise_px
from proba.refine.bundle import Bundle
from proba.refine.photometric import Photo, align, photo
from proba.refine.triangulate import refine_points, triangulate
from proba.synthetic import Scene, make_scene, scene_matches
from proba.synthetic.render import render


@pytest.fixture(scope="module")
def scene() -> Scene:
    return make_scene("object", n_images=6, seed=0)


@pytest.fixture(scope="module")
def greys(scene: Scene) -> dict[str, np.ndarray]:
    pictures = [Image.fromarray(render(scene, k)).convert("L") for k in range(scene.n_images)]
    return {name: np.asarray(picture) for name, picture in zip(scene.image_names, pictures, strict=True)}


@pytest.fixture(scope="module")
def coarse(scene: Scene) -> Matches:
    return scene_matches(scene, grid=32, noise_px=0.8, seed=1)


@pytest.fixture(scope="module")
def exact_cameras(scene: Scene, coarse: Matches) -> Bundle:
    return refine_points(exact_bundle(scene, coarse), 2.0)


@pytest.fixture(scope="module")
def photos(scene: Scene, greys: dict[str, np.ndarray], exact_cameras: Bundle) -> list[Photo]:
    size = exact_cameras.camera_size[exact_cameras.camera_of_image]
    return [photo(greys[name], size[k]) for k, name in enumerate(scene.image_names)]


def test_observations_move_to_where_the_exact_cameras_agree(exact_cameras: Bundle, photos: list[Photo]) -> None:
    aligned = align(exact_cameras, photos, PixelOptions())
    assert aligned.n_observations > 0.4 * exact_cameras.tracks.n_observations
    assert (aligned.length >= 2).all()
    noise = [
        noise_px(refine_points(triangulate(exact_cameras.with_tracks(tracks), 4.0), 2.0))
        for tracks in (exact_cameras.tracks, aligned)
    ]
    assert noise[1] < 0.4 * noise[0]


def test_an_image_without_texture_keeps_its_observations(exact_cameras: Bundle, photos: list[Photo]) -> None:
    plain = [*photos[:-1], photos[-1]._replace(grey=np.full_like(photos[-1].grey, 100))]
    aligned = align(exact_cameras, plain, PixelOptions())
    last = len(photos) - 1
    before = {tuple(xy) for xy in exact_cameras.tracks.xy[exact_cameras.tracks.image == last]}
    kept = [tuple(xy) for xy in aligned.xy[aligned.image == last]]
    assert len(kept) > 50 and before.issuperset(kept)


def test_coarse_matches_give_better_cameras_with_the_photos(
    scene: Scene, coarse: Matches, greys: dict[str, np.ndarray]
) -> None:
    solution = perturbed_solution(scene, coarse)
    options = RefineOptions(tracks=TrackOptions(adjusted=1000, final=2000, points=3000))
    rough, sharp = (refine(coarse, [solution], options, photos=source) for source in (None, greys.__getitem__))
    assert "pixels" in sharp.seconds and sharp.noise_px < 0.5 * rough.noise_px
    rough_deg, sharp_deg = (
        np.median(np.concatenate(relative_errors_deg(result.reconstruction.cam_from_world, scene.cam_from_world)))
        for result in (rough, sharp)
    )
    assert sharp_deg < 0.6 * rough_deg


def test_fine_matches_and_missing_photos_change_nothing(scene: Scene, coarse: Matches) -> None:
    def missing(name: str) -> np.ndarray:
        raise OSError(name)

    options = RefineOptions(tracks=TrackOptions(adjusted=500, final=500, points=500))
    solution = perturbed_solution(scene, coarse)
    plain, without = (refine(coarse, [solution], options, photos=source) for source in (None, missing))
    np.testing.assert_array_equal(plain.reconstruction.cam_from_world, without.reconstruction.cam_from_world)
    fine = scene_matches(scene, grid=32, noise_px=0.1, seed=1)
    assert "pixels" not in refine(fine, [perturbed_solution(scene, fine)], options, photos=missing).seconds
