"""A result on disk: COLMAP models, the cloud, and the maps and uncertainties that COLMAP has no place for.

DIR/sparse/0, sparse/1, ...   one COLMAP model for each connected reconstruction, largest first
DIR/points.ply                cloud of the first one, with colour, normal and sigma
DIR/maps.npz                  for each reconstruction k: `log_depth_k`, `log_variance_k` [N, m, m] (where kept),
                              `pose_std_k` [N, 6], `focal_std_px_k` [C], `params_std_k` [C, 12] (each camera's in the
                              order of its model, then NaN), `sigma_k` [P], `edges_k`, `notes_k` (JSON)
DIR/rigs.json                 where cameras sit on their rigs, and where these were
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import numpy as np

from proba.errors import InputError
from proba.geometry.camera import WIDTH
from proba.io.atomic import all_or_nothing, finish_naming, remove
from proba.io.colmap import read_colmap, write_colmap
from proba.io.names import check_name
from proba.io.npz import read_npz, write_npz
from proba.io.ply import write_ply
from proba.io.reading import parse_json, reading
from proba.io.rig_files import RIGS_FILE, write_rigs
from proba.point_cloud import point_cloud
from proba.reconstruction import Edge, Note, NoteKind, Reconstruction

SPARSE_CLOUD = "points_sparse.ply"
"""What points.ply held before dense points took its place."""
MAX_LOG = 80.0
"""Of depths and variances: their exponentials stay finite in float32."""


def save_reconstruction(reconstructions: Sequence[Reconstruction], folder: str | Path) -> None:
    """Write all reconstructions of one run; models that a longer earlier run left in the folder are removed."""
    folder = Path(folder)
    if not reconstructions:
        raise InputError("There is no reconstruction to write.")
    arrays: dict[str, np.ndarray] = {}
    with all_or_nothing(folder):
        for k, reconstruction in enumerate(reconstructions):
            write_colmap(reconstruction, folder / "sparse" / str(k))
            arrays |= _arrays(reconstruction, k)
        cloud = point_cloud(reconstructions[0])
        write_ply(folder / "points.ply", cloud.xyz, cloud.rgb, cloud.sigma, cloud.normals)
        remove(folder / SPARSE_CLOUD)  # of an older model
        write_npz(folder / "maps.npz", arrays, compress=True)
        _write_rigs(reconstructions, folder / RIGS_FILE)
        for stale in _model_folders(folder)[len(reconstructions) :]:
            remove(stale)


def _write_rigs(reconstructions: Sequence[Reconstruction], path: Path) -> None:
    rigs = [(k, rig) for k, reconstruction in enumerate(reconstructions) for rig in reconstruction.rigs]
    if rigs:
        write_rigs(path, rigs)
    else:
        remove(path)  # of an older model


def load_reconstruction(folder: str | Path) -> list[Reconstruction]:
    """Read what `save_reconstruction` wrote; a folder with COLMAP models alone works too, without uncertainties."""
    folder = Path(folder)
    finish_naming(folder)
    models = _model_folders(folder)
    if not models:
        raise InputError(f"{folder} holds no reconstruction (sparse/0). Give the folder that `proba run` wrote.")
    reconstructions = [read_colmap(model) for model in models]
    maps = folder / "maps.npz"
    if maps.is_file():
        with reading(maps, "what `proba` wrote", "It is damaged: delete it, or run again."):
            file = read_npz(maps)
            for k, reconstruction in enumerate(reconstructions):
                _fill(reconstruction, k, file)
    return reconstructions


def _model_folders(folder: Path) -> list[Path]:
    numbered = (path for path in (folder / "sparse").glob("*") if path.is_dir() and path.name.isdigit())
    return sorted(numbered, key=lambda path: int(path.name))


def _arrays(reconstruction: Reconstruction, k: int) -> dict[str, np.ndarray]:
    arrays = {
        f"pose_std_{k}": reconstruction.pose_std,
        f"focal_std_px_{k}": np.array([camera.focal_std_px for camera in reconstruction.cameras]),
        f"params_std_{k}": _params_std(reconstruction),
        f"sigma_{k}": reconstruction.points.sigma,
        f"edges_{k}": np.array(json.dumps([asdict(edge) for edge in reconstruction.edges])),
        f"notes_{k}": np.array(json.dumps([asdict(note) for note in reconstruction.notes])),
    }
    if reconstruction.up:
        arrays[f"up_{k}"] = np.array(reconstruction.up)
    for name in ("log_depth", "log_variance"):
        value = getattr(reconstruction, name)
        if value is not None:
            # Where a world fell apart, maps run beyond any depth that can be meant, and beyond what is read back.
            arrays[f"{name}_{k}"] = np.clip(np.asarray(value, np.float32), -MAX_LOG, MAX_LOG)
    return arrays


def _params_std(reconstruction: Reconstruction) -> np.ndarray:  # [C, WIDTH]
    """Standard deviations of the parameters of all cameras, NaN behind them and where they are not known."""
    table = np.full((len(reconstruction.cameras), WIDTH), np.nan)
    for row, camera in zip(table, reconstruction.cameras, strict=True):
        if camera.params_std is not None:
            row[: len(camera.params)] = camera.params_std
    return table


def _fill(reconstruction: Reconstruction, k: int, file: dict[str, np.ndarray]) -> None:
    """Add what COLMAP has no place for; ValueError if the arrays are not those of this reconstruction."""
    if f"pose_std_{k}" not in file:
        return
    n_images, n_cameras = len(reconstruction), len(reconstruction.cameras)
    reconstruction.pose_std = _shaped(file, f"pose_std_{k}", (n_images, 6))
    for camera, std in zip(
        reconstruction.cameras, _shaped(file, f"focal_std_px_{k}", (n_cameras,)).tolist(), strict=True
    ):
        camera.focal_std_px = std
    if f"params_std_{k}" in file:
        table = _shaped(file, f"params_std_{k}", (n_cameras, WIDTH))
        for camera, row in zip(reconstruction.cameras, table, strict=True):
            known = row[: len(camera.params)]
            camera.params_std = known if np.isfinite(known).all() else None
    if len(file[f"sigma_{k}"]) == len(reconstruction.points.xyz):
        reconstruction.points.sigma = _shaped(file, f"sigma_{k}", (len(reconstruction.points.xyz),))
    reconstruction.edges = [_edge(item) for item in parse_json(str(file[f"edges_{k}"]))]
    reconstruction.notes = [_note(item) for item in parse_json(str(file[f"notes_{k}"]))]
    reconstruction.up = "z" if f"up_{k}" in file and str(file[f"up_{k}"]) == "z" else None
    for name in ("log_depth", "log_variance"):
        if f"{name}_{k}" in file:
            side = file[f"log_depth_{k}"].shape[-1]
            values = _shaped(file, f"{name}_{k}", (n_images, side, side))
            if side == 0 or not (np.abs(values) <= MAX_LOG).all():
                raise ValueError(f"{name}_{k} is not finite")
            setattr(reconstruction, name, values)


def _shaped(file: dict[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """An array of real numbers that must have this shape."""
    array = file[name]
    if array.shape != shape or array.dtype.kind != "f":
        raise ValueError(f"{name} has the shape {array.shape}, not {shape}: it does not belong to this model")
    return array


def _edge(item: dict) -> Edge:
    """An edge of a file; older files do not tell what a pair can explain."""
    return Edge(
        i=check_name(item["i"]),
        j=check_name(item["j"]),
        matches=int(item["matches"]),
        weight=float(item.get("weight", 1.0)),
        explainable=float(item.get("explainable", "nan")),
        explained=float(item.get("explained", "nan")),
    )


def _note(item: dict | str) -> Note:
    """A note of a file; in older files it is one sentence: a fact, a semicolon, and advice."""
    if isinstance(item, str):
        text, _, advice = item.partition("; ")
        return Note(kind="other", text=text, advice=advice)
    return Note(
        kind=item["kind"] if item["kind"] in get_args(NoteKind) else "other",
        text=str(item["text"]),
        advice=str(item["advice"]),
        images=tuple(map(str, item["images"])),
        numbers={str(name): float(value) for name, value in item["numbers"].items()},
    )
