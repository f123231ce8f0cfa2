"""What it is worth to know something: photos found in a model, rough poses, and a calibration."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.spatial.transform import Rotation

from proba import api
from proba.bench.charts import lines
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, grouped, table
from proba.bench.measure import Source, regime, solve_and_score, sources
from proba.bench.photo_sets import PhotoSet, link_photo
from proba.geometry.sim3 import umeyama_robust
from proba.io.ground_truth import GroundTruth, save_ground_truth
from proba.known_poses import KnownPoseOptions, Use
from proba.localize import FEATURES, Localized, LocalizeOptions, Localizer
from proba.reconstruction import Reconstruction
from proba.threads import set_threads

QUICK_SETS = ("fountain", "herzjesu", "castle", "dtu_scan24", "temple")
DEGREES = (1.0, 5.0, 20.0)
"""How far each rough pose is turned; its place is off by as much, seen from the middle of the cameras."""
WRONG = 5
"""One in so many poses points anywhere."""
EVERY = 3
"""One in so many photos is left out of the model, and looked for in it."""
CALIBRATED_SET, POSED_SET = "herzjesu", "dtu_scan24"
"""Sets of the full version whose true calibration is told, and whose rough poses are."""
OFF_DEG, OFF_M = 2.0, 0.05
"""How far each rough pose is turned, and moved."""
NOTHING = "nothing"


def plan(options: RunOptions) -> list[Row]:
    """A third of each set looked for in a model of the others; rough poses on each set and on two scenes."""
    names = QUICK_SETS if options.quick else ()
    seeds = options.seeds_or((0,))
    rows = [
        Row(
            settings={"kind": "localize", "set": photos.name, "seed": seed},
            work=localize_a_third,
            arguments=(photos, seed, options),
        )
        for photos in options.photo_sets(names)
        for seed in seeds
    ]
    for source in sources(options, ("object", "room"), QUICK_SETS[:2] if options.quick else ()):
        for degrees in DEGREES:
            for wrong in (False, True):
                rows += [
                    Row(
                        settings={
                            "kind": "rough",
                            "set": source.name,
                            "degrees": degrees,
                            "wrong": wrong,
                            "seed": seed,
                        },
                        work=begin_with_rough_poses,
                        arguments=(source, degrees, wrong, seed, options),
                    )
                    for seed in seeds
                ]
    return rows if options.quick else rows + _told_rows(options)


def _told_rows(options: RunOptions) -> list[Row]:
    """What is told of photos, and how it counts."""
    told = (
        ("calibration", CALIBRATED_SET, ("free", "init", "fixed"), solve_with_calibration),
        ("poses", POSED_SET, ("start", "prior", "fixed"), solve_with_poses),
    )
    return [
        Row(
            settings={"kind": kind, "set": photos.name, "as": use, "seed": seed},
            work=work,
            arguments=(Source(name=photos.name, photos=photos), use, seed, options),
        )
        for kind, name, uses, work in told
        for photos in options.photo_sets((name,))
        for use in (NOTHING, *uses)
        for seed in options.seeds_or((0,))
    ]


def solve_with_calibration(
    source: Source, use: Literal["free", "init", "fixed"], seed: int, options: RunOptions
) -> dict:
    """A solve that is told the true calibration of its photos."""
    matches, truth = source.load(seed, options)
    settings = regime("default", seed)
    if use == NOTHING:
        return solve_and_score(matches, truth, settings, cloud=False)
    cameras = [
        {"model": "PINHOLE", "width": int(w), "height": int(h), "params": params.tolist(), "images": [name]}
        for name, w, h, params in zip(truth.names, truth.width, truth.height, truth.intrinsics, strict=True)
    ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "intrinsics.json"
        file.write_text(json.dumps({"cameras": cameras}))
        told = replace(settings.cameras, intrinsics=file, calibration=use)
        return solve_and_score(matches, truth, replace(settings, cameras=told), cloud=False)


def solve_with_poses(source: Source, use: Use, seed: int, options: RunOptions) -> dict:
    """A solve that is told poses which are off by OFF_DEG and OFF_M."""
    matches, truth = source.load(seed, options)
    settings = regime("default", seed)
    if use == NOTHING:
        return solve_and_score(matches, truth, settings, cloud=False)
    shift = OFF_M / (truth.metres_per_unit or 1.0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "known.json"
        save_ground_truth(replace(moved(truth, np.radians(OFF_DEG), shift, seed=seed), points=None), file)
        known = KnownPoseOptions(file=str(file), use=use, rotation_sigma_deg=OFF_DEG, centre_sigma=shift)
        return solve_and_score(matches, truth, replace(settings, known=known), cloud=False)


def localize_a_third(photos: PhotoSet, seed: int, options: RunOptions) -> dict:
    """Errors of photos that a model of the others does not hold, and of the model's own."""
    set_threads(options.threads)
    truth, folder = photos.truth(), photos.images(options.cache)
    names = sorted(truth.names)
    left_out = names[1::EVERY]
    with tempfile.TemporaryDirectory() as place:
        part, model = Path(place) / "photos", Path(place) / "model"
        for name in set(names) - set(left_out):
            link_photo(folder / name, part / name)
        settings = regime("default", seed)
        api.reconstruct(part, out=model, options=settings, threads=options.threads)
        reconstruction = Reconstruction.load(model)
        localizer = Localizer(
            reconstruction=reconstruction, photos=part, folder=model / FEATURES, options=LocalizeOptions()
        )
        begin = time.perf_counter()
        found = [localizer.localize_or_say(folder / name) for name in left_out]
        seconds = (time.perf_counter() - begin) / len(left_out)
    posed = [(name, pose) for name, pose in zip(left_out, found, strict=True) if isinstance(pose, Localized)]
    frame, _ = umeyama_robust(reconstruction.centres, truth.centres[_index(truth, reconstruction.image_names)])
    own = _errors(frame.apply_to_poses(reconstruction.cam_from_world), truth, reconstruction.image_names)
    poses = np.array([pose.cam_from_world for _, pose in posed]).reshape(-1, 4, 4)
    theirs = _errors(frame.apply_to_poses(poses), truth, [name for name, _ in posed])
    return {
        "model": len(reconstruction),
        "looked_for": len(left_out),
        "found": len(posed),
        "rotation_deg": _median(theirs[0]),
        "centre_pct": _median(theirs[1]),
        "model_rotation_deg": _median(own[0]),
        "model_centre_pct": _median(own[1]),
        "seconds_a_photo": seconds,
    }


def begin_with_rough_poses(source: Source, degrees: float, wrong: bool, seed: int, options: RunOptions) -> dict:
    """A solve that is told rough poses, one in five of them senseless if `wrong`."""
    matches, truth = source.load(seed, options)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "known.json"
        save_ground_truth(replace(rough(truth, degrees, wrong=wrong, seed=seed), points=None), file)
        settings = replace(regime("default", seed), known=KnownPoseOptions(file=str(file)))
        return solve_and_score(matches, truth, settings, cloud=False)


def rough(truth: GroundTruth, degrees: float, *, wrong: bool, seed: int) -> GroundTruth:
    """Cameras that are turned, and moved by the same angle as seen from their middle; some point anywhere."""
    size = float(np.median(np.linalg.norm(truth.centres - truth.centres.mean(axis=0), axis=1)))
    angle = np.full(len(truth.names), np.radians(degrees))
    if wrong:
        angle[::WRONG] = np.radians(90)
    return moved(truth, angle, angle * size, seed=seed)


def moved(truth: GroundTruth, angle: float | np.ndarray, shift: float | np.ndarray, *, seed: int) -> GroundTruth:
    """Cameras turned by an `angle` (rad) and shifted, of all or of each [N], in random directions."""
    rng, n = np.random.default_rng(seed), len(truth.names)
    angle, shift = np.broadcast_to(angle, n), np.broadcast_to(shift, n)
    axes = rng.normal(size=(2, n, 3))
    axes /= np.linalg.norm(axes, axis=2, keepdims=True)
    turned = Rotation.from_rotvec(angle[:, None] * axes[0]).as_matrix() @ truth.cam_from_world[:, :3, :3]
    poses = truth.cam_from_world.copy()
    poses[:, :3, :3] = turned
    poses[:, :3, 3] = -np.einsum("nij,nj->ni", turned, truth.centres + shift[:, None] * axes[1])
    return replace(truth, cam_from_world=poses)


def _errors(cam_from_world: np.ndarray, truth: GroundTruth, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Degrees [M] and distances [M], in percent of the size of the camera path."""
    index = _index(truth, names)
    size = float(np.median(np.linalg.norm(truth.centres - truth.centres.mean(axis=0), axis=1)))
    rotation = cam_from_world[:, :3, :3]
    cosine = (np.einsum("nij,nij->n", rotation, truth.cam_from_world[index, :3, :3]) - 1) / 2
    centres = -np.einsum("nji,nj->ni", rotation, cam_from_world[:, :3, 3])
    off = np.linalg.norm(centres - truth.centres[index], axis=1)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1))), 100 * off / size


def _index(truth: GroundTruth, names: list[str]) -> list[int]:
    return [truth.names.index(name) for name in names]


def _median(values: np.ndarray) -> float | None:
    return float(np.median(values)) if len(values) else None


def tables(rows: list[dict]) -> str:
    """One table for each kind."""
    found = [row for row in rows if row["kind"] == "localize" and "found" in row]
    body = [
        (
            row["set"], row["seed"], row["model"], f"{row['found']} of {row['looked_for']}",
            _digits(row["rotation_deg"]), _digits(row["model_rotation_deg"]),
            _digits(row["centre_pct"]), _digits(row["model_centre_pct"]), row["seconds_a_photo"],
        )
        for row in found
    ]  # fmt: skip
    header = ("set", "seed", "model", "found", "rotation", "model's", "centre", "model's", "s/photo")
    started = [row for row in rows if row["kind"] == "rough" and "hypothesis" in row]
    begun = [
        (
            row["set"], row["seed"], row["degrees"], "1 in 5" if row["wrong"] else "none", row["hypothesis"],
            row["rra@5"], row["rta@5"], row["auc@1"],
        )
        for row in started
    ]  # fmt: skip
    rough_header = ("set", "seed", "rough by deg", "senseless", "world that won", "RRA@5", "RTA@5", "AUC@1")
    return f"{table(header, body)}\n{table(rough_header, begun)}{_told_table(rows)}"


def _told_table(rows: list[dict]) -> str:
    body = [
        (
            f"{row['set']}, {row['kind']}: {row['as']}", row["seed"], row["hypothesis"], row["rra@1"], row["rta@1"],
            row["auc@1"], row["auc@5"], _digits(row["focal_error_pct"]),
        )
        for row in rows
        if "as" in row and "hypothesis" in row
    ]  # fmt: skip
    header = ("told", "seed", "world that won", "RRA@1", "RTA@1", "AUC@1", "AUC@5", "focal error %")
    return f"\n{table(header, body)}" if body else ""


def _digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def draw(rows: list[dict], path: Path) -> None:
    """AUC@1 against how rough the poses were."""
    panels: dict[str, dict] = {}
    for (name, wrong), group in grouped([row for row in rows if row["kind"] == "rough"], "set", "wrong").items():
        by_degrees = grouped(group, "degrees")
        means = [float(np.mean([row.get("auc@1", 0.0) for row in some])) for some in by_degrees.values()]
        label = "one in five senseless" if wrong else "all rough alike"
        panels.setdefault(name, {})[label] = ([degrees for (degrees,) in by_degrees], means)
    lines(path, panels, xlabel="rough by, degrees", ylabel="AUC@1 (%)")


EXPERIMENT = Experiment(
    name="known",
    title="Known poses",
    about="""First table: a third of the photos is left out of the model and looked for in it (`proba localize`).
Median errors of rotation (degrees) and camera centre (percent of the size of the camera path) beside those of the
model's own cameras. Second table: rough poses as one more world (`--poses`); which world won, and how right it is.
Third table, in the full version: the true calibration told as a start alone (free), a start with a prior (init) or held
(`--intrinsics`, `--calibration`), and poses off by 5 cm and 2 degrees as a start, a prior or held (`--poses-as`).""",
    quoted=(Quoted(source="the paper", claim="It starts from nothing and has no such experiment."),),
    plan=plan,
    tables=tables,
    draw=draw,
    caption="AUC@1 where the solve is told poses, by how far these are off",
)
