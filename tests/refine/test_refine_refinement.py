"""The whole refinement, from disturbed worlds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from perturbed_world import exact_bundle, perturbed_solution, relative_errors_deg

from proba.errors import GeometryError
from proba.matches import Matches
from proba.refine import (
    CameraModelOptions,
    GrowOptions,
    Refinement,
    RefineOptions,
    RescueOptions,
    TrackOptions,
    WorldOptions,
    refine,
)
from proba.refine.adjust import Freedom, adjust
from proba.refine.camera_model import select_camera_model
from proba.solution import Solution
from proba.synthetic import make_scene, scene_matches

MODEL = CameraModelOptions(few_images=8)
"""Camera models are chosen by tests already in these small scenes."""
FAST = RefineOptions(tracks=TrackOptions(adjusted=1000, final=1500), camera_model=MODEL)


@pytest.mark.parametrize(("name", "outliers"), [("object", 0.0), ("object", 0.3), ("room", 0.3), ("ring", 0.0)])
def test_disturbed_worlds_come_back(name: str, outliers: float) -> None:
    scene = make_scene(name, n_images=8 if name != "ring" else 12, seed=0)
    matches = scene_matches(scene, grid=24, noise_px=0.6, outliers=outliers, seed=1)
    solution = perturbed_solution(scene, matches, rotation_deg=4, focal_factor=1.15)
    result = refine(matches, [solution], FAST)
    rotation, translation = relative_errors_deg(
        result.reconstruction.cam_from_world, scene.cam_from_world[solution.graph.images]
    )
    assert rotation.max() < 1
    assert translation.max() < 1
    camera = result.reconstruction.cameras[0]
    assert abs(camera.focal_px[0] / scene.intrinsics[0, 0] - 1) < 0.005
    assert camera.model == "SIMPLE_PINHOLE"  # a centred pinhole camera made these pictures
    assert not any(trial.accepted for trial in result.trials)
    assert result.share > 0.9 * (1 - outliers)
    assert "growing" not in result.seconds  # wrong matches are no reason to begin anew


def test_result_is_complete_finite_and_consistent(room, room_matches) -> None:
    stages: list[str] = []
    result = refine(room_matches, [perturbed_solution(room, room_matches)], FAST, progress=stages.append)
    rec = result.reconstruction
    points = rec.points
    assert {"tracks", "worlds", "final adjustment", "points"} <= set(stages)
    assert len(points.xyz) == len(points.sigma) == len(points.error_px) == len(points.rgb) > 500
    assert points.obs_point.max() == len(points.xyz) - 1
    assert (np.bincount(points.obs_point) >= 2).all()
    for values in (points.xyz, points.sigma, points.error_px, rec.pose_std, rec.cam_from_world, rec.log_depth):
        assert np.isfinite(values).all()
    assert rec.cameras[0].focal_std_px > 0
    root = perturbed_solution(room, room_matches).graph.root
    assert np.allclose(rec.cam_from_world[root], np.eye(4), atol=1e-9)
    # The points project where they were observed, in original pixels and with the exported parameters.
    camera = rec.cameras[0]
    pose = rec.cam_from_world[points.obs_image]
    cam = np.einsum("kij,kj->ki", pose[:, :3, :3], points.xyz[points.obs_point]) + pose[:, :3, 3]
    pixel = cam[:, :2] / cam[:, 2:] * camera.focal_px + camera.principal_point_px
    error = np.linalg.norm(pixel - points.obs_xy, axis=1)
    assert np.median(error) < 1
    mean = np.bincount(points.obs_point, error) / np.bincount(points.obs_point)
    assert np.allclose(mean, points.error_px, atol=1e-3)
    # The depth maps are in the scale of the points.
    assert rec.log_depth is not None
    near = np.abs(np.median(np.log(cam[:, 2])) - np.median(rec.log_depth))
    assert near < 0.3
    assert len(rec.edges) == len(perturbed_solution(room, room_matches).graph.edges)


def test_same_input_same_bits(room, room_matches) -> None:
    solution = perturbed_solution(room, room_matches)
    first, second = (refine(room_matches, [solution], FAST).reconstruction for _ in range(2))
    assert np.array_equal(first.cam_from_world, second.cam_from_world)
    assert np.array_equal(first.points.xyz, second.points.xyz)


def test_misplaced_images_are_rescued(room, room_matches) -> None:
    solution = perturbed_solution(room, room_matches, rotation_deg=1)
    half_turn = np.diag([-1.0, 1.0, -1.0, 1.0])
    solution.cam_from_world[[1, 6]] = half_turn @ solution.cam_from_world[[1, 6]]
    result = refine(room_matches, [solution], FAST)
    rotation, translation = relative_errors_deg(
        result.reconstruction.cam_from_world, room.cam_from_world[solution.graph.images]
    )
    assert rotation.max() < 1
    assert translation.max() < 1
    assert set(result.rescued) >= {room.image_names[1], room.image_names[6]}
    assert result.unplaced == []


def test_better_world_is_chosen(room, room_matches) -> None:
    broken = perturbed_solution(room, room_matches, rotation_deg=80, position=2.0, seed=6)
    good = perturbed_solution(room, room_matches, seed=4)
    result = refine(room_matches, [broken, good], replace(FAST, rescue=RescueOptions(rounds=0)))
    assert result.chosen.name == good.name
    assert [w.name for w in result.worlds] == [broken.name, good.name]


def test_worlds_of_a_second_run_are_compared_with_those_of_the_first(room, room_matches) -> None:
    broken = perturbed_solution(room, room_matches, rotation_deg=80, position=2.0, seed=6)
    good = perturbed_solution(room, room_matches, seed=4)
    options = replace(FAST, rescue=RescueOptions(rounds=0))
    refinement = Refinement(room_matches, good.graph, options)
    first = refinement.polish([broken])
    assert not first.settled
    both = refinement.polish([good], first)
    assert both.good and [world.report.attempt for world in both.worlds] == [0, 1]
    result = refinement.finish(both)
    assert (result.chosen.name, result.chosen.attempt) == (good.name, 1)


def test_worlds_that_agree_are_grown_anew_only_if_poor(room, room_matches) -> None:
    worlds = [perturbed_solution(room, room_matches, seed=s) for s in range(2)]
    # Whatever a world explains is too little to be sure ...
    options = replace(FAST, worlds=WorldOptions(good_share=1.1, most=2), growing=GrowOptions(sure_share=2.0))
    assert "growing" not in refine(room_matches, worlds, options).seconds
    assert "growing" in refine(room_matches, worlds[:1], options).seconds
    # ... and too little in any case.
    options = replace(options, worlds=WorldOptions(good_share=1.1, most=2, poor_share=2.0))
    assert "growing" in refine(room_matches, worlds, options).seconds


def test_good_first_world_ends_the_search(room, room_matches) -> None:
    worlds = [perturbed_solution(room, room_matches, seed=s) for s in range(3)]
    result = refine(room_matches, worlds, replace(FAST, worlds=WorldOptions(good_share=0.5)))
    assert len(result.worlds) == 1


def with_known(solution: Solution, factor: float = 1.0, sigma: float = 0.0) -> Solution:
    """The solution with its focal lengths, times a factor, known beforehand; held by default."""
    cameras = solution.cameras
    known_px = np.empty(cameras.n_cameras)
    known_px[cameras.camera_of_image] = factor * solution.focal_px[:, 0]
    return replace(solution, cameras=replace(cameras, known_focal_px=known_px, focal_sigma=sigma))


def test_fixed_focal_stays(room, room_matches) -> None:
    solution = perturbed_solution(room, room_matches, focal_factor=1.0)
    result = refine(room_matches, [with_known(solution)], FAST)
    camera = result.reconstruction.cameras[0]
    assert camera.focal_px[0] == pytest.approx(room.intrinsics[0, 0], rel=1e-9)
    assert camera.focal_std_px == 0.0


def test_known_focals_are_held_and_the_others_are_found(room, room_matches) -> None:
    solution = perturbed_solution(room, room_matches, focal_factor=1.0, shared=False)
    solution.focal_px[1:] *= 1.1
    known_px = np.full(room.n_images, np.nan)
    known_px[0] = solution.focal_px[0, 0] = 0.97 * room.intrinsics[0, 0]
    solution.cameras = replace(solution.cameras, known_focal_px=known_px, focal_sigma=0.0)
    cameras = refine(room_matches, [solution], FAST).reconstruction.cameras
    assert cameras[0].focal_px[0] == pytest.approx(known_px[0], rel=1e-9) and cameras[0].focal_std_px == 0
    others = np.array([camera.focal_px[0] for camera in cameras[1:]])
    assert np.abs(others / room.intrinsics[0, 0] - 1).max() < 0.05
    assert all(camera.focal_std_px > 0 for camera in cameras[1:])


def test_a_known_focal_is_a_prior_as_strong_as_it_says(room, room_matches) -> None:
    """Between the two the result lies where precisions say, and so does its standard deviation."""
    solution = perturbed_solution(room, room_matches, focal_factor=1.0)

    def focal(told: Solution) -> tuple[float, float]:
        camera = refine(room_matches, [told], FAST).reconstruction.cameras[0]
        return float(camera.focal_px[0]), camera.focal_std_px

    free_px, free_std = focal(solution)
    told_px = free_px + 2 * free_std
    for sigma_px in (0.2 * free_std, free_std, 5 * free_std):
        px, std = focal(with_known(solution, told_px / solution.focal_px[0, 0], sigma_px / told_px))
        weight = free_std**2 / (free_std**2 + sigma_px**2)
        assert (px - free_px) / (told_px - free_px) == pytest.approx(weight, abs=0.2)
        assert std == pytest.approx(free_std * sigma_px / np.hypot(free_std, sigma_px), rel=0.3)


def test_own_camera_for_each_image(room, room_matches) -> None:
    solution = perturbed_solution(room, room_matches, shared=False)
    result = refine(room_matches, [solution], FAST)
    cameras = result.reconstruction.cameras
    assert len(cameras) == room.n_images
    assert all(c.model == "SIMPLE_PINHOLE" for c in cameras)  # one image cannot carry a richer model
    focal = np.array([c.focal_px[0] for c in cameras])
    assert np.abs(focal / room.intrinsics[0, 0] - 1).max() < 0.05


def shifted(matches: Matches, shift: tuple[float, float], images: range | None = None) -> Matches:
    """The same matches as seen by a sensor whose principal point is off the centre, in all or in some images."""
    moved = Matches(images=matches.images)
    by = [np.float32(shift if images is None or k in images else (0, 0)) for k in range(len(matches.images))]
    for (i, j), pair in matches.pairs.items():
        moved.add(i, j, pair.points_i + by[i], pair.points_j + by[j])
    return moved


def distorted(matches: Matches, focal_px: float, k1: float, k2: float = 0.0) -> Matches:
    """The same matches as seen through a lens with radial distortion."""
    bent = Matches(images=matches.images)
    for (i, j), pair in matches.pairs.items():
        both = []
        for points in (pair.points_i, pair.points_j):
            centre = np.array([matches.images[i].width, matches.images[i].height]) / 2
            ray = (points - centre) / focal_px
            square = (ray**2).sum(axis=1, keepdims=True)
            both.append(centre + focal_px * ray * (1 + k1 * square + k2 * square**2))
        bent.add(i, j, *both)
    return bent


@pytest.fixture(scope="module")
def precise(room) -> Matches:
    return scene_matches(room, grid=24, noise_px=0.2, seed=1)


def test_shifted_principal_point_is_found(room, precise) -> None:
    matches = shifted(precise, (12.0, -8.0))
    result = refine(matches, [perturbed_solution(room, matches)], FAST)
    found = result.reconstruction.cameras[0].principal_point_px - np.array([room.width, room.height]) / 2
    assert np.allclose(found, [12, -8], atol=2.5)
    centred = refine(
        matches,
        [perturbed_solution(room, matches)],
        replace(FAST, camera_model=replace(MODEL, principal_point="centre")),
    )
    assert np.allclose(centred.reconstruction.cameras[0].principal_point_px, [room.width / 2, room.height / 2])


def test_selection_goes_on_from_an_earlier_one(room, precise) -> None:
    bundle = exact_bundle(room, shifted(precise, (12.0, -8.0)))
    centred = adjust(bundle, FAST.adjust.settle, Freedom(), FAST.adjust)
    once, freedom, trials = select_camera_model(centred, FAST)
    assert freedom.principal_point and trials[0].accepted
    again, same, more = select_camera_model(once, FAST, freedom)
    assert same == freedom and "principal point" not in [trial.name for trial in more]
    assert np.allclose(again.intrinsics, once.intrinsics, rtol=1e-3, atol=0.05)


def test_few_images_get_every_parameter_and_priors() -> None:
    few = make_scene("object", n_images=5, seed=1)
    matches = scene_matches(few, grid=40, noise_px=0.2, seed=1)
    centre, unit = np.array([few.width, few.height]) / 2, max(few.width, few.height) / 1024
    for shift in ((0.0, 0.0), (12.0, -8.0)):
        moved = shifted(matches, shift)
        result = refine(moved, [perturbed_solution(few, moved)], FAST)
        camera = result.reconstruction.cameras[0]
        assert [trial.name for trial in result.trials] == ["principal point + k1 + k2, with priors"]
        assert camera.model == "RADIAL"
        assert np.allclose(camera.principal_point_px - centre, shift, atol=4 * unit)
        assert np.abs(camera.params[3:]).max() < 0.05
    plain = refine(
        matches, [perturbed_solution(few, matches)], replace(FAST, camera_model=replace(MODEL, distortion="none"))
    )
    assert plain.reconstruction.cameras[0].model == "SIMPLE_PINHOLE"


def test_principal_point_must_help_in_every_image(room, precise) -> None:
    matches = shifted(precise, (12.0, -8.0), range(3))
    result = refine(matches, [perturbed_solution(room, matches)], FAST)
    assert next(trial for trial in result.trials if trial.name == "principal point").evidence > 0
    centre = [room.width / 2, room.height / 2]
    assert np.allclose(result.reconstruction.cameras[0].principal_point_px, centre)


def test_radial_distortion_is_found_and_can_be_forbidden(room, precise) -> None:
    matches = distorted(precise, room.intrinsics[0, 0], -0.1)
    solution = perturbed_solution(room, matches)
    camera = refine(matches, [solution], FAST).reconstruction.cameras[0]
    assert camera.model in ("SIMPLE_RADIAL", "RADIAL")
    assert camera.params[3] == pytest.approx(-0.1, abs=0.02)
    assert camera.focal_px[0] == pytest.approx(room.intrinsics[0, 0], rel=0.01)
    plain = refine(
        matches, [solution], replace(FAST, camera_model=replace(MODEL, distortion="none"))
    ).reconstruction.cameras[0]
    assert plain.model == "SIMPLE_PINHOLE"


def test_coefficients_of_opposite_signs_are_found_together(room, precise) -> None:
    focal = room.intrinsics[0, 0]
    corner2 = (room.width**2 + room.height**2) / (2 * focal) ** 2
    k1, k2 = -0.02 / corner2, 0.0245 / corner2**2  # neither helps without the other
    matches = distorted(precise, focal, k1, k2)
    result = refine(matches, [perturbed_solution(room, matches)], FAST)
    assert not next(trial for trial in result.trials if trial.name == "k1").accepted
    assert result.reconstruction.cameras[0].model == "RADIAL"
    found = result.reconstruction.cameras[0].params[3:] * [corner2, corner2**2]
    assert np.allclose(found, [-0.02, 0.0245], atol=0.002)


def test_flat_scenes_are_flagged() -> None:
    scene = make_scene("facade", n_images=5, seed=0)
    matches = scene_matches(scene, grid=24, noise_px=0.6, seed=1)
    result = refine(matches, [perturbed_solution(scene, matches, rotation_deg=1)], FAST)
    assert any(note.kind == "flat scene" for note in result.reconstruction.notes)


def test_focal_deviation_is_calibrated() -> None:
    ratios = []
    for seed in range(6):
        scene = make_scene("object", n_images=6, seed=seed)
        matches = scene_matches(scene, grid=20, noise_px=0.6, seed=50 + seed)
        solution = perturbed_solution(scene, matches, rotation_deg=1, seed=seed)
        model = replace(MODEL, principal_point="centre", distortion="none")
        options = replace(FAST, camera_model=model, tracks=TrackOptions(adjusted=1000, final=20000))
        camera = refine(matches, [solution], options).reconstruction.cameras[0]
        ratios.append((camera.focal_px[0] - scene.intrinsics[0, 0]) / camera.focal_std_px)
    spread = np.sqrt(np.mean(np.square(ratios)))
    assert 0.3 < spread < 2.0


def test_too_few_matches_say_what_to_do(room, room_matches) -> None:
    thin = Matches(images=room_matches.images)
    for (i, j), pair in room_matches.pairs.items():
        if j == i + 1:
            thin.add(i, j, pair.points_i[:1], pair.points_j[:1])
    with pytest.raises(GeometryError, match="overlap"):
        refine(thin, [perturbed_solution(room, thin)], FAST)


def test_two_images_are_enough(room, room_matches) -> None:
    pair = room_matches.pairs[3, 4]
    matches = Matches(images=room_matches.images)
    matches.add(3, 4, pair.points_i, pair.points_j)
    solution = perturbed_solution(room, matches, rotation_deg=1, focal_factor=1.0)
    result = refine(matches, [with_known(solution)], FAST)
    rec = result.reconstruction
    assert rec.image_names == room.image_names[3:5]
    rotation, translation = relative_errors_deg(rec.cam_from_world, room.cam_from_world[3:5])
    assert rotation.max() < 1
    assert translation.max() < 3
    assert np.isfinite(rec.pose_std).all()
    assert np.isfinite(rec.points.sigma).all()


def test_poor_cameras_keep_the_plain_model_beside_rich_ones(room, precise) -> None:
    matches = shifted(precise, (12.0, -8.0))
    solution = perturbed_solution(room, matches)
    others = np.minimum(np.arange(room.n_images), 1)  # the first image has a camera of its own
    nothing = np.full(2, np.nan)
    solution.cameras = replace(solution.cameras, camera_of_image=1 - others, known_focal_px=nothing)
    cameras = refine(matches, [solution], FAST).reconstruction.cameras
    centre = np.array([room.width, room.height]) / 2
    assert np.linalg.norm(cameras[0].principal_point_px - centre) > 3
    assert np.allclose(cameras[1].principal_point_px, centre)


def test_unplaceable_image_is_flagged_and_kept(room, room_matches) -> None:
    rng = np.random.default_rng(0)
    spoilt = Matches(images=room_matches.images)
    for (i, j), pair in room_matches.pairs.items():
        points_j = rng.uniform(0, 400, pair.points_j.shape) if j == 7 else pair.points_j
        spoilt.add(i, j, pair.points_i, points_j)
    solution = perturbed_solution(room, spoilt)
    result = refine(spoilt, [solution], FAST)
    assert result.unplaced == [room.image_names[7]]
    assert any(room.image_names[7] in note.images for note in result.reconstruction.notes)
    assert np.isfinite(result.reconstruction.cam_from_world).all()
    assert (result.reconstruction.pose_std[7] > 0.1).all()
    rotation, _ = relative_errors_deg(result.reconstruction.cam_from_world[:7], room.cam_from_world[:7])
    assert rotation.max() < 1


def nameless(matches: Matches) -> Matches:
    """The same matches of photos that do not say which camera took them."""
    return replace(matches, images=[replace(info, camera_key="") for info in matches.images])


def test_two_cameras_of_one_size_are_told_apart() -> None:
    scene = make_scene("object", n_images=8, seed=0)
    scene.intrinsics[::2, :2] *= 1.4
    matches = nameless(scene_matches(scene, grid=24, noise_px=0.6, seed=1))
    solution = perturbed_solution(scene, matches, rotation_deg=2, focal_factor=1.0)
    solution.focal_px[:] = scene.intrinsics[:, 0].mean()
    result = refine(matches, [solution], FAST)
    rec = result.reconstruction
    focal = np.array([rec.cameras[c].focal_px[0] for c in rec.camera_of_image])
    assert np.abs(focal / scene.intrinsics[solution.graph.images, 0] - 1).max() < 0.02
    forced = refine(matches, [solution], replace(FAST, camera_model=replace(MODEL, distortion="simple"))).reconstruction
    assert {camera.model for camera in forced.cameras} == {"SIMPLE_RADIAL"}
    # Who says that they share a camera is taken at his word.
    certain = replace(solution, cameras=replace(solution.cameras, by_size_alone=np.zeros(8, bool)))
    assert len(refine(matches, [certain], FAST).reconstruction.cameras) == 1


def test_one_camera_with_a_shifted_principal_point_stays_one() -> None:
    scene = make_scene("object", n_images=8, seed=0)
    scene.intrinsics[:, 2] += 0.03 * scene.width
    matches = nameless(scene_matches(scene, grid=24, noise_px=0.6, seed=1))
    result = refine(matches, [perturbed_solution(scene, matches, rotation_deg=2)], FAST)
    assert len(result.reconstruction.cameras) == 1


def test_focal_lengths_that_hardly_differ_stay_one() -> None:
    scene = make_scene("object", n_images=8, seed=0)
    scene.intrinsics[::2, :2] *= 1.05
    matches = nameless(scene_matches(scene, grid=24, noise_px=0.6, seed=1))
    result = refine(matches, [perturbed_solution(scene, matches, rotation_deg=2)], FAST)
    assert len(result.reconstruction.cameras) == 1
