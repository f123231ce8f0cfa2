"""The history that is kept belongs to the search that the result comes from."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from proba.graph import build_view_graphs
from proba.history.evolution import load_evolutions
from proba.history.recorder import Recorder
from proba.pipeline import SolveOptions, solve_matches
from proba.refine import RefineOptions, WorldOptions
from proba.solution import Hypothesis
from proba.solver import SolverOptions, solve_graph
from proba.synthetic import make_scene, scene_matches

ITERATIONS = (40, 80)
"""Of the first search and of the longer one."""


@pytest.fixture(scope="module")
def solved():
    """Matches, and the finished piece of a short solve."""
    matches = scene_matches(make_scene("object", n_images=4, seed=0), grid=24, seed=0)
    options = SolveOptions(solver=SolverOptions(iterations=ITERATIONS[0]), longer=1)
    return matches, solve_matches(matches, options).pieces[0]


@pytest.fixture
def recorder(solved):
    """One that watched both searches."""
    matches, _ = solved
    recorder = Recorder()
    graph = build_view_graphs(matches)[0][0]
    recorder.piece(0, 1, graph)
    for attempt, iterations in enumerate(ITERATIONS):
        recorder.attempt(attempt)
        solve_graph(matches, graph, SolverOptions(iterations=iterations), callback=recorder.iteration)
    return recorder


@pytest.mark.parametrize("attempt", [0, 1])
def test_history_is_that_of_the_search_that_won(solved, recorder, attempt):
    recorder.solved(replace(solved[1], attempt=attempt))
    (evolution,) = recorder.evolutions
    told = evolution.iteration[evolution.timeline(evolution.told)]
    assert told[0] == 0 and told[-1] == ITERATIONS[attempt]
    assert (np.diff(told) >= 0).all()


def test_a_search_that_nobody_saw_leaves_no_history(solved, tmp_path):
    """The first search was finished in an earlier run, and its result is taken."""
    matches, piece = solved
    recorder = Recorder()
    graph = build_view_graphs(matches)[0][0]
    recorder.piece(0, 1, graph)
    recorder.attempt(0)
    recorder.attempt(1)
    solve_graph(matches, graph, SolverOptions(iterations=ITERATIONS[1]), callback=recorder.iteration)
    recorder.solved(piece)
    assert recorder.evolutions == []
    recorder.written(tmp_path)
    assert load_evolutions(tmp_path / "evolution.npz") == []


def test_a_world_that_the_refinement_grew_follows_the_best_search(solved, recorder, tmp_path):
    piece = solved[1]
    grown = Hypothesis(
        name="grown", loss=None, chosen=True, pruned_at=None, epipolar_share=None, explained_share=0.9, curve=()
    )
    others = [replace(hypothesis, chosen=False) for hypothesis in piece.hypotheses]
    recorder.solved(replace(piece, hypotheses=[*others, grown]))
    recorder.written(tmp_path)
    (evolution,) = load_evolutions(tmp_path / "evolution.npz")
    assert evolution.worlds[evolution.chosen].name == "grown"
    told = evolution.timeline(evolution.told)
    assert evolution.worlds[evolution.told].cold and len(told) > 2
    assert evolution.title(told[-1]).startswith("refined, from grown")
    assert len(evolution.timeline(evolution.chosen)) == 1


def test_a_solve_that_starts_again_tells_its_observers(tmp_path):
    matches = scene_matches(make_scene("object", n_images=4, seed=0), grid=24, seed=0)
    never_sure = RefineOptions(worlds=WorldOptions(good_share=1.1, most=1))
    options = SolveOptions(solver=SolverOptions(iterations=100), refine=never_sure)
    recorder = Recorder()
    (piece,) = solve_matches(matches, options, observer=recorder).pieces
    assert piece.iterations == (100, 200)[piece.attempt]
    assert recorder.evolutions[0].iteration.max() == piece.iterations


def test_a_search_that_was_killed_keeps_its_beginning(solved, recorder, tmp_path):
    """Resumed at any checkpoint, also that of the last iteration: the history of a search that nobody disturbed."""
    matches, piece = solved
    graph = build_view_graphs(matches)[0][0]
    checkpoint, options = tmp_path / "piece0.npz", SolverOptions(iterations=ITERATIONS[0], checkpoint_seconds=0)

    def watched(*, resume: bool) -> Recorder:
        watcher = Recorder()
        watcher.piece(0, 1, graph)
        watcher.attempt(0)
        calls = {"callback": watcher.iteration, "saving": watcher.saving, "resumed": watcher.resumed}
        solve_graph(matches, graph, options, checkpoint=checkpoint, resume=resume, **calls)
        watcher.solved(piece)
        return watcher

    watched(resume=False)
    (again,) = watched(resume=True).evolutions
    recorder.solved(piece)
    (whole,) = recorder.evolutions
    for name in ("world", "iteration", "loss", "cam_from_world", "tan", "edge_weight", "log_depth", "log_sigma"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_search_that_was_killed_before_a_checkpoint_was_written_keeps_its_film(solved, tmp_path, nth):
    """The notes are then ahead of the checkpoint."""
    matches, piece = solved
    graph = build_view_graphs(matches)[0][0]
    options = SolverOptions(iterations=120, checkpoint_seconds=0)  # three checkpoints

    def watched(name: str, *, resume: bool = False, killed: bool = False) -> Recorder:
        watcher, files = Recorder(), []
        watcher.piece(0, 1, graph)

        def saving(file):
            watcher.saving(file)
            files.append(file)
            if killed and len(files) == nth:
                raise MemoryError  # as good as any other end

        calls = {"callback": watcher.iteration, "saving": saving, "resumed": watcher.resumed}
        with pytest.raises(MemoryError) if killed else nullcontext():
            solve_graph(matches, graph, options, checkpoint=tmp_path / name, resume=resume, **calls)
        watcher.solved(piece)
        return watcher

    (whole,) = watched("whole.npz").evolutions
    watched("killed.npz", killed=True)
    (again,) = watched("killed.npz", resume=True).evolutions
    for name in ("world", "iteration", "loss", "cam_from_world", "log_depth"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))


def test_damaged_notes_of_a_killed_search_cost_only_the_film(solved, tmp_path):
    matches, piece = solved
    graph = build_view_graphs(matches)[0][0]
    checkpoint, options = tmp_path / "piece0.npz", SolverOptions(iterations=ITERATIONS[0], checkpoint_seconds=0)
    solve_graph(matches, graph, options, checkpoint=checkpoint)
    (tmp_path / "piece0-evolution.npz").write_bytes(b"PK")
    recorder = Recorder()
    recorder.piece(0, 1, graph)
    with pytest.warns(UserWarning, match="cannot be read"):
        solve_graph(matches, graph, options, checkpoint=checkpoint, resume=True, resumed=recorder.resumed)
    recorder.solved(piece)
    assert recorder.evolutions == []
