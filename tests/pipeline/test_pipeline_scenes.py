"""A folder with two places that look alike gives two models, whose cameras are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from proba.evaluation.poses import relative_errors_deg, relative_motions
from proba.matches import ImageInfo, Matches
from proba.pipeline import SolveResult, solve_matches
from proba.report import report_dict
from proba.scenes import SceneOptions
from proba.solve_options import SolveOptions
from proba.synthetic.layouts import look_at

PHOTOS = 7
"""Of each place."""
WIDTH, HEIGHT, FOCAL = 1000, 800, 900.0


def two_places(alike: float, *, seed: int = 0) -> tuple[Matches, np.ndarray]:
    """Matches of photos around two places, and the cameras in a frame where what looks alike is in one place.

    A share `alike` of the points of either place is the same in both; with 1 there is one place.
    """
    rng = np.random.default_rng(seed)
    xyz = rng.uniform([-1.5, -1, -1.5], [1.5, 1, 1.5], (1600, 3))
    kind = rng.random(len(xyz))
    turn = np.radians(np.concatenate([np.linspace(-30, 30, PHOTOS), np.linspace(-26, 34, PHOTOS)]))
    poses, seen, places = np.tile(np.eye(4), (2 * PHOTOS, 1, 1)), [], []
    for n, (pose, angle) in enumerate(zip(poses, turn, strict=True)):
        centre = np.array([5 * np.sin(angle), rng.normal(0, 0.3), -5 * np.cos(angle)])
        pose[:3, :3] = look_at(centre, np.zeros(3))
        pose[:3, 3] = -pose[:3, :3] @ centre
        camera = xyz @ pose[:3, :3].T + pose[:3, 3]
        xy = FOCAL * camera[:, :2] / camera[:, 2:] + [WIDTH / 2, HEIGHT / 2] + rng.normal(0, 0.4, (len(xyz), 2))
        own = (kind < (1 + alike) / 2) if n < PHOTOS else (kind >= (1 + alike) / 2)
        there = ((kind < alike) | own) & (rng.random(len(xyz)) < 0.6)
        seen.append(there & ((xy > 0) & (xy < [WIDTH, HEIGHT])).all(axis=1))
        places.append(xy)
    matches = Matches([ImageInfo(name=f"{n:02d}.png", width=WIDTH, height=HEIGHT) for n in range(2 * PHOTOS)])
    for i in range(2 * PHOTOS):
        for j in range(i + 1, 2 * PHOTOS):
            both = seen[i] & seen[j]
            if both.sum() >= 15:
                matches.add(i, j, places[i][both], places[j][both])
    return matches, poses


def solved(matches: Matches, **scenes: bool) -> SolveResult:
    options = SolveOptions()
    return solve_matches(matches, replace(options, scenes=replace(options.scenes, **scenes)))


def names(result: SolveResult) -> list[set[int]]:
    return [{int(name[:2]) for name in rec.image_names} for rec in result.reconstructions]


@pytest.fixture(scope="module")
def alike() -> tuple[Matches, np.ndarray]:
    return two_places(0.06)


def test_two_places_that_look_alike_become_two_models(alike):
    matches, poses = alike
    result = solved(matches)
    assert sorted(map(sorted, names(result))) == [list(range(PHOTOS)), list(range(PHOTOS, 2 * PHOTOS))]
    for rec in result.reconstructions:
        truth = poses[[int(name[:2]) for name in rec.image_names]]
        pairs = np.triu_indices(PHOTOS, 1)
        errors = relative_errors_deg(relative_motions(rec.cam_from_world, *pairs), relative_motions(truth, *pairs))
        assert max(error.max() for error in errors) < 3
    (separation,) = result.separations
    assert separation.seen < SceneOptions().most_shared * separation.expected
    report = report_dict(matches, result, SolveOptions())
    assert "Several scenes" in {check["topic"] for check in report["checks"] if check["level"] != "good"}
    assert len(report["separations"]) == 1


def test_they_stay_one_model_if_that_is_wanted(alike):
    result = solved(alike[0], enabled=False)
    assert names(result) == [set(range(2 * PHOTOS))]
    assert not result.separations


def test_one_place_is_one_model():
    result = solved(two_places(1.0)[0])
    assert names(result) == [set(range(2 * PHOTOS))]
    assert result.pieces[0].weakest is not None
    assert result.pieces[0].weakest.ratio > 0.8
