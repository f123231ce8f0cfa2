"""Packing of matches and grouping of cameras."""

import numpy as np

from proba.graph import GraphOptions, build_view_graphs
from proba.matches import ImageInfo, Matches
from proba.solver import SolverOptions, make_problem
from proba.solver.options import value_at


def three_images(**sizes) -> Matches:
    infos = [
        ImageInfo(name="a/0.jpg", width=640, height=480, camera_key="x"),
        ImageInfo(name="a/1.jpg", width=640, height=480, camera_key="y"),
        ImageInfo(name="b/2.jpg", width=480, height=640, camera_key="x"),
    ]
    matches = Matches(infos)
    rng = np.random.default_rng(0)
    for i, j in ((0, 1), (1, 2), (0, 2)):
        matches.add(i, j, rng.uniform(0, 480, (50, 2)), rng.uniform(0, 480, (50, 2)))
    return matches


def test_normalised_coordinates_are_in_units_of_half_the_longest_side():
    matches = Matches([ImageInfo(name=str(k), width=200, height=100) for k in range(2)])
    matches.add(0, 1, [[100, 50], [200, 100], [0, 0]] * 10, [[100, 50], [200, 100], [0, 0]] * 10)
    graph = build_view_graphs(matches, GraphOptions(min_matches=1))[0][0]
    packed = make_problem(matches, graph, SolverOptions()).matches
    assert set(packed.x_i.tolist()) == {-1.0, 0.0, 1.0}
    assert set(packed.y_j.tolist()) == {-0.5, 0.0, 0.5}
    np.testing.assert_allclose(packed.extent, [[1, 0.5], [1, 0.5]])


def test_every_match_is_packed_with_its_partner():
    matches = three_images()
    graph = build_view_graphs(matches, GraphOptions(min_matches=1))[0][0]
    packed = make_problem(matches, graph, SolverOptions()).matches
    for e, (i, j) in enumerate(graph.edges):
        a, b = graph.images[i], graph.images[j]
        pair = matches.pairs[min(a, b), max(a, b)]
        points_i, points_j = (pair.points_i, pair.points_j) if a < b else (pair.points_j, pair.points_i)
        window = slice(packed.offset[e], packed.offset[e] + packed.count[e])
        got = {
            (
                round(float(x * 320 + matches.images[a].width / 2), 2),
                round(float(u * 320 + matches.images[b].width / 2), 2),
            )
            for x, u in zip(packed.x_i[window], packed.x_j[window], strict=True)
        }
        want = {(round(float(p[0]), 2), round(float(q[0]), 2)) for p, q in zip(points_i, points_j, strict=True)}
        assert len(got & want) > 0.9 * len(want)


def test_max_matches_bounds_an_edge():
    matches = three_images()
    graph = build_view_graphs(matches, GraphOptions(min_matches=1))[0][0]
    assert make_problem(matches, graph, SolverOptions(max_matches=7)).matches.count.tolist() == [7, 7, 7]


def test_schedule_steps():
    steps = ((0.0, 1.0), (0.5, 2.0))
    assert [value_at(steps, s) for s in (0.0, 0.49, 0.5, 1.0)] == [1.0, 1.0, 2.0, 2.0]
