"""Each stage of the refinement by itself: state in, state out."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from perturbed_world import perturbed_solution, relative_errors_deg

from proba.matches import Matches
from proba.refine import (
    AdjustOptions,
    AgreementOptions,
    CameraModelOptions,
    GrowOptions,
    NoteOptions,
    PixelOptions,
    RefineOptions,
    RescueOptions,
    SeparateOptions,
    TrackOptions,
    UncertaintyOptions,
    WorldOptions,
)
from proba.refine.agreement import explained
from proba.refine.assemble import assemble
from proba.refine.bundle import FX, unit_px
from proba.refine.camera_model import choose_camera_model
from proba.refine.final import adjust_finally, estimate_uncertainty, place_points
from proba.refine.growing import grow_cameras, worth_growing
from proba.refine.pixels import sharpen, worth_sharpening
from proba.refine.rescue import rescue_images
from proba.refine.separate import better_apart, separate_cameras
from proba.refine.state import Observations, State, first_state, judged_pairs, observed_tracks
from proba.refine.worlds import polish_worlds
from proba.solution import Solution
from proba.synthetic import Scene

FAST = RefineOptions(tracks=TrackOptions(adjusted=800, final=1000, points=1200))


def observe(matches: Matches, solution: Solution, options: RefineOptions = FAST) -> Observations:
    return Observations(
        matches=matches,
        graph=solution.graph,
        tracks=observed_tracks(matches, solution.graph, options.tracks),
        unit_px=unit_px(matches, solution.graph),
        pairs=judged_pairs(matches, solution.graph, options.pairs, seed=0),
        options=options.tracks,
        seed=0,
    )


@pytest.fixture(scope="module")
def solution(room: Scene, room_matches: Matches) -> Solution:
    return perturbed_solution(room, room_matches, rotation_deg=1, position=0.02)


@pytest.fixture(scope="module")
def observations(room_matches: Matches, solution: Solution) -> Observations:
    return observe(room_matches, solution)


@pytest.fixture(scope="module")
def start(observations: Observations, solution: Solution) -> State:
    return first_state(observations, polish_worlds(observations, [solution], FAST), FAST)


def with_options(state: State, **changed: object) -> State:
    return replace(state, options=replace(state.options, **changed))


def misplaced(state: State, image: int) -> State:
    poses = state.bundle.cam_from_world.copy()
    poses[image] = np.diag([-1.0, 1.0, -1.0, 1.0]) @ poses[image]
    return replace(state, bundle=replace(state.bundle, cam_from_world=poses))


def test_tracks_need_a_few_matches(room_matches: Matches, solution: Solution) -> None:
    tracks = observed_tracks(room_matches, solution.graph, FAST.tracks)
    assert (tracks.length >= 2).all() and tracks.n_tracks > 500
    with pytest.raises(Exception, match="overlap"):
        observed_tracks(room_matches, solution.graph, replace(FAST.tracks, fewest=tracks.n_tracks + 1))


def test_pairs_say_how_much_they_could_explain(observations: Observations, room_matches: Matches) -> None:
    assert 0.9 < observations.pairs.explainable <= 1
    strict = AgreementOptions(min_matches=10**6)
    assert judged_pairs(room_matches, observations.graph, strict, seed=0).explainable == 0


def test_worlds_that_are_one_confirm_each_other(
    observations: Observations, room: Scene, room_matches: Matches, solution: Solution
) -> None:
    twin = perturbed_solution(room, room_matches, rotation_deg=1, seed=1)
    doubting = replace(FAST, worlds=WorldOptions(good_share=1.1))
    alone = polish_worlds(observations, [solution], doubting)
    assert not alone.settled
    both = polish_worlds(observations, [twin], doubting, alone)
    assert both.confirmed and not both.good and [w.report.attempt for w in both.worlds] == [0, 1]
    assert polish_worlds(observations, [solution], FAST).good


def test_the_first_state_is_the_best_world(start: State) -> None:
    assert start.chosen == start.choice.best.report and start.placed is None and not start.trials
    assert start.freedom.focal and not start.freedom.principal_point


def test_rescue_places_a_misplaced_image_by_the_others(start: State) -> None:
    wrong = misplaced(start, 2)
    rescued = rescue_images(wrong)
    assert rescued.placed_anew.nonzero()[0].tolist() == [2] and not rescued.unplaced.any()
    assert explained(rescued.bundle, start.observations.pairs) > explained(wrong.bundle, start.observations.pairs) + 0.1
    assert wrong.placed_anew.sum() == 0  # a stage leaves the state before it alone
    off = rescue_images(with_options(wrong, rescue=RescueOptions(rounds=0)))
    assert off.bundle is wrong.bundle


def test_separate_cameras_only_for_doubtful_images(start: State) -> None:
    assert separate_cameras(start).apart is None  # the images name their camera
    cameras = replace(start.solution.cameras, by_size_alone=np.ones(start.bundle.n_images, bool))
    doubtful = replace(start, solution=replace(start.solution, cameras=cameras))
    apart = separate_cameras(doubtful).apart
    assert apart is not None and apart.bundle.n_cameras == apart.bundle.n_images
    assert not better_apart(start.bundle, apart.bundle, start.observations.pairs, FAST)
    assert separate_cameras(with_options(doubtful, separate=SeparateOptions(enabled=False))).apart is None


def test_growing_replaces_a_lost_world_under_its_own_name(room: Scene, room_matches: Matches) -> None:
    lost = perturbed_solution(room, room_matches, rotation_deg=90, position=2.0, focal_factor=1.7, depth_noise=1.0)
    observations = observe(room_matches, lost)
    state = first_state(observations, polish_worlds(observations, [lost], FAST), FAST)
    assert worth_growing(state)
    assert not worth_growing(with_options(state, growing=GrowOptions(enabled=False)))
    grown = grow_cameras(state)
    assert grown.chosen.name == "grown" and [report.name for report in grown.reports] == [lost.name, "grown"]
    rotation, _ = relative_errors_deg(grown.bundle.cam_from_world, room.cam_from_world[lost.graph.images])
    assert rotation.max() < 1
    kept = grow_cameras(with_options(state, growing=GrowOptions(clear_gain=2.0)))
    assert kept.chosen == state.chosen and kept.reports[-1].name == "grown" and kept.bundle is state.bundle


def test_the_camera_model_can_be_held(start: State) -> None:
    plain = choose_camera_model(
        with_options(start, camera_model=CameraModelOptions(principal_point="centre", distortion="none"))
    )
    assert plain.trials == () and plain.bundle.camera_model == ["SIMPLE_PINHOLE"]
    free = choose_camera_model(start)
    assert free.trials and free.freedom.principal_point  # eight images get all of it, with priors


def test_pixels_are_asked_only_where_matches_are_coarse(start: State) -> None:
    assert worth_sharpening(start)  # the noise of these matches is 0.6 px
    assert not worth_sharpening(with_options(start, pixels=PixelOptions(coarse_px=5.0)))
    assert not worth_sharpening(with_options(start, pixels=PixelOptions(enabled=False)))

    def missing(name: str) -> np.ndarray:
        raise FileNotFoundError(name)

    assert sharpen(start, missing) is start


def test_final_stages_make_a_reconstruction(start: State, room: Scene) -> None:
    final = adjust_finally(start)
    assert np.allclose(final.bundle.cam_from_world[final.observations.graph.root], np.eye(4))
    cloud = place_points(final)
    assert cloud.bundle.tracks.n_tracks == cloud.tracks.n_tracks <= 1200
    assert cloud.free[:, FX].all()
    cameras, sigma = estimate_uncertainty(final, cloud)
    assert len(sigma) == cloud.tracks.n_tracks
    result = assemble(final, cloud, cameras, sigma)
    rotation, translation = relative_errors_deg(
        result.cam_from_world, room.cam_from_world[final.observations.graph.images]
    )
    assert rotation.max() < 1 and translation.max() < 1 and not result.notes
    warned = assemble(with_options(final, notes=NoteOptions(max_focal_std=0.0)), cloud, cameras, sigma)
    assert [note.kind for note in warned.notes] == ["focal not observed"]
    unplaced = replace(final, unplaced=np.arange(room.n_images) == 3)
    assert assemble(unplaced, cloud, cameras, sigma).notes[-1].images == (room.image_names[3],)


def test_options_of_the_adjustment_reach_it(start: State) -> None:
    narrow = AdjustOptions(keep_px=(0.5, 0.5), keep_per_noise=0.1)
    kept = [place_points(with_options(start, adjust=adjust)).bundle.share for adjust in (FAST.adjust, narrow)]
    assert kept[1] < 0.7 * kept[0]
    cloud = place_points(start)
    one_cell = with_options(start, uncertainty=UncertaintyOptions(cells=1))
    assert (estimate_uncertainty(one_cell, cloud)[0].intrinsics_wider == 1).all()  # nothing to disagree with


def test_every_threshold_says_what_it_is() -> None:
    """Option fields have a docstring below them, which the commands show."""
    import ast
    from pathlib import Path

    import proba.refine.options as module

    source = Path(module.__file__).read_text(encoding="utf-8")
    bare = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            for field, text in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign) and not isinstance(text, ast.Expr):
                    bare.append(f"{node.name}.{field.target.id}")  # type: ignore[union-attr]
    nested = {f"RefineOptions.{f.name}" for f in fields(RefineOptions) if is_dataclass(getattr(FAST, f.name))}
    assert set(bare) <= nested
