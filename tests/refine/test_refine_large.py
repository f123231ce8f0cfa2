"""Sets of many images: camera models are tried on a part of them, and several images are placed at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from perturbed_world import exact_bundle, relative_errors_deg

from proba.geometry.camera import CX, CY, FX, FY, K1
from proba.matches import Matches
from proba.refine import RefineOptions
from proba.refine.adjust import Freedom
from proba.refine.agreement import PairAgreement
from proba.refine.bundle import Bundle, project, reprojection_errors
from proba.refine.camera_model import select_camera_model
from proba.refine.growing import grow
from proba.refine.options import CameraModelOptions, GrowOptions, PlacementOptions
from proba.refine.placement import best_placements, known_observations, place_by_points
from proba.refine.rescue import rebuild
from proba.refine.scale_links import held_in_scale
from proba.refine.triangulate import triangulate
from proba.synthetic import Scene, make_scene, scene_matches

OPTIONS = RefineOptions()


@pytest.fixture(scope="module")
def ring() -> Scene:
    return make_scene("ring", n_images=30, seed=0)


@pytest.fixture(scope="module")
def ring_matches(ring: Scene) -> Matches:
    return scene_matches(ring, grid=16, max_neighbours=6, noise_px=0.3, seed=1)


@pytest.fixture(scope="module")
def placed_ring(ring: Scene, ring_matches: Matches) -> Bundle:
    return triangulate(exact_bundle(ring, ring_matches), 3.0)


def test_some_images_keep_what_two_of_them_see(placed_ring: Bundle) -> None:
    chosen = np.arange(3, 15)
    part = placed_ring.some_images(chosen)
    assert part.n_images == 12 and part.alive.all() and (part.tracks.length >= 2).all()
    both = placed_ring.alive & np.isin(placed_ring.tracks.image, chosen)
    held = np.bincount(placed_ring.tracks.track_of_observation[both], minlength=placed_ring.tracks.n_tracks)
    assert part.tracks.n_observations == held[held >= 2].sum() and part.tracks.n_tracks == (held >= 2).sum()
    same = np.sort(reprojection_errors(placed_ring)[both & (held >= 2)[placed_ring.tracks.track_of_observation]])
    np.testing.assert_allclose(np.sort(reprojection_errors(part)), same, rtol=1e-12)


def test_a_part_finds_the_distortion_of_all(placed_ring: Bundle) -> None:
    bent = placed_ring.intrinsics.copy()
    bent[:, K1] = -0.08
    error = placed_ring.tracks.xy - project(placed_ring)[0]
    tracks = replace(placed_ring.tracks, xy=project(replace(placed_ring, intrinsics=bent))[0] + error)
    seen = replace(placed_ring, tracks=tracks)
    limits = CameraModelOptions(trial_images=15)
    fitted, freedom, trials = select_camera_model(seen, replace(OPTIONS, camera_model=limits))
    whole, same, _ = select_camera_model(seen, OPTIONS)
    assert freedom.distortion and freedom == same and len(trials) > 1
    assert fitted.camera_model == whole.camera_model
    np.testing.assert_allclose(fitted.intrinsics[:, [FX, FY, CX, CY]], whole.intrinsics[:, [FX, FY, CX, CY]], atol=0.5)
    assert fitted.intrinsics[0, K1] == pytest.approx(-0.08, abs=0.003)


def test_many_sure_images_are_placed_at_a_time(placed_ring: Bundle, ring: Scene, ring_matches: Matches) -> None:
    images = {name: k for k, name in enumerate(info.name for info in ring_matches.images)}
    assert len(images) == 30
    pairs = PairAgreement({pair: (found.points_i, found.points_j) for pair, found in ring_matches.pairs.items()})
    core = np.ones(30, bool)
    core[[4, 9, 14, 19]] = False
    lost = placed_ring.cam_from_world.copy()
    lost[~core] = np.eye(4)
    start = replace(placed_ring, cam_from_world=lost)
    found = best_placements(start, core, pairs, OPTIONS.placement, 3)
    assert len(found) == 3 and len({p.image for p in found}) == 3 and not core[[p.image for p in found]].any()
    alone = best_placements(start, core, pairs, OPTIONS.placement, 1)
    assert [p.image for p in alone] == [found[0].image]
    few = best_placements(start, core, pairs, PlacementOptions(candidates=2), 1)  # those that see most come first
    seen = known_observations(start, core)
    assert few[0].image in sorted(np.flatnonzero(~core), key=lambda k: -len(seen[k]))[:2]
    assert place_by_points(start, core, few[0].image, seen[few[0].image], OPTIONS.placement) is not None
    rebuilt, placed = rebuild(start, core, pairs, Freedom(), OPTIONS)
    assert placed.all()
    rotation, _ = relative_errors_deg(rebuilt.cam_from_world, placed_ring.cam_from_world)
    assert rotation.max() < 0.2


def test_a_part_of_many_images_tells_which_field_of_view_to_grow_from(
    placed_ring: Bundle, ring_matches: Matches, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = PairAgreement({pair: (found.points_i, found.points_j) for pair, found in ring_matches.pairs.items()})
    nothing = replace(placed_ring, cam_from_world=np.tile(np.eye(4), (30, 1, 1)))
    sizes: list[int | None] = []

    def noted(*args, most=None):
        sizes.append(most)
        return rebuild(*args, most=most)

    monkeypatch.setattr("proba.refine.growing.rebuild", noted)
    options = replace(OPTIONS, growing=GrowOptions(trial_images=8))
    grown = grow(nothing, pairs, Freedom(), options, good=0.9)
    assert sizes == [8] * len(options.placement.fov_deg) + [None]
    rotation, _ = relative_errors_deg(grown.cam_from_world, placed_ring.cam_from_world)
    assert np.median(rotation) < 0.2


def run_away(bundle: Bundle, hinge: int, group: np.ndarray, factor: float) -> Bundle:
    """The images of a `group` and what they see, larger about the `hinge`, which sees it as before."""
    tracks = bundle.tracks
    owner, theirs = tracks.track_of_observation, np.isin(tracks.image, group)
    inside = theirs | (tracks.image == hinge)
    far = np.bincount(owner[theirs & bundle.alive], minlength=tracks.n_tracks) >= 2  # [T]
    alive = bundle.alive & np.where(far[owner], inside, ~theirs)
    pose = bundle.cam_from_world.copy()
    centre = -pose[hinge, :3, :3].T @ pose[hinge, :3, 3]
    for n in group:
        own = -pose[n, :3, :3].T @ pose[n, :3, 3]
        pose[n, :3, 3] = -pose[n, :3, :3] @ (centre + factor * (own - centre))
    xyz = np.where(far[:, None], centre + factor * (bundle.xyz - centre), bundle.xyz)
    moved = replace(bundle, cam_from_world=pose, xyz=xyz)
    return replace(moved, alive=alive & (reprojection_errors(moved) < 3))


@pytest.mark.parametrize(("factor", "goes"), [(1.0, False), (2.0, False), (10.0, True), (0.1, True)])
def test_a_group_that_ran_away_behind_a_hinge_is_not_placed(
    placed_ring: Bundle, ring_matches: Matches, factor: float, goes: bool
) -> None:
    pairs = PairAgreement({pair: (found.points_i, found.points_j) for pair, found in ring_matches.pairs.items()})
    hinge, group = 10, np.arange(11, 16)
    others = np.ones(30, bool)
    others[[hinge, *group]] = False
    bundle = run_away(placed_ring, hinge, group, factor)
    held = held_in_scale(bundle, np.ones(30, bool), pairs, OPTIONS.rescue.scale)
    assert held[others].all()
    assert not held[group].any() if goes else held.all()


def test_images_of_one_unknown_camera_are_placed_one_by_one(placed_ring: Bundle, ring_matches: Matches) -> None:
    pairs = PairAgreement({pair: (found.points_i, found.points_j) for pair, found in ring_matches.pairs.items()})
    core = np.ones(30, bool)
    core[[4, 9, 14]] = False
    two = replace(
        placed_ring,
        camera_of_image=np.where(core, 0, 1),
        camera_size=np.repeat(placed_ring.camera_size, 2, axis=0),
        intrinsics=np.repeat(placed_ring.intrinsics, 2, axis=0),
        camera_model=placed_ring.camera_model * 2,
        prior=np.repeat(placed_ring.prior, 2, axis=0),
        known_focal=np.full(2, np.nan),
    )
    assert len(best_placements(two, core, pairs, OPTIONS.placement, 3)) == 1
