"""A set solved in clusters: poses as of the whole, clusters in the report, nothing lost on the way."""

import json
from dataclasses import replace

import numpy as np
import pytest
from dask_processes import Cluster

import proba
from proba.clusters import dividing
from proba.clusters.solving import FEWEST, cluster_payload, read_solved, solve_cluster
from proba.evaluation import evaluate
from proba.graph import ClusterOptions
from proba.io.reconstruction_folder import load_reconstruction
from proba.matches import ImageInfo, Matches
from proba.pipeline import Observer, SolveOptions
from proba.solver import SolverOptions
from proba.synthetic import make_scene, scene_matches
from proba.tasks import unpack

SCENE = make_scene("ring", n_images=24, seed=1, fov_deg=75.0)
OPTIONS = SolveOptions(
    clusters=ClusterOptions(count=2), solver=SolverOptions(iterations=300, hypotheses="cold"), longer=1
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("matches") / "matches.h5"
    proba.save_matches(path, scene_matches(SCENE, grid=16, outliers=0.05, seed=1))
    return path


@pytest.fixture(scope="module")
def matches(file) -> Matches:
    return proba.load_matches(file)


@pytest.fixture(scope="module")
def solved(matches, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clusters") / "result"
    return folder, proba.solve(matches, out=folder, options=OPTIONS, threads=1)


def test_poses_are_right_and_the_report_names_the_clusters(solved):
    folder, result = solved
    scores = evaluate(load_reconstruction(folder), SCENE.ground_truth(), cloud=False)
    assert scores["registered"] == 24 and scores["rra@5"] == 100 and scores["rta@5"] >= 95, scores
    report = json.loads((folder / "report.json").read_text())
    clusters = report["components"][0]["clusters"]
    assert len(clusters) == 2 and not any(cluster["voted_out"] for cluster in clusters)
    assert set.union(*(set(cluster["images"]) for cluster in clusters)) == set(SCENE.image_names)
    assert set.intersection(*(set(cluster["images"]) for cluster in clusters))
    assert report["choice"]["name"] == "clusters"
    assert "<h2>Clusters</h2>" in (folder / "report.html").read_text()
    assert result.pieces[0].clusters[0].level in ("good", "check", "distrust")


def test_what_the_clusters_left_is_refined_again_to_the_same_bits(solved, file, tmp_path):
    folder, result = solved
    again = proba.refine_folder(folder, matches=file, out=tmp_path / "again", threads=1)
    assert np.array_equal(again.best.cam_from_world, result.best.cam_from_world)
    assert again.pieces[0].clusters == result.pieces[0].clusters


def test_a_killed_run_goes_on_with_the_clusters_that_are_done(solved, matches, tmp_path, monkeypatch):
    _, result = solved
    done = []

    def dies(payload):
        if done:
            raise KeyboardInterrupt
        done.append(payload)
        return solve_cluster(payload)

    monkeypatch.setattr(dividing, "solve_cluster", dies)
    with pytest.raises(KeyboardInterrupt):
        proba.solve(matches, out=tmp_path, options=OPTIONS, threads=1)
    monkeypatch.setattr(dividing, "solve_cluster", lambda payload: done.append(payload) or solve_cluster(payload))
    again = proba.solve(matches, out=tmp_path, options=OPTIONS, threads=1, resume=True)
    assert len(done) == 2, "the first cluster is not solved twice"
    assert np.array_equal(again.best.cam_from_world, result.best.cam_from_world)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.slow
def test_two_workers_give_the_same_bits_though_one_is_killed(solved, matches, tmp_path):
    _, result = solved

    class Kill(Observer):
        def stage(self, text):
            if text.startswith("cluster 1 of 2"):
                workers.workers[0].kill()

    with Cluster(tmp_path, workers=2) as workers:
        found = proba.solve(matches, options=OPTIONS, threads=1, cluster=workers.address, observer=Kill())
    assert np.array_equal(found.best.cam_from_world, result.best.cam_from_world)


def test_a_cluster_is_the_images_and_the_matches_between_them(matches):
    members = np.array([3, 5, 6, 8])
    header, arrays = unpack(cluster_payload(matches, members, OPTIONS, 0))
    assert [info["name"] for info in header["images"]] == [matches.images[k].name for k in members]
    inside = {pair for pair in matches.pairs if set(pair) <= {3, 5, 6, 8}}
    assert {tuple(pair) for pair in arrays["pairs"].tolist()} == inside
    assert len(arrays["scores"]) == sum(len(matches.pairs[pair].scores) for pair in inside)


def test_a_cluster_without_geometry_is_told_and_does_not_stop_the_others():
    images = [ImageInfo(name=str(k), width=640, height=480) for k in range(4)]
    points = np.random.default_rng(0).uniform((20, 20), (620, 460), (100, 2))
    matches = Matches(images)
    for i, j in ((0, 1), (1, 2), (2, 3)):
        matches.add(i, j, points, points)
    solved = read_solved(solve_cluster(cluster_payload(matches, np.arange(4), OPTIONS, 0)))
    assert solved.parts == [] and solved.level == "distrust" and "camera hardly moved" in solved.text
    assert FEWEST == 3


def test_small_sets_are_not_divided_unless_asked(matches):
    graph = proba.build_view_graphs(matches)[0][0]
    divider = dividing.Dividing(engine=None)
    assert divider.wants(graph, OPTIONS)
    assert not divider.wants(graph, SolveOptions())
    assert not divider.wants(graph, replace(OPTIONS, clusters=ClusterOptions(count="off")))
