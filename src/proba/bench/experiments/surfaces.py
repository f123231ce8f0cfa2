"""Dense depth of rendered scenes against the exact one: accuracy, completeness, honesty of the deviations."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from proba.bench.charts import bars
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, table
from proba.dense.dense_depth import DenseOptions, dense_depth
from proba.dense.fusion import dense_cloud
from proba.io.dense_folder import DensePiece
from proba.reconstruction import Camera, Points, Reconstruction
from proba.synthetic import LAYOUTS, Scene, make_scene
from proba.synthetic.render import render_images
from proba.threads import set_threads

CLOSE = 0.005
"""Share of the scene's size within which a point is right."""
SIZE_PERCENT = 90
"""The size of a scene is twice the distance from its middle that this share of its surface is within."""
FOV_DEG = 60.0
TRUTH_STEP_PX = 4
IMAGES = {"object": 12, "ring": 16, "room": 14, "facade": 10, "corridor": 14}


def plan(options: RunOptions) -> list[Row]:
    """Every layout with the true cameras, small in the quick version."""
    width = 320 if options.quick else 640
    return [
        Row(
            settings={"scene": name, "width": width, "seed": seed},
            work=measure,
            arguments=(name, width, seed, options.threads),
        )
        for name in LAYOUTS
        if not options.sets or name in options.sets
        for seed in options.seeds_or((0,), (0,))
    ]


def measure(name: str, width: int, seed: int, threads: int) -> dict:
    """ACC, COMP and shares of deviations of `proba dense`, and ACC and COMP of the smooth maps of the points."""
    set_threads(threads)
    scene = make_scene(name, n_images=IMAGES[name], seed=seed, fov_deg=FOV_DEG, width=width, height=3 * width // 4)
    reconstruction = exact_cameras(scene)
    with tempfile.TemporaryDirectory(prefix="proba-") as folder:
        photos, piece = Path(folder) / "images", DensePiece(Path(folder), 0)
        render_images(scene, photos, seed=seed)
        begin = time.perf_counter()
        found = dense_depth(reconstruction, photos, piece, DenseOptions(max_side_px=width))
        seconds = time.perf_counter() - begin
        smooth = dense_cloud(reconstruction, photos)
        errors = [_errors(scene, n, piece) for n in range(scene.n_images)]
    truth = findable_points(scene)
    close = CLOSE * scene_size(truth)
    error, ratio = (np.concatenate(values) for values in zip(*errors, strict=True))
    right = ratio[error < 4 * close]
    return {
        "acc": 100 * float((error < close).mean()),
        "comp": _completeness(found.cloud.xyz, truth, close),
        "sigma@1": 100 * float((right < 1).mean()),
        "sigma@2": 100 * float((right < 2).mean()),
        "share": 100 * float(np.mean(list(found.shares.values()))),
        "points": len(found.cloud.xyz),
        "seconds": seconds / scene.n_images,
        "smooth_acc": 100 * float((_distance(scene, smooth.xyz) < close).mean()),
        "smooth_comp": _completeness(smooth.xyz, truth, close),
    }


def exact_cameras(scene: Scene) -> Reconstruction:
    """The scene's cameras, with a few points of its surface as a sparse model would have them."""
    xyz = scene.sample_points(16, 12)
    image, point, pixels = [], [], []
    for n in range(scene.n_images):
        xy, _ = scene.project(n, xyz)
        inside = ((xy > 0) & (xy < [scene.width, scene.height])).all(axis=1)  # NaN is outside
        seen = np.flatnonzero(inside & scene.visible(n, xyz))
        image.append(np.full(len(seen), n))
        point.append(seen)
        pixels.append(xy[seen])
    points = Points(
        xyz=xyz, rgb=np.zeros(xyz.shape, np.uint8), sigma=np.zeros(len(xyz)), error_px=np.zeros(len(xyz)),
        obs_point=np.concatenate(point), obs_image=np.concatenate(image),
        obs_xy=np.concatenate(pixels).astype(np.float32),
    )  # fmt: skip
    camera = Camera(model="PINHOLE", width=scene.width, height=scene.height, params=scene.intrinsics[0])
    return Reconstruction(
        image_names=scene.image_names, cameras=[camera], camera_of_image=np.zeros(scene.n_images, int),
        cam_from_world=scene.cam_from_world, pose_std=np.zeros((scene.n_images, 6)), points=points,
    )  # fmt: skip


def findable_points(scene: Scene) -> np.ndarray:  # [P, 3]
    """The surface as the photos show it, where at least two of them see it."""
    pixels = scene.grid(scene.width // TRUTH_STEP_PX, scene.height // TRUTH_STEP_PX)
    parts = []
    for n in range(scene.n_images):
        depth, _ = scene.cast(n, pixels)
        hit = np.isfinite(depth)
        points = scene.centre(n) + depth[hit, None] * scene.rays(n, pixels[hit])
        seen = np.zeros(len(points), bool)
        for other in range(scene.n_images):
            xy, _ = scene.project(other, points)
            inside = np.flatnonzero(((xy > 0) & (xy < [scene.width, scene.height])).all(axis=1) & (other != n) & ~seen)
            seen[inside] = scene.visible(other, points[inside])
        parts.append(points[seen])
    return np.concatenate(parts)


def scene_size(points: np.ndarray) -> float:
    """Of a surface given by points [P, 3], metres."""
    return 2 * float(np.percentile(np.linalg.norm(points - np.median(points, axis=0), axis=1), SIZE_PERCENT))


def _errors(scene: Scene, n: int, piece: DensePiece) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the depths of a photo [K], metres, and the same in deviations; where nothing is hit, infinite."""
    found = piece.read_depth(scene.image_names[n])
    assert found is not None
    height, width = found.depth.shape
    known = found.depth > 0
    off = np.abs(found.depth - scene.depth_map(n, width, height))[known]
    return off, off / found.sigma[known]


def _distance(scene: Scene, xyz: np.ndarray) -> np.ndarray:
    """From points [P, 3] to the surface along the ray of the nearest camera; infinite where there is none, metres."""
    nearest = np.linalg.norm(xyz[:, None] - scene.centres[None], axis=2).argmin(axis=1)
    off = np.full(len(xyz), np.inf)
    for n in np.unique(nearest).tolist():
        mine = np.flatnonzero(nearest == n)
        xy, depth = scene.project(n, xyz[mine])
        ahead = np.isfinite(xy).all(axis=1)
        off[mine[ahead]] = np.abs(depth[ahead] - scene.cast(n, xy[ahead])[0])
    return off


def _completeness(xyz: np.ndarray, truth: np.ndarray, close: float) -> float:
    """Percent of true points [P, 3] that have a point within `close`."""
    if not len(xyz):
        return 0.0
    return 100 * float((cKDTree(xyz).query(truth, distance_upper_bound=close)[0] < close).mean())


def tables(rows: list[dict]) -> str:
    header = ("scene", "ACC", "COMP", "within 1 sigma", "within 2", "pixels with depth", "points", "s a photo",
              "ACC of smooth maps", "COMP of smooth maps")  # fmt: skip
    keys = ("acc", "comp", "sigma@1", "sigma@2", "share", "points", "seconds", "smooth_acc", "smooth_comp")
    return table(header, [[row["scene"], *(row.get(key) for key in keys)] for row in rows])


def draw(rows: list[dict], path: Path) -> None:
    series = {"ACC": "acc", "COMP": "comp", "within 1 sigma": "sigma@1", "COMP of smooth maps": "smooth_comp"}
    bars(
        path,
        [row["scene"] for row in rows],
        {label: [row[key] for row in rows] for label, key in series.items()},
        ylabel="percent",
    )


EXPERIMENT = Experiment(
    name="surfaces",
    title="Dense depth",
    about=(
        "`proba dense` on rendered photos with their true cameras. ACC: depths within 0.5 % of the scene's size of the "
        "exact one. COMP: surface that two photos see with a point that close. Within one sigma: depths whose error is "
        "below their standard deviation, gross errors left out. Smooth maps: what "
        "`proba export --to ply --density 4` interpolates between the points."
    ),
    quoted=[
        Quoted(
            source="the paper, ETH3D",
            claim="Dense reconstruction on ETH3D: ACC@5cm 69.9, COMP@5cm 44.0; COLMAP's sparse cloud: COMP 5.8.",
        )
    ],
    plan=plan,
    tables=tables,
    draw=draw,
    caption="Accuracy, completeness and calibration of dense depth by layout.",
)
