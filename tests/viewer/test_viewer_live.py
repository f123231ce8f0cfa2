"""A solve shown while it runs."""

import numpy as np
import torch

from proba.graph import build_view_graphs
from proba.solver import SolverOptions, solve_graph
from proba.synthetic import make_scene, scene_matches
from proba.viewer import live
from proba.viewer.server import Viewer


def test_live_view_follows_the_solve_and_does_not_disturb_it(monkeypatch):
    monkeypatch.setattr(live, "SECONDS_BETWEEN", 0.0)
    matches = scene_matches(make_scene("object", n_images=4, seed=2), seed=2)
    graph = build_view_graphs(matches)[0][0]
    options = SolverOptions(iterations=60, hypotheses="cold")
    viewer = Viewer(port=18_497)
    try:
        view = live.LiveView(viewer)
        view.piece(0, 1, graph)
        places = []

        def look(progress):
            view.iteration(progress)
            places.append([np.array(camera.position) for camera in view._stage.cameras])

        watched = solve_graph(matches, graph, options, callback=look).worlds.arrays()
        assert np.ptp(places[0], axis=0).max() == 0  # a cold start
        assert np.ptp(places[-1], axis=0).max() > 0.01
        assert "iteration 60 of 60" in view._text.content
        view.stage("refining")
        assert view._text.content == "refining ..."
    finally:
        viewer.stop()
    alone = solve_graph(matches, graph, options).worlds.arrays()
    assert all(torch.equal(watched[name], alone[name]) for name in alone)
