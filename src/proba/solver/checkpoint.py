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
from proba.io.npz import read_npz, write_npz
from proba.io.reading import parse_json, reading
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
    write_npz(path, {"header": np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays})


def load_checkpoint(path: Path, *, key: str) -> tuple[Worlds, dict]:
    """Worlds and header; refuses a checkpoint of other matches or settings."""
    with reading(f"checkpoint {path}", "what this version wrote", "It is damaged: delete it and run again."):
        content = read_npz(path)
        header = parse_json(content.pop("header").tobytes())
        if header["key"] != key:
            raise InputError(
                f"checkpoint {path} belongs to other matches or settings; use those, or run without --resume"
            )
        arrays = {name: torch.from_numpy(values) for name, values in content.items()}
        return Worlds.from_arrays(header["names"], header["mirror_of"], arrays), header
