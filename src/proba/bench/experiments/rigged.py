"""What it is worth to know that cameras moved together: a rig, and panoramas as rigs of views."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from proba.bench.charts import bars
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, mean_score, table
from proba.evaluation import evaluate
from proba.io.panoramas import view_rotations
from proba.io.rig_files import pose_entry
from proba.matches import Matches
from proba.pipeline import solve_matches
from proba.presets import preset
from proba.rigs import PanoramaOptions, RigOptions
from proba.synthetic import Scene, make_scene, on_rig, scene_matches, turned_cameras
from proba.threads import set_threads

RIGS = (
    ("room", 8, 50.0, 0, 40.0),
    ("room", 8, 30.0, 1, 60.0),
    ("corridor", 10, 40.0, 0, 90.0),
    ("ring", 12, 40.0, 0, 150.0),
)
"""Scene, moments, field of view, seed of the scene, and by how much the second camera is turned (degrees)."""
ARM = (0.25, 0.02, -0.03)
"""Where the second camera sits, metres."""
PANORAMAS = (("room", 6), ("corridor", 6))
"""Scene and number of panoramas."""
HOW = ("none", "folders", "file")
"""What is told: nothing, that cameras moved together, or also where they sit."""


def plan(options: RunOptions) -> list[Row]:
    """Every rig with what is told of it; panoramas with and without their centre."""
    rigs = RIGS[:2] if options.quick else RIGS
    rows = [
        Row(
            settings={"set": f"{scene}, {fov:g} deg, turned {yaw:g}", "told": how, "seed": seed},
            work=solve_rig,
            arguments=(scene, moments, fov, seed, yaw, how, options.threads),
        )
        for scene, moments, fov, seed, yaw in rigs
        for how in HOW
    ]
    rows += [
        Row(
            settings={"set": f"{count} panoramas, {scene}", "told": how, "seed": 0},
            work=solve_panoramas,
            arguments=(scene, count, how, options.threads),
        )
        for scene, count in (() if options.quick else PANORAMAS)
        for how in ("lens", "file")
    ]
    return rows


def solve_rig(scene: str, moments: int, fov: float, seed: int, yaw: float, how: str, threads: int) -> dict:
    """Scores of two cameras on a rig."""
    set_threads(threads)
    sensors = turned_cameras([0.0, yaw], [[0.0, 0.0, 0.0], ARM])
    seen = on_rig(make_scene(scene, n_images=moments, seed=seed, fov_deg=fov), sensors)
    matches = scene_matches(seen, grid=24, noise_px=1.0, outliers=0.1, seed=seed)
    return _scores(seen, matches, sensors, how, seed)


def solve_panoramas(scene: str, count: int, how: str, threads: int) -> dict:
    """Scores of the views of panoramas: with their lens alone, and with their common centre."""
    set_threads(threads)
    sensors = np.tile(np.eye(4), (PanoramaOptions().views, 1, 1))
    sensors[:, :3, :3] = view_rotations(PanoramaOptions())
    seen = on_rig(make_scene(scene, n_images=count, seed=0, fov_deg=90.0, width=480, height=480), sensors)
    matches = scene_matches(seen, grid=20, noise_px=0.5, outliers=0.05, seed=0, max_neighbours=12)
    return _scores(seen, matches, sensors, how, 0)


def _scores(seen: Scene, matches: Matches, sensors: np.ndarray, how: str, seed: int) -> dict:
    """What comes of the matches of cameras at `sensors` [S, 4, 4] on a body, of which so much is told."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "rig.json"
        cameras = [
            {"image_prefix": f"cam{k}/", **({"ref_sensor": True} if k == 0 else pose_entry(pose))}
            for k, pose in enumerate(sensors)
        ]
        file.write_text(json.dumps([{"cameras": cameras}]))
        options = replace(preset("default"), seed=seed)
        if how in ("folders", "file"):
            options = replace(options, rigs=RigOptions(cameras="folders" if how == "folders" else str(file)))
        if len(sensors) > 2:  # views have a known lens
            told = [replace(image, focal_px=float(seen.intrinsics[0, 0])) for image in matches.images]
            matches = replace(matches, images=told)
            options = replace(options, cameras=replace(options.cameras, focal="fixed", share="all"))
            if how == "lens":  # matches of one place say nothing of it
                count = len(matches.images) // len(sensors)
                pairs = {(i, j): pair for (i, j), pair in matches.pairs.items() if (i - j) % count}
                matches = replace(matches, pairs=pairs)
        result = solve_matches(matches, options)
    metrics = evaluate(result.reconstructions, seen.ground_truth(cloud=False))
    pieces = len(result.pieces)
    return {**metrics, "pieces": pieces, "seconds": time.perf_counter() - begin}


def tables(rows: list[dict]) -> str:
    """Scores by what is told."""
    body: list[Sequence] = []
    for (name, told), group in grouped(rows, "set", "told").items():
        scores = (mean_score(group, key) for key in ("rra@1", "rta@1", "auc@1", "auc@5"))
        body.append((f"{name}: {told}", group[0].get("pieces"), group[0].get("registered"), *scores))
    return table(("cameras: what is told", "pieces", "posed", "RRA@1", "RTA@1", "AUC@1", "AUC@5"), body)


def draw(rows: list[dict], path: Path) -> None:
    """AUC@1 of each set."""
    of = grouped(rows, "set", "told")
    names = list(dict.fromkeys(row["set"] for row in rows))
    told = list(dict.fromkeys(row["told"] for row in rows))
    series = {how: [mean_score(of.get((name, how), []), "auc@1") for name in names] for how in told}
    series = {how: [0.0 if value != value else value for value in values] for how, values in series.items()}
    bars(path, names, series, ylabel="AUC@1 (%)")


EXPERIMENT = Experiment(
    name="rigged",
    title="Rigs and panoramas",
    about="""Two cameras that one body carries, by exact matches with noise of 1 px and 10 % outliers: nothing told
(`none`), that they moved together (`folders`), and where they sit (`file`). Then panoramas of a room and a corridor
as six views each, with noise of 0.5 px: with their focal length alone (`lens`), and as one rig with one centre
(`file`).""",
    quoted=(Quoted(source="the paper", claim="It has single cameras only, and no such experiment."),),
    plan=plan,
    tables=tables,
    draw=draw,
    fresh=False,
    caption="AUC@1 by what is told of the cameras",
)
