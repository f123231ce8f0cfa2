"""The history of a solve: what is kept, how it is aligned, and that keeping it changes nothing."""

import numpy as np
import pytest
import torch

from proba.errors import InputError
from proba.geometry.sim3 import Sim3
from proba.graph import build_view_graphs
from proba.history.evolution import blend, gentle_alignment, load_evolutions, save_evolutions
from proba.history.recorder import Recorder
from proba.solver import SolverOptions, solve_graph
from proba.synthetic import make_scene, scene_matches


@pytest.fixture(scope="module")
def evolution(result):
    return load_evolutions(result.folder / "evolution.npz")[0]


def rotation(angle: float, axis: int) -> np.ndarray:
    turned = np.roll(
        np.array([[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]]), axis, 0
    )
    return np.roll(turned, axis, 1)


def test_recording_does_not_change_a_bit():
    matches = scene_matches(make_scene("object", n_images=5, seed=1), seed=1)
    graph = build_view_graphs(matches)[0][0]
    recorder = Recorder()
    recorder.piece(0, 1, graph)
    options = SolverOptions(iterations=120)
    watched = solve_graph(matches, graph, options, callback=recorder.iteration).worlds.arrays()
    alone = solve_graph(matches, graph, options).worlds.arrays()
    assert watched.keys() == alone.keys()
    assert all(torch.equal(watched[name], alone[name]) for name in alone)


def test_history_begins_cold_and_ends_refined(result, evolution):
    rec = result.solved.best
    told = evolution.timeline(evolution.told)
    first, last = evolution.state(told[0]), evolution.state(told[-1])
    assert evolution.iteration[told[0]] == 0 and np.isnan(evolution.loss[told[-1]])
    assert np.ptp(first.world_from_cam[:, :3, 3], axis=0).max() < 1e-6  # all cameras in one place
    assert np.allclose(last.world_from_cam, rec.world_from_cam, atol=1e-5)
    assert np.allclose(first.sigma, first.sigma[0], rtol=1e-2)
    assert np.median(last.sigma) < 0.2 * np.median(first.sigma)


def test_frames_are_denser_early_and_few(evolution):
    iterations = evolution.iteration[evolution.timeline(evolution.told)][:-1]
    steps = np.diff(iterations)
    assert (steps > 0).all() and steps[0] < steps[-1]
    assert 8 <= len(iterations) <= 100


def test_every_world_has_an_ending(result, evolution):
    assert [w.name for w in evolution.worlds] == [h.name for h in result.solved.pieces[0].hypotheses]
    pruned = [k for k, w in enumerate(evolution.worlds) if w.pruned_at is not None]
    assert pruned and all(len(evolution.timeline(k)) == 1 for k in pruned)
    assert len(evolution.timeline(evolution.chosen)) > 2
    assert all(w.cold for w in evolution.worlds)


def test_last_frames_do_not_jump_to_the_result(evolution):
    told = evolution.timeline(evolution.told)
    before, after = evolution.points(told[-2]), evolution.points(told[-1])
    size = np.median(np.linalg.norm(after - np.median(after, axis=0), axis=1))
    assert np.median(np.linalg.norm(after - before, axis=1)) < 0.5 * size


def test_file_is_small_and_holds_what_was_saved(evolution, result, tmp_path):
    assert (result.folder / "evolution.npz").stat().st_size < 3e6
    save_evolutions(tmp_path / "copy.npz", [evolution, evolution])
    copies = load_evolutions(tmp_path / "copy.npz")
    assert len(copies) == 2 and copies[1].worlds == evolution.worlds
    assert np.array_equal(copies[1].log_depth, evolution.log_depth)


def test_damaged_file_is_refused_with_advice(tmp_path):
    (tmp_path / "evolution.npz").write_bytes(b"not a zip")
    with pytest.raises(InputError, match="run again"):
        load_evolutions(tmp_path / "evolution.npz")


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_alignment_finds_the_similarity_of_equal_shapes(axis):
    source = np.random.default_rng(axis).normal(size=(200, 3))
    truth = Sim3(2.5, rotation(0.3, axis), np.array([1.0, -2.0, 3.0]))
    found = gentle_alignment(source, truth.apply(source), scale=2.5, stiffness=1e-6)
    # The medians of a turned cloud are not the turned medians: near, not exact.
    assert np.allclose(found.rotation, truth.rotation, atol=0.05)
    assert np.allclose(found.apply(source), truth.apply(source), atol=0.8)


def test_alignment_of_unlike_shapes_stays_upright():
    rng = np.random.default_rng(0)
    found = gentle_alignment(rng.normal(size=(300, 3)), rng.normal(size=(300, 3)), scale=1.0)
    assert np.degrees(np.arccos((np.trace(found.rotation) - 1) / 2)) < 40
    assert np.linalg.det(found.rotation) == pytest.approx(1)


def test_blend_meets_its_ends(evolution):
    told = evolution.timeline(evolution.told)
    a, b = evolution.state(told[0]), evolution.state(told[5])
    assert np.allclose(blend(a, b, 0).points, a.points) and np.allclose(blend(a, b, 1).sigma, b.sigma)
    assert blend(a, b, 0.9).title == b.title
