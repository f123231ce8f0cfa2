"""Cameras that share no match: their pieces, and an image without any match, become one by the rig alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from proba.cameras import make_setup
from proba.evaluation import evaluate
from proba.geometry.sim3 import Sim3
from proba.graph import build_view_graphs
from proba.io.rig_files import load_rigs
from proba.matches import Matches
from proba.reconstruction import Camera, Points, Reconstruction
from proba.refine import Refinement
from proba.refine.known_world import given_solution
from proba.refine.rig_pieces import joined_pieces
from proba.rigs import RigOptions, with_rigs
from proba.synthetic import Scene, make_scene, on_rig, scene_matches, turned_cameras

N, LONE = 8, 5
WORLDS = Sim3(), Sim3(2.5, Rotation.from_rotvec([1.0, 0.4, -0.7]).as_matrix(), np.array([3.0, 1.0, -2.0]))


@pytest.fixture(scope="module")
def scene() -> Scene:
    sensors = turned_cameras([0.0, 75.0], [[0, 0, 0], [0.2, 0.0, 0.05]])
    return on_rig(make_scene("room", n_images=N, seed=1, fov_deg=40.0), sensors)


@pytest.fixture(scope="module")
def matches(scene) -> Matches:
    """Of each camera with itself, and none of one image."""
    found = scene_matches(scene, grid=16, noise_px=0.5, seed=0)
    pairs = {(i, j): m for (i, j), m in found.pairs.items() if (i < N) == (j < N) and LONE not in (i, j)}
    return replace(found, pairs=pairs)


def model(scene: Scene, images: np.ndarray, world: Sim3) -> Reconstruction:
    """What a solve of some images would leave, in a world of its own."""
    rng, empty = np.random.default_rng(0), np.zeros((0, 3))
    poses = world.apply_to_poses(scene.cam_from_world[images])
    poses[:, :3, :3] = Rotation.from_rotvec(rng.normal(0, 5e-4, (len(images), 3))).as_matrix() @ poses[:, :3, :3]
    none = np.zeros(0, int)
    return Reconstruction(
        image_names=[scene.image_names[k] for k in images],
        cameras=[Camera(model="PINHOLE", width=640, height=480, params=scene.intrinsics[0])],
        camera_of_image=np.zeros(len(images), int),
        cam_from_world=poses,
        pose_std=np.zeros((len(images), 6)),
        points=Points(xyz=empty, rgb=empty.astype(np.uint8), sigma=none, error_px=none, obs_point=none,
                      obs_image=none, obs_xy=np.zeros((0, 2), np.float32)),
    )  # fmt: skip


def test_pieces_and_a_single_image_are_joined_and_adjusted(scene, matches):
    rigs = load_rigs(RigOptions(cameras="folders"), matches.images)
    seen = with_rigs(matches, rigs)
    graphs, single = build_view_graphs(seen)
    assert sorted(len(graph.images) for graph in graphs) == [N - 1, N] and single == [LONE]
    pieces = [(graph, model(scene, graph.images, world)) for graph, world in zip(graphs, WORLDS, strict=True)]
    found = joined_pieces(seen, rigs, pieces, single)
    assert found.parts == (0, 1) and found.graph.images.tolist() == list(range(2 * N))
    assert found.known.posed.tolist() == [k != LONE for k in range(2 * N)]
    start = given_solution(seen, found.graph, make_setup(seen.images), found.known)
    refinement = Refinement(seen, found.graph, known=found.known, rigs=rigs, joined=True)
    result = refinement.finish(refinement.polish([start]))
    assert result.tied and not result.unplaced
    metrics = evaluate([result.reconstruction], scene.ground_truth(cloud=False))
    assert metrics["registered"] == 2 * N and metrics["rra@1"] == metrics["rta@1"] == 100
    std = result.reconstruction.pose_std
    assert np.isfinite(std).all() and std[LONE].max() < 0.2


def test_pieces_of_moments_apart_are_left_alone(scene, matches):
    names = [info.name if k < N else f"cam1/other{k}.png" for k, info in enumerate(matches.images)]
    names[N] = "cam1/000.png"
    renamed = replace(matches, images=[replace(i, name=n) for i, n in zip(matches.images, names, strict=True)])
    rigs = load_rigs(RigOptions(cameras="folders"), renamed.images)
    graphs, single = build_view_graphs(renamed)
    pieces = [(graph, model(scene, graph.images, world)) for graph, world in zip(graphs, WORLDS, strict=True)]
    assert joined_pieces(renamed, rigs, pieces, single) is None
