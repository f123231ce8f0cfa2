"""A result on disk: COLMAP models, the cloud, and the maps and uncertainties that COLMAP has no place for.

DIR/sparse/0, sparse/1, ...   one COLMAP model for each connected reconstruction, largest first
DIR/points.ply                cloud of the first one, with colour, normal and sigma
DIR/maps.npz                  for each reconstruction k: `log_depth_k`, `log_variance_k` [N, m, m] (where kept),
                              `pose_std_k` [N, 6], `focal_std_px_k` [C], `sigma_k` [P], `edges_k`, `notes_k` (JSON)
"""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import numpy as np

from proba.errors import InputError
from proba.io.atomic import atomic_path
from proba.io.colmap import read_colmap, write_colmap
from proba.io.ply import write_ply
from proba.point_cloud import point_cloud
from proba.reconstruction import Edge, Note, NoteKind, Reconstruction


def save_reconstruction(reconstructions: Sequence[Reconstruction], folder: str | Path) -> None:
    """Write all reconstructions of one run; models that a longer earlier run left in the folder are removed."""
    folder = Path(folder)
    if not reconstructions:
        raise InputError("There is no reconstruction to write.")
    arrays: dict[str, np.ndarray] = {}
    for k, reconstruction in enumerate(reconstructions):
        write_colmap(reconstruction, folder / "sparse" / str(k))
        arrays |= _arrays(reconstruction, k)
    for stale in _model_folders(folder)[len(reconstructions) :]:
        shutil.rmtree(stale)
    cloud = point_cloud(reconstructions[0])
    write_ply(folder / "points.ply", cloud.xyz, cloud.rgb, cloud.sigma, cloud.normals)
    with atomic_path(folder / "maps.npz") as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]


def load_reconstruction(folder: str | Path) -> list[Reconstruction]:
    """Read what `save_reconstruction` wrote; a folder with COLMAP models alone works too, without uncertainties."""
    folder = Path(folder)
    models = _model_folders(folder)
    if not models:
        raise InputError(f"{folder} holds no reconstruction (sparse/0). Give the folder that `proba run` wrote.")
    reconstructions = [read_colmap(model) for model in models]
    maps = folder / "maps.npz"
    if maps.is_file():
        try:
            with np.load(maps, allow_pickle=False) as file:
                for k, reconstruction in enumerate(reconstructions):
                    _fill(reconstruction, k, file)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(f"{maps} is damaged ({error}). Delete it, or run again.") from error
    return reconstructions


def _model_folders(folder: Path) -> list[Path]:
    numbered = (path for path in (folder / "sparse").glob("*") if path.is_dir() and path.name.isdigit())
    return sorted(numbered, key=lambda path: int(path.name))


def _arrays(reconstruction: Reconstruction, k: int) -> dict[str, np.ndarray]:
    arrays = {
        f"pose_std_{k}": reconstruction.pose_std,
        f"focal_std_px_{k}": np.array([camera.focal_std_px for camera in reconstruction.cameras]),
        f"sigma_{k}": reconstruction.points.sigma,
        f"edges_{k}": np.array(json.dumps([asdict(edge) for edge in reconstruction.edges])),
        f"notes_{k}": np.array(json.dumps([asdict(note) for note in reconstruction.notes])),
    }
    if reconstruction.up:
        arrays[f"up_{k}"] = np.array(reconstruction.up)
    for name in ("log_depth", "log_variance"):
        value = getattr(reconstruction, name)
        if value is not None:
            arrays[f"{name}_{k}"] = np.asarray(value, np.float32)
    return arrays


def _fill(reconstruction: Reconstruction, k: int, file) -> None:
    if f"pose_std_{k}" not in file:
        return
    if len(file[f"pose_std_{k}"]) != len(reconstruction.image_names):
        raise ValueError(f"it does not belong to sparse/{k}")
    reconstruction.pose_std = file[f"pose_std_{k}"]
    for camera, std in zip(reconstruction.cameras, file[f"focal_std_px_{k}"].tolist(), strict=True):
        camera.focal_std_px = std
    if len(file[f"sigma_{k}"]) == len(reconstruction.points.xyz):
        reconstruction.points.sigma = file[f"sigma_{k}"]
    reconstruction.edges = [_edge(item) for item in json.loads(str(file[f"edges_{k}"]))]
    reconstruction.notes = [_note(item) for item in json.loads(str(file[f"notes_{k}"]))]
    reconstruction.up = "z" if f"up_{k}" in file and str(file[f"up_{k}"]) == "z" else None
    for name in ("log_depth", "log_variance"):
        if f"{name}_{k}" in file:
            setattr(reconstruction, name, file[f"{name}_{k}"])


def _edge(item: dict) -> Edge:
    """An edge of a file; older files do not tell what a pair can explain."""
    return Edge(
        i=str(item["i"]),
        j=str(item["j"]),
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
