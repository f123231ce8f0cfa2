"""Dense depth on disk.

RESULT/dense/dense.json         settings, and for each piece and image what was found
RESULT/dense/K/depth/NAME.npz   piece K: `depth`, `sigma` [h, w] float32 (scene units; 0: none), `normal` [h, w, 3] int8
RESULT/dense/K/points.ply       the cloud of piece K; that of the first one is also RESULT/points.ply
RESULT/points_sparse.ply        the points of the model, which RESULT/points.ply held before
RESULT/dense/K/work             what is needed to go on after an interruption; gone at the end
RESULT/dense/unfinished.json    what the work is for; an older dense result stays whole beside it until the end

Depth is z in the frame of a pinhole camera, whose numbers are in dense.json, at the place of the photo; normals are in
that frame too, towards the camera, in 127ths.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from proba.errors import InputError
from proba.io.atomic import (
    TEMPORARY_PREFIX,
    all_or_nothing,
    atomic_write_text,
    finish_naming,
    remove,
    remove_leftovers,
)
from proba.io.names import safe_relative_path
from proba.io.npz import read_npz, write_npz
from proba.io.ply import read_ply, write_ply
from proba.io.reading import read_json, reading
from proba.io.reconstruction_folder import SPARSE_CLOUD
from proba.point_cloud import Cloud, point_cloud
from proba.reconstruction import Camera, Reconstruction

FOLDER = "dense"
INDEX = "dense.json"
UNFINISHED = "unfinished.json"
FORM = 1
"""Version of the layout and of the method: a folder of another one is made anew."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DepthMap:
    """What is known of the surface at every pixel of one photo, without distortion."""

    camera: Camera
    depth: np.ndarray  # [h, w] float32, z in scene units; 0: none
    sigma: np.ndarray  # [h, w] float32, its standard deviation
    normal: np.ndarray  # [h, w, 3] int8, in the camera's frame, towards it, in 127ths

    @property
    def share(self) -> float:
        """Of the pixels that have a depth."""
        return float((self.depth > 0).mean())

    def at(self, original: Camera, xy: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Depth and deviation [K] and normal [K, 3] at pixels [K, 2] of the photo itself, nearest samples; 0: none."""
        rays = original.rays(xy)  # [K, 3]
        place = np.floor(self.camera.project(rays))  # [K, 2]
        height, width = self.depth.shape
        inside = ((place >= 0) & (place < [width, height])).all(axis=1)  # NaN is outside
        column, row = np.where(inside[:, None], place, 0).astype(int).T
        normal = self.normal[row, column] / 127.0
        longer = 1 / np.where(inside, rays[:, 2], 1.0)  # a fisheye's depth is a distance; other rays have a z of 1
        depth, sigma = (np.where(inside, values[row, column] * longer, 0.0) for values in (self.depth, self.sigma))
        return depth, sigma, np.where((depth > 0)[:, None], normal, 0.0)

    def world_points(self, cam_from_world: np.ndarray) -> np.ndarray:
        """Points [K, 3] of all pixels with a depth, row by row."""
        row, column = np.nonzero(self.depth > 0)
        rays = self.camera.rays(np.stack([column, row], axis=1) + 0.5)  # [K, 3]
        in_camera = rays * self.depth[row, column, None]
        return (in_camera - cam_from_world[:3, 3]) @ cam_from_world[:3, :3]


class DensePiece:
    """The files of one connected reconstruction."""

    def __init__(self, result: Path, index: int):
        self.folder = result / FOLDER / str(index)
        self.cloud = self.folder / "points.ply"
        self.work = self.folder / "work"

    def read_cloud(self) -> Cloud:
        """All points."""
        file = read_ply(self.cloud)
        missing = [name for name in ("rgb", "sigma", "normals") if name not in file]
        if missing:
            raise InputError(f"{self.cloud} has no {missing[0]}. Run `proba dense` again.")
        return Cloud(xyz=file["xyz"], rgb=file["rgb"], sigma=file["sigma"], normals=file["normals"])

    def depth_file(self, name: str) -> Path:
        """Of an image's finished depth."""
        return self.folder / "depth" / f"{safe_relative_path(name)}.npz"

    def work_file(self, stage: str, name: str) -> Path:
        """Of what a stage has left of an image."""
        return self.work / stage / f"{safe_relative_path(name)}.npz"

    def write_depth(self, name: str, depth: DepthMap) -> None:
        arrays = {"depth": depth.depth, "sigma": depth.sigma, "normal": depth.normal, "params": depth.camera.params}
        write_npz(self.depth_file(name), arrays, compress=True)

    def read_depth(self, name: str) -> DepthMap | None:
        """The depth of an image; None where there is none."""
        path = self.depth_file(name)
        if not path.is_file():
            return None
        with reading(path, "a depth file of `proba dense`", "Run `proba dense` again."):
            file = read_npz(path)
            depth, sigma, normal = file["depth"], file["sigma"], file["normal"]
            if depth.ndim != 2 or sigma.shape != depth.shape or normal.shape != (*depth.shape, 3):
                raise ValueError("its maps differ in size")
            if not (np.isfinite(depth).all() and np.isfinite(sigma).all() and file["params"].shape == (4,)):
                raise ValueError("it is not finite")
            height, width = depth.shape
            camera = Camera(model="PINHOLE", width=width, height=height, params=file["params"].astype(np.float64))
            return DepthMap(camera=camera, depth=depth, sigma=sigma, normal=normal)


def fingerprint(reconstruction: Reconstruction) -> str:
    """Tells whether depth belongs to these cameras."""
    digest = hashlib.sha256(repr(reconstruction.image_names).encode())
    for camera in reconstruction.cameras:
        digest.update(f"{camera.model} {camera.width} {camera.height}".encode() + camera.params.tobytes())
    for values in (reconstruction.camera_of_image.astype(np.int64), reconstruction.cam_from_world):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def begin_dense(result: Path, cameras: list[str], options: dict, *, resume: bool) -> dict:
    """The index of new work in a result; with `resume` work files that were made for the same are kept."""
    index = {"form": FORM, "options": options, "cameras": cameras}
    remove_leftovers(result)
    if not resume or _read_object(result / FOLDER / UNFINISHED) != index:
        remove_work(result)
        atomic_write_text(result / FOLDER / UNFINISHED, json.dumps(index, indent=1))
    return index


def finish_dense(result: Path, index: dict, first: Reconstruction, cloud: Cloud, pieces: list[dict]) -> None:
    """Put the dense cloud of the first piece into points.ply, keep the sparse one beside it, and remove what an older
    run has left. Part of the `all_or_nothing` in which the depth was written."""
    sparse = point_cloud(first)
    older = [path for path in (result / FOLDER).rglob("*") if path.is_file() and not _is_work(path, result)]
    with all_or_nothing(result):
        write_ply(result / SPARSE_CLOUD, sparse.xyz, sparse.rgb, sparse.sigma, sparse.normals)
        if len(cloud.xyz):
            write_ply(result / "points.ply", cloud.xyz, cloud.rgb, cloud.sigma, cloud.normals)
        atomic_write_text(result / FOLDER / INDEX, json.dumps({**index, "done": True, "pieces": pieces}, indent=1))
        for path in older:
            remove(path)  # unless it has been written anew


def remove_work(result: Path) -> None:
    """Remove what was needed on the way only."""
    (result / FOLDER / UNFINISHED).unlink(missing_ok=True)  # first: what is half removed must not be gone on from
    for work in (result / FOLDER).glob("*/work"):
        shutil.rmtree(work, ignore_errors=True)


def _is_work(path: Path, result: Path) -> bool:
    inside = path.relative_to(result / FOLDER).parts
    return inside[0] == UNFINISHED or inside[1:2] == ("work",) or path.name.startswith(TEMPORARY_PREFIX)


def read_index(result: Path) -> dict | None:
    """dense.json; None where there is none."""
    finish_naming(result)
    return _read_object(result / FOLDER / INDEX)


def _read_object(path: Path) -> dict | None:
    if not path.is_file():
        return None
    with reading(path, "an index of `proba dense`", "Run `proba dense` again."):
        content = read_json(path)
        if not isinstance(content, dict):
            raise ValueError("it is no object")
        return content


def load_dense(result: str | Path, reconstruction: Reconstruction, index: int = 0) -> DensePiece | None:
    """The finished dense depth that belongs to a reconstruction of a result; None where there is none."""
    content = read_index(Path(result)) or {}
    cameras = content.get("cameras")
    if not content.get("done") or not isinstance(cameras, list) or index >= len(cameras):
        return None
    return DensePiece(Path(result), index) if cameras[index] == fingerprint(reconstruction) else None
