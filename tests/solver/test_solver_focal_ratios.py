"""Ratios of focal lengths before the solve."""

from dataclasses import replace

import numpy as np
import pytest

from proba.cameras import CameraOptions, make_setup
from proba.graph import GraphOptions, build_view_graphs
from proba.matches import Matches
from proba.solver import SolverOptions, make_problem
from proba.solver.focal_ratios import bounded_ratios, log_focals
from proba.solver.hypotheses import portfolio
from proba.solver.two_view import estimate_log_tan
from proba.synthetic import make_scene, scene_matches

OWN = CameraOptions(share="none")
ZOOM = np.exp(np.linspace(-0.3, 0.3, 9)[[4, 0, 8, 2, 6, 1, 7, 3, 5]])


def zoomed(matches: Matches, zoom: np.ndarray) -> Matches:
    """The same photos with other focal lengths: enlarged about their centres, cut to the old size."""
    result = Matches(list(matches.images))
    for (i, j), pair in matches.pairs.items():
        ends = []
        for k, points in ((i, pair.points_i), (j, pair.points_j)):
            size = np.array([matches.images[k].width, matches.images[k].height])
            ends.append(((points - size / 2) * zoom[k] + size / 2, size))
        inside = np.all([(points >= 0) & (points <= size) for points, size in ends], axis=(0, 2))
        result.add(i, j, *(points[inside] for points, _ in ends))
    return result


def problem_of(zoom: np.ndarray, options: CameraOptions = OWN, known: int = 0):
    scene = make_scene("room", n_images=len(zoom), seed=0, fov_deg=60.0)
    matches = zoomed(scene_matches(scene, grid=32, outliers=0.2, noise_px=0.5, min_matches=20), zoom)
    for k in range(known):
        matches.images[k] = replace(matches.images[k], focal_px=scene.intrinsics[k, 0] * zoom[k])
    graphs, _ = build_view_graphs(matches, GraphOptions(min_matches=10))
    assert len(graphs[0].images) == len(zoom)
    cameras = make_setup([matches.images[k] for k in graphs[0].images], options)
    return make_problem(matches, graphs[0], SolverOptions(), cameras=cameras), zoom[graphs[0].images]


def test_ratios_of_zoomed_photos_are_found():
    problem, zoom = problem_of(ZOOM)
    _, relative = estimate_log_tan(problem)
    error = relative + np.log(zoom / np.median(zoom))
    assert np.median(np.abs(error)) < 0.02 and np.abs(error).max() < 0.1


def test_every_world_of_the_portfolio_starts_with_the_ratios_and_a_cold_one_without():
    problem, zoom = problem_of(ZOOM)
    for world in portfolio(problem, SolverOptions()):
        assert np.corrcoef(world.relative_log_tan, -np.log(zoom))[0, 1] > 0.95
    for world in portfolio(problem, SolverOptions(hypotheses="cold")):
        assert world.relative_log_tan is None


def test_one_camera_has_no_ratio():
    problem, _ = problem_of(np.ones(5), CameraOptions())
    assert problem.n_cameras == 1
    assert estimate_log_tan(problem)[1].tolist() == [0.0]


@pytest.mark.parametrize("worth", [0.0, 1.0])
def test_edges_without_weight_say_nothing(worth):
    essential = np.array([[0.0, -0.3, 0.2], [0.3, 0.0, -1.0], [-0.2, 1.0, 0.0]])  # of a shift
    scale = np.array([2.0, 2.0, 1.0])  # a focal length of a half against one
    start, unknown = np.zeros(2), np.zeros(2, bool)
    values = log_focals(np.stack([essential * scale]), np.array([worth]), np.array([[0, 1]]), start, unknown)
    ratios = bounded_ratios(values)
    assert (np.ptp(ratios) > 0.3) == bool(worth)
    assert np.median(ratios) == pytest.approx(0)


def test_known_cameras_tell_the_others_their_focal_lengths():
    problem, zoom = problem_of(ZOOM, CameraOptions(share="none", focal="fixed"), known=4)
    known = problem.cameras.known
    assert known.sum() == 4
    common, relative = estimate_log_tan(problem)
    error = common + relative - np.log(np.tan(np.radians(30)) / zoom)  # [C]
    assert np.abs(error[known]).max() < 1e-6
    assert np.median(np.abs(error[~known])) < 0.03
    assert np.median(relative[~known]) == pytest.approx(0)
