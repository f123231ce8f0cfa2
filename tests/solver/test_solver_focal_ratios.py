"""Ratios of focal lengths before the solve."""

import numpy as np
import pytest

from proba.graph import GraphOptions, build_view_graphs
from proba.matches import Matches
from proba.solver import SolverOptions, make_problem
from proba.solver.focal_ratios import log_ratios
from proba.solver.hypotheses import portfolio
from proba.solver.two_view import common_log_tan, relative_log_tan
from proba.synthetic import make_scene, scene_matches

OWN = SolverOptions(share="none")
ZOOM = np.exp(np.linspace(-0.3, 0.3, 9)[[4, 0, 8, 2, 6, 1, 7, 3, 5]])


def zoomed(matches: Matches, zoom: np.ndarray) -> Matches:
    """The same photos with other focal lengths: enlarged about their centres, cut to the old size."""
    result = Matches(matches.images)
    for (i, j), pair in matches.pairs.items():
        ends = []
        for k, points in ((i, pair.points_i), (j, pair.points_j)):
            size = np.array([matches.images[k].width, matches.images[k].height])
            ends.append(((points - size / 2) * zoom[k] + size / 2, size))
        inside = np.all([(points >= 0) & (points <= size) for points, size in ends], axis=(0, 2))
        result.add(i, j, *(points[inside] for points, _ in ends))
    return result


def problem_of(zoom: np.ndarray, options: SolverOptions = OWN, outliers: float = 0.2):
    scene = make_scene("room", n_images=len(zoom), seed=0, fov_deg=60.0)
    matches = zoomed(scene_matches(scene, grid=32, outliers=outliers, noise_px=0.5, min_matches=20), zoom)
    graphs, _ = build_view_graphs(matches, GraphOptions(min_matches=10))
    assert len(graphs[0].images) == len(zoom)
    return make_problem(matches, graphs[0], options), zoom[graphs[0].images]


def test_ratios_of_zoomed_photos_are_found():
    problem, zoom = problem_of(ZOOM)
    common = common_log_tan(problem)
    error = relative_log_tan(problem, common) + np.log(zoom / np.median(zoom))
    assert np.median(np.abs(error)) < 0.02 and np.abs(error).max() < 0.1


def test_every_world_of_the_portfolio_starts_with_the_ratios_and_a_cold_one_without():
    problem, zoom = problem_of(ZOOM)
    for world in portfolio(problem, OWN):
        assert np.corrcoef(world.relative_log_tan, -np.log(zoom))[0, 1] > 0.95
    for world in portfolio(problem, SolverOptions(share="none", hypotheses="cold")):
        assert world.relative_log_tan is None


def test_one_camera_has_no_ratio():
    problem, _ = problem_of(np.ones(5), SolverOptions())
    assert problem.n_cameras == 1
    assert relative_log_tan(problem, -0.5).tolist() == [0.0]


@pytest.mark.parametrize("worth", [0.0, 1.0])
def test_edges_without_weight_say_nothing(worth):
    essential = np.array([[0.0, -0.3, 0.2], [0.3, 0.0, -1.0], [-0.2, 1.0, 0.0]])  # of a shift
    scale = np.array([2.0, 2.0, 1.0])  # a focal length of a half against one
    ratios = log_ratios(np.stack([essential * scale]), np.array([worth]), np.array([[0, 1]]), 2, 0.0)
    assert (np.ptp(ratios) > 0.3) == bool(worth)
    assert np.median(ratios) == pytest.approx(0)
