"""Worlds near the truth: a synthetic scene's solution with wrong poses, focal lengths and depths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from proba.cameras import CameraOptions, CameraSetup, make_setup
from proba.graph import ViewGraph, build_view_graphs
from proba.matches import Matches
from proba.refine.bundle import Bundle, bundle_from_solution, unit_px, unit_tracks
from proba.refine.tracks import build_tracks
from proba.refine.triangulate import points_from_depth_maps
from proba.solution import Solution
from proba.synthetic import Scene

MAP_SIDE = 8


def perturbed_solution(
    scene: Scene,
    matches: Matches,
    *,
    rotation_deg: float = 3.0,
    position: float = 0.05,
    focal_factor: float = 1.1,
    depth_noise: float = 0.15,
    seed: int = 0,
    shared: bool = True,
) -> Solution:
    """The truth with rotations, positions (in units of the cameras' spread), focals and depths disturbed."""
    rng = np.random.default_rng(seed)
    graph = build_view_graphs(matches)[0][0]
    n = graph.n_images
    poses = disturb_poses(scene.cam_from_world[graph.images], rotation_deg=rotation_deg, position=position, rng=rng)
    depth = np.stack([scene.depth_map(int(k), MAP_SIDE, MAP_SIDE) for k in graph.images])
    depth = np.where(np.isfinite(depth), depth, np.median(depth[np.isfinite(depth)]))
    spread_focal = np.ones((n, 1)) if shared else np.exp(rng.normal(0, 0.03, (n, 1)))
    return Solution(
        graph=graph,
        name=f"seed{seed}",
        loss=0.0,
        epipolar_share=1.0,
        cam_from_world=poses,
        cameras=plain_cameras(matches, graph, share="all" if shared else "none"),
        focal_px=scene.intrinsics[graph.images][:, [0, 0]] * focal_factor * spread_focal,
        log_depth=(np.log(depth) + rng.normal(0, depth_noise, depth.shape)).astype(np.float32),
        log_variance=np.zeros((n, MAP_SIDE, MAP_SIDE), np.float32),
        edge_weight=np.ones(graph.n_edges, np.float32),
    )


def plain_cameras(matches: Matches, graph: ViewGraph, **options) -> CameraSetup:
    """Nothing known but which images share a camera; those that do not name theirs share it by size alone."""
    infos = [matches.images[k] for k in graph.images]
    nameless = np.array([not info.camera_key for info in infos])
    return replace(make_setup(infos, CameraOptions(**options)), by_size_alone=nameless)


def exact_bundle(scene: Scene, matches: Matches) -> Bundle:
    """The exact cameras of a scene, with points at the depths of the maps."""
    exact = perturbed_solution(scene, matches, rotation_deg=0, position=0, focal_factor=1, depth_noise=0)
    tracks = unit_tracks(build_tracks(matches, exact.graph), unit_px(matches, exact.graph))
    return points_from_depth_maps(bundle_from_solution(matches, exact, tracks), exact.log_depth)


def disturb_poses(
    cam_from_world: np.ndarray, *, rotation_deg: float, position: float, rng: np.random.Generator
) -> np.ndarray:
    """Poses [N, 4, 4] with random turns and shifts (in units of the cameras' spread)."""
    n = len(cam_from_world)
    turn = Rotation.from_rotvec(rng.normal(0, np.radians(rotation_deg) / np.sqrt(3), (n, 3))).as_matrix()
    centres = -np.einsum("nji,nj->ni", cam_from_world[:, :3, :3], cam_from_world[:, :3, 3])
    spread = np.linalg.norm(centres - centres.mean(axis=0), axis=1).mean()
    moved = centres + rng.normal(0, position * spread, (n, 3))
    poses = np.tile(np.eye(4), (n, 1, 1))
    poses[:, :3, :3] = turn @ cam_from_world[:, :3, :3]
    poses[:, :3, 3] = -np.einsum("nij,nj->ni", poses[:, :3, :3], moved)
    return poses


def relative_errors_deg(estimate: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotation and translation angles [pairs] between the relative poses of two sets [N, 4, 4]."""
    i, j = np.triu_indices(len(truth), 1)
    a, b = (poses[i] @ np.linalg.inv(poses[j]) for poses in (estimate, truth))
    cosine = (np.einsum("nij,nij->n", a[:, :3, :3], b[:, :3, :3]) - 1) / 2
    shift_a, shift_b = (v[:, :3, 3] / np.linalg.norm(v[:, :3, 3], axis=1, keepdims=True) for v in (a, b))
    rotation = np.arccos(np.clip(cosine, -1, 1))
    translation = np.arccos(np.clip((shift_a * shift_b).sum(axis=1), -1, 1))
    return np.degrees(rotation), np.degrees(translation)
