"""What the solver hands to the refinement comes back from disk as it was."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from proba.cameras import CameraSetup
from proba.errors import InputError
from proba.graph import ViewGraph, build_view_graphs
from proba.io.solver_folder import SOLVER_FOLDER, SolverFolder, hash_of, open_solver_folder
from proba.matches import Matches
from proba.solution import Hypothesis, Solution, SolverRun
from proba.synthetic import make_scene, scene_matches


@pytest.fixture(scope="module")
def matches() -> Matches:
    return scene_matches(make_scene("object", n_images=4, seed=0), grid=8, seed=0)


CAMERAS = CameraSetup(
    camera_of_image=np.array([0, 0, 1, 0]),
    known_focal_px=np.array([np.nan, 900.0]),
    focal_sigma=0.1,
    by_size_alone=np.array([True, True, False, True]),
)


def some_run(matches: Matches, seed: int = 0) -> SolverRun:
    rng, graph = np.random.default_rng(seed), build_view_graphs(matches)[0][0]
    n = graph.n_images
    solutions = [
        Solution(
            graph=graph,
            name=name,
            loss=float(rng.normal()),
            epipolar_share=float(rng.random()),
            cam_from_world=rng.normal(size=(n, 4, 4)),
            cameras=CAMERAS,
            focal_px=rng.normal(size=(n, 2)),
            log_depth=rng.normal(size=(n, 8, 8)).astype(np.float32),
            log_variance=rng.normal(size=(n, 8, 8)).astype(np.float32),
            edge_weight=rng.random(graph.n_edges).astype(np.float32),
        )
        for name in ("fov50", "two-view")
    ]
    hypotheses = [Hypothesis(name="fov50", loss=1.5, pruned_at=None, epipolar_share=0.5, curve=[(10, 2.0), (20, 1.5)])]
    return SolverRun(solutions=solutions, hypotheses=hypotheses, iterations=20, interrupted=False, seconds=1.0)


def started(path: Path, matches: Matches, settings: dict | None = None) -> SolverFolder:
    folder = SolverFolder(
        path=path / SOLVER_FOLDER,
        matches_hash=hash_of(matches),
        settings=settings or {"steps": [(0.1, 2)]},
        unmatched=["alone.jpg"],
        pieces=2,
    )
    folder.start()
    return folder


def assert_same(a: object, b: object) -> None:
    for field in fields(a):  # type: ignore[arg-type]
        mine, other = getattr(a, field.name), getattr(b, field.name)
        if isinstance(mine, (ViewGraph, CameraSetup)):
            assert_same(mine, other)
        elif isinstance(mine, np.ndarray):
            assert mine.dtype == other.dtype and np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f"), (
                field.name
            )
        else:
            assert mine == other, field.name


def test_a_run_comes_back_bit_for_bit(tmp_path: Path, matches: Matches) -> None:
    run = some_run(matches)
    started(tmp_path, matches).save(0, 0, run)
    folder = open_solver_folder(tmp_path)
    back = folder.load(0)
    assert back is not None and folder.load(0, attempt=1) is None and folder.load(1) is None
    for mine, other in zip(run.solutions, back.solutions, strict=True):
        assert_same(mine, other)
    assert (back.hypotheses, back.iterations, back.interrupted) == (run.hypotheses, 20, False)
    assert folder.unmatched == ["alone.jpg"] and folder.matches_hash == hash_of(matches)


def test_files_of_an_earlier_run_with_other_settings_do_not_count(tmp_path: Path, matches: Matches) -> None:
    started(tmp_path, matches, {"seed": 0}).save(0, 0, some_run(matches))
    assert started(tmp_path, matches, {"seed": 1}).load(0) is None


def test_other_matches_have_another_hash(matches: Matches) -> None:
    pair, found = next(iter(matches.pairs.items()))
    moved = Matches(images=matches.images, pairs={**matches.pairs, pair: found._replace(points_i=found.points_i + 1)})
    assert hash_of(moved) != hash_of(matches)


@pytest.mark.parametrize("damage", ["run.json", "piece0.npz"])
def test_damaged_files_are_refused_in_one_line(tmp_path: Path, matches: Matches, damage: str) -> None:
    started(tmp_path, matches).save(0, 0, some_run(matches))
    file = tmp_path / SOLVER_FOLDER / damage
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(InputError, match="damaged"):
        open_solver_folder(tmp_path).load(0)


def test_a_folder_without_a_solve_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="proba solve"):
        open_solver_folder(tmp_path)
