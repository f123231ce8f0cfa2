"""What the solver hands to the refinement, in a folder: `run.json`, and a file for each run on a connected piece."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from proba.cameras import AUTO, CameraSetup
from proba.errors import InputError
from proba.graph import ViewGraph
from proba.io.atomic import atomic_write_text
from proba.io.npz import read_npz, write_npz
from proba.io.reading import parse_json, read_json, reading
from proba.matches import KnownLens, Matches
from proba.solution import ClusterReport, Hypothesis, Solution, SolverRun

SOLVER_FOLDER = "solver"
"""Name of the folder within a result folder."""
_RUN = "run.json"
_SUFFIXES = ("", "-again", "-third")
ATTEMPTS = len(_SUFFIXES)
"""Runs on a piece at most: known poses, the search, and a longer one."""
_ARRAYS = ("cam_from_world", "focal_px", "log_depth", "log_variance", "edge_weight")
_CAMERAS = ("camera_of_image", "known_focal_px", "by_size_alone")
_GRAPH = ("images", "parent", "edges", "is_tree", "similarity", "initial_weight")


@dataclass(frozen=True, kw_only=True)
class SolverFolder:
    """The runs of the solver on all connected pieces of one set of matches."""

    path: Path
    matches_hash: str
    """Of the matches that were solved, see `hash_of`."""
    settings: dict[str, Any]
    """All settings of the run, as plain values."""
    unmatched: list[str]
    """Images that match no other image."""
    pieces: int
    """Connected pieces of the view graph, largest first; not all need be solved yet."""
    images: str | None = None
    """Folder of the photos, absolute; None: not known."""
    matches: str | None = None
    """File of the matches, absolute; None: they were given in memory."""

    @property
    def key(self) -> str:
        """Which matches and settings the files belong to; files of an earlier run in the same folder have another."""
        text = json.dumps([self.matches_hash, self.settings], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def start(self) -> None:
        """Write what all pieces have in common."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "path"}
        atomic_write_text(self.path / _RUN, json.dumps(values, indent=1))

    def save(self, piece: int, attempt: int, run: SolverRun) -> None:
        """Write one run on a piece; attempts count from 0."""
        graph, first = run.solutions[0].graph, run.solutions[0]
        header = {
            "key": self.key,
            "root": int(graph.root),
            "focal_sigma": first.cameras.focal_sigma,
            "model": first.cameras.model,
            "lenses": [[lens and asdict(lens) for lens in world.cameras.lenses] for world in run.solutions],
            "iterations": run.iterations,
            "interrupted": run.interrupted,
            "seconds": run.seconds,
            "clusters": [asdict(cluster) for cluster in run.clusters],
            "hypotheses": [asdict(hypothesis) for hypothesis in run.hypotheses],
            "solutions": [
                {
                    "name": world.name,
                    "loss": float(world.loss),
                    "epipolar_share": float(world.epipolar_share),
                    "given": None if world.given is None else world.given.tolist(),
                }
                for world in run.solutions
            ],
        }
        arrays = {f"graph_{name}": getattr(graph, name) for name in _GRAPH}
        arrays |= {f"cameras_{name}": getattr(first.cameras, name) for name in _CAMERAS}
        arrays |= {name: np.stack([getattr(world, name) for world in run.solutions]) for name in _ARRAYS}
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        write_npz(self._file(piece, attempt), arrays)

    def load(self, piece: int, attempt: int = 0) -> SolverRun | None:
        """One run on a piece; None if there was none."""
        path = self._file(piece, attempt)
        if not path.exists():
            return None
        with reading(path, "what a solver left", "It is damaged: run `proba solve` again."):
            arrays = read_npz(path)
            header = parse_json(arrays.pop("header").tobytes())
            return _run(header, arrays) if header["key"] == self.key else None

    def _file(self, piece: int, attempt: int) -> Path:
        return self.path / f"piece{piece}{_SUFFIXES[attempt]}.npz"


def open_solver_folder(result: Path) -> SolverFolder:
    """The solver's folder in a result folder."""
    path = result / SOLVER_FOLDER
    if not (path / _RUN).is_file():
        raise InputError(f"{result} holds nothing that a solver left ({SOLVER_FOLDER}/{_RUN}); run `proba solve` first")
    with reading(path / _RUN, "what a solver left", "It is damaged: run `proba solve` again."):
        return SolverFolder(path=path, **read_json(path / _RUN))


def hash_of(matches: Matches) -> str:
    """Tells matches of one set from those of another."""
    digest = hashlib.sha256(json.dumps([info.stored for info in matches.images]).encode())
    for (i, j), pair in sorted(matches.pairs.items()):
        digest.update(np.array([i, j], np.int64).tobytes())
        for values in pair:
            digest.update(np.ascontiguousarray(values).tobytes())
    if matches.graph_counts is not None:
        digest.update(json.dumps(sorted(matches.graph_counts.items())).encode())
    return digest.hexdigest()


def _lens(values: dict) -> KnownLens:
    tuples = {name: tuple(values[name]) for name in ("params", "sigma")}
    return KnownLens(model=values["model"], assumed=values["assumed"], **tuples)


def _run(header: dict, arrays: dict[str, np.ndarray]) -> SolverRun:
    graph = ViewGraph(root=header["root"], **{name: arrays[f"graph_{name}"] for name in _GRAPH})
    known: dict[str, Any] = {name: arrays[f"cameras_{name}"] for name in _CAMERAS}
    cameras = CameraSetup(focal_sigma=header["focal_sigma"], model=header.get("model", AUTO), **known)
    told = header.get("lenses") or [[] for _ in header["solutions"]]
    lenses = [tuple(None if lens is None else _lens(lens) for lens in of_world) for of_world in told]
    solutions = [
        Solution(
            graph=graph,
            name=world["name"],
            loss=world["loss"],
            epipolar_share=world["epipolar_share"],
            cameras=replace(cameras, lenses=lenses[k]),
            given=None if world.get("given") is None else np.array(world["given"], bool),
            **{name: arrays[name][k] for name in _ARRAYS},
        )
        for k, world in enumerate(header["solutions"])
    ]
    return SolverRun(
        solutions=solutions,
        hypotheses=[
            Hypothesis(**{**hypothesis, "curve": [tuple(point) for point in hypothesis["curve"]]})
            for hypothesis in header["hypotheses"]
        ],
        iterations=header["iterations"],
        interrupted=header["interrupted"],
        seconds=header["seconds"],
        clusters=[ClusterReport(**cluster) for cluster in header.get("clusters", [])],
    )
