"""Checkpoints of a solve: written atomically, continued bit for bit."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from proba._version import __version__
from proba.errors import InputError
from proba.io.atomic import atomic_path
from proba.solver.options import SolverOptions
from proba.solver.problem import Problem
from proba.solver.worlds import Worlds


def fingerprint(problem: Problem, options: SolverOptions) -> str:
    """Hash of the matches and settings that a checkpoint belongs to."""
    settings = {name: value for name, value in asdict(options).items() if name != "checkpoint_seconds"}
    settings |= {"seed": problem.seed, "focal_sigma": problem.cameras.focal_sigma}
    digest = hashlib.sha256(f"{__version__} {json.dumps(settings, sort_keys=True)}".encode())
    packed = problem.matches
    constant = (packed.edges, packed.count, packed.x_i, packed.y_i, packed.x_j, packed.y_j)
    for tensor in (*constant, problem.camera_of_image, problem.known_log_tan):
        digest.update(np.ascontiguousarray(tensor.numpy()).tobytes())
    return digest.hexdigest()


def save_checkpoint(path: Path, *, worlds: Worlds, header: dict) -> None:
    """The random numbers of an iteration derive from seed and iteration, so there is no generator state to keep."""
    header = header | {"names": worlds.names, "mirror_of": worlds.mirror_of}
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in worlds.arrays().items()}
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)


def load_checkpoint(path: Path, *, key: str) -> tuple[Worlds, dict]:
    """Worlds and header; refuses a checkpoint of other matches or settings."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            arrays = {name: torch.from_numpy(file[name]) for name in file.files if name != "header"}
    except Exception as error:
        raise InputError(f"checkpoint {path} is damaged ({error}); delete it and run again") from error
    if header["key"] != key:
        raise InputError(f"checkpoint {path} belongs to other matches or settings; use those, or run without --resume")
    return Worlds.from_arrays(header["names"], header["mirror_of"], arrays), header
