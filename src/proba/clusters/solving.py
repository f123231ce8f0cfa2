"""The solve of one cluster as a task: matches of some images in, cameras with their covariances and a verdict out."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from proba.dense import maps_of
from proba.errors import GeometryError
from proba.matches import ImageInfo, Matches, PairMatches
from proba.pipeline import Piece, solve_matches
from proba.reconstruction import Reconstruction
from proba.report import judge
from proba.report.facts import explained_share, pair_facts
from proba.solve_options import SolveOptions, settings_from
from proba.tasks import pack, unpack

FEWEST = 3
"""Images of a piece: with fewer, nothing tells how large it is beside others."""
RUNAWAY = 100.0
"""Ratio of the depth that an image sees to the median depth of its part beyond which its scale is not believed."""
MAX_STD = 0.25
"""Deviation of a camera's place, in median depths, beyond which it is not believed."""
_ARRAYS = (
    "images",
    "camera_of_image",
    "cam_from_world",
    "pose_std",
    "log_depth",
    "log_variance",
    "edges",
    "edge_weight",
)
_SEEN = ("seen_image", "seen_xy", "seen_depth")


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """One connected piece of the solve of a cluster, in a frame and a scale of its own. Images are those of the set."""

    images: np.ndarray  # [n] int64
    cam_from_world: np.ndarray  # [n, 4, 4]
    pose_std: np.ndarray  # [n, 6], as in Reconstruction
    camera_of_image: np.ndarray  # [n] int64
    focal_px: list[tuple[float, float, float]]
    """Of each camera: fx, fy, and the standard deviation."""
    log_depth: np.ndarray  # [n, m, m] float32
    log_variance: np.ndarray  # [n, m, m] float32
    edges: np.ndarray  # [e, 2] int64
    edge_weight: np.ndarray  # [e]
    seen_image: np.ndarray  # [k] int64
    seen_xy: np.ndarray  # [k, 2] float32, original pixels
    seen_depth: np.ndarray  # [k], what each image sees of the points at which depth
    explained: float
    """Explained matches as a part of the explainable ones."""
    unplaced: tuple[int, ...]
    """Images that only have a rough pose."""

    @property
    def centres(self) -> np.ndarray:  # [n, 3]
        rotation = self.cam_from_world[:, :3, :3]
        return -np.einsum("nji,nj->ni", rotation, self.cam_from_world[:, :3, 3])

    @property
    def astray(self) -> np.ndarray:  # [n] bool
        """Images whose place tells nothing: rough ones, those that hardly anything holds, and those that ran away along
        a chain of narrow baselines, to where all that they see is far larger or smaller than the rest."""
        depth = np.full(len(self.images), np.nan)
        for k, image in enumerate(self.images.tolist()):
            mine = self.seen_depth[self.seen_image == image]
            depth[k] = np.median(mine) if len(mine) else np.nan
        away = np.abs(np.log(np.maximum(depth, 1e-12) / self.depth))  # [n]
        sure = (away < np.log(RUNAWAY)) & (self.pose_std[:, 3:].max(axis=1) < MAX_STD * self.depth)
        return np.isin(self.images, self.unplaced) | ~sure

    @property
    def depth(self) -> float:
        """Median depth of what is seen: the unit of lengths in this part."""
        return float(np.median(self.seen_depth)) if len(self.seen_depth) else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Solved:
    """What the solve of a cluster has left."""

    parts: list[Part]
    level: str
    """good, check or distrust: the verdict."""
    text: str
    """The verdict in words, or why there is no result."""
    iterations: int
    seconds: float
    interrupted: bool


def cluster_payload(matches: Matches, members: np.ndarray, options: SolveOptions, try_: int) -> bytes:
    """The task of solving some images of a set, with the matches between them."""
    chosen = set(members.tolist())
    pairs = {pair: found for pair, found in sorted(matches.pairs.items()) if chosen.issuperset(pair)}
    counts = matches.graph_counts
    header = {
        "images": [asdict(matches.images[k]) for k in members.tolist()],
        "options": asdict(options),
        "try": try_,
        "graph": None if counts is None else [[*pair, n] for pair, n in sorted(counts.items()) if pair in pairs],
    }
    columns = [np.concatenate([found[k] for found in pairs.values()]) for k in range(3)] if pairs else []
    arrays = dict(zip(PairMatches._fields, columns, strict=False))
    arrays["members"] = members
    arrays["pairs"] = np.array(list(pairs), np.int64).reshape(-1, 2)
    arrays["lengths"] = np.array([len(found.scores) for found in pairs.values()], np.int64)
    return pack(header, arrays)


def solve_cluster(payload: bytes) -> bytes:
    """Task: an ordinary solve of the images of one cluster, with its verdict."""
    header, arrays = unpack(payload)
    members, matches = arrays["members"], _matches(header, arrays)
    options = settings_from(SolveOptions, header["options"])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the report of the whole says what is worth saying
            result = solve_matches(matches, options)
    except GeometryError as error:
        return pack({"parts": [], "level": "distrust", "text": str(error), "iterations": 0, "interrupted": False,
                     "seconds": 0.0})  # fmt: skip
    verdict = judge(matches, result)
    told: dict[str, Any] = {
        "level": verdict.level,
        "text": verdict.text,
        "iterations": result.pieces[0].iterations,
        "interrupted": result.interrupted,
        "seconds": sum(result.seconds.values()),
        "parts": [],
    }
    found: dict[str, np.ndarray] = {}
    for k, piece in enumerate(piece for piece in result.pieces if len(piece.reconstruction) >= FEWEST):
        values, arrays_of_part = _part(matches, members, piece)
        told["parts"].append(values)
        found |= {f"{name}_{k}": array for name, array in arrays_of_part.items()}
    return pack(told, found)


def read_solved(content: bytes) -> Solved:
    """What `solve_cluster` has left; any exception means that the bytes are damaged."""
    header, arrays = unpack(content)
    parts = [
        Part(
            **{name: arrays[f"{name}_{k}"] for name in (*_ARRAYS, *_SEEN)},
            focal_px=[(float(x), float(y), float(std)) for x, y, std in values["focal_px"]],
            explained=values["explained"],
            unplaced=tuple(values["unplaced"]),
        )
        for k, values in enumerate(header.pop("parts"))
    ]
    return Solved(parts=parts, **header)


def _matches(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Matches:
    local = {image: k for k, image in enumerate(arrays["members"].tolist())}
    matches = Matches([ImageInfo(**info) for info in header["images"]])
    ends = np.cumsum(arrays["lengths"])[:-1]
    columns = [np.split(arrays[name], ends) for name in PairMatches._fields if name in arrays]
    for k, (i, j) in enumerate(arrays["pairs"].tolist()):
        matches.pairs[local[i], local[j]] = PairMatches(*(column[k] for column in columns))
    if header["graph"] is not None:
        matches.graph_counts = {(local[i], local[j]): n for i, j, n in header["graph"]}
    return matches


def _part(matches: Matches, members: np.ndarray, piece: Piece) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    rec = piece.reconstruction
    index = {info.name: int(members[k]) for k, info in enumerate(matches.images)}
    log_depth, log_variance = maps_of(rec)
    images = _numbers(index, rec.image_names)
    focal = [[*(float(f) for f in camera.focal_px), camera.focal_std_px] for camera in rec.cameras]
    values = {
        "focal_px": [[x, y, std if np.isfinite(std) else x] for x, y, std in focal],
        "explained": explained_share(pair_facts(matches, rec)),
        "unplaced": [index[name] for name in piece.unplaced],
    }
    seen = rec.points.obs_image
    arrays = {
        "images": images,
        "camera_of_image": rec.camera_of_image,
        "cam_from_world": rec.cam_from_world,
        "pose_std": rec.pose_std,
        "log_depth": log_depth.astype(np.float32),
        "log_variance": log_variance.astype(np.float32),
        "edges": np.stack(
            [_numbers(index, [edge.i for edge in rec.edges]), _numbers(index, [e.j for e in rec.edges])], 1
        ),
        "edge_weight": np.array([edge.weight for edge in rec.edges]),
        "seen_image": images[seen],
        "seen_xy": rec.points.obs_xy,
        "seen_depth": _depths(rec),
    }
    return values, arrays


def _numbers(index: dict[str, int], names: Sequence[str]) -> np.ndarray:  # [n] int64
    return np.array([index[name] for name in names], np.int64)


def _depths(rec: Reconstruction) -> np.ndarray:  # [K]
    """Depth of the point of each observation in its camera."""
    pose = rec.cam_from_world[rec.points.obs_image, 2]  # [K, 4], the row of z
    xyz = rec.points.xyz[rec.points.obs_point]  # [K, 3]
    return np.einsum("ki,ki->k", pose[:, :3], xyz) + pose[:, 3]
