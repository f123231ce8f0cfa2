"""A result folder made by hand in no time: the true cameras of a synthetic scene and an invented history."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from proba.history.evolution import EVOLUTION_FILE, Evolution, WorldHistory, save_evolutions
from proba.io.ground_truth import save_ground_truth
from proba.io.reconstruction_folder import save_reconstruction
from proba.reconstruction import Camera, Edge, Points, Reconstruction
from proba.synthetic import make_scene

N_IMAGES, N_POINTS, N_FRAMES = 4, 60, 5


def write_small_result(folder: Path, *, history: bool = True) -> Path:
    """Writes DIR and DIR/gt.json; returns DIR."""
    truth = make_scene("object", n_images=N_IMAGES, seed=0).ground_truth()
    rng = np.random.default_rng(0)
    fx, _, cx, cy = truth.intrinsics[0]
    camera = Camera(
        model="SIMPLE_PINHOLE",
        width=int(truth.width[0]),
        height=int(truth.height[0]),
        params=np.array([fx, cx, cy]),
        focal_std_px=1.5,
    )
    focus = truth.centres.mean(0) + 2 * np.linalg.inv(truth.cam_from_world)[:, :3, 2].mean(0)
    points = Points(
        xyz=focus + 0.5 * rng.normal(size=(N_POINTS, 3)),
        rgb=rng.integers(0, 255, (N_POINTS, 3)).astype(np.uint8),
        sigma=rng.uniform(0.01, 0.1, N_POINTS),
        error_px=np.ones(N_POINTS),
        obs_point=np.repeat(np.arange(N_POINTS), 2),
        obs_image=np.tile([0, 1], N_POINTS),
        obs_xy=rng.uniform(10, 400, (2 * N_POINTS, 2)).astype(np.float32),
    )
    names = truth.names
    rec = Reconstruction(
        image_names=names,
        cameras=[camera],
        camera_of_image=np.zeros(N_IMAGES, int),
        cam_from_world=truth.cam_from_world,
        pose_std=np.full((N_IMAGES, 6), 0.01),
        points=points,
        edges=[
            Edge(i=names[k], j=names[k + 1], matches=10, weight=0.5, explainable=1.0, explained=1.0)
            for k in range(N_IMAGES - 1)
        ],
    )
    save_reconstruction([rec], folder)
    save_ground_truth(truth, folder / "gt.json")
    if history:
        save_evolutions(folder / EVOLUTION_FILE, [_history(rec)])
    return folder


def _history(rec: Reconstruction) -> Evolution:
    rng = np.random.default_rng(1)
    growth = np.linspace(0, 1, N_FRAMES)
    poses = np.tile(rec.cam_from_world[:, :3], (N_FRAMES, 1, 1, 1))
    poses[..., 3] *= growth[:, None, None]
    world = WorldHistory(name="fov50", loss=-1.0, chosen=True, pruned_at=None, cold=True, epipolar_share=0.9)
    return Evolution(
        image_names=rec.image_names,
        size_px=np.tile([rec.cameras[0].width, rec.cameras[0].height], (N_IMAGES, 1)),
        edges=np.array([[k, k + 1] for k in range(N_IMAGES - 1)]),
        point_image=np.arange(N_POINTS) % N_IMAGES,
        point_xy=rng.uniform(-0.7, 0.7, (N_POINTS, 2)).astype(np.float32),
        worlds=[world],
        world=np.array([0] * (N_FRAMES - 1) + [-1]),
        iteration=np.arange(N_FRAMES) * 10,
        loss=-np.arange(N_FRAMES, dtype=np.float32),
        cam_from_world=poses.astype(np.float32),
        tan=np.full((N_FRAMES, N_IMAGES), 0.5, np.float32),
        edge_weight=np.tile(growth[:, None], (1, N_IMAGES - 1)).astype(np.float16),
        log_depth=np.tile(np.log(3), (N_FRAMES, N_POINTS)).astype(np.float16),
        log_sigma=np.repeat(np.linspace(0, -4, N_FRAMES)[:, None], N_POINTS, 1).astype(np.float16),
    )
