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
    if problem.known is not None:
        digest.update(problem.known.cam_from_world.tobytes() + problem.known.sigma.tobytes())
    return digest.hexdigest()


def save_checkpoint(path: Path, *, worlds: Worlds, header: dict) -> None:
    """The random numbers of an iteration derive from seed and iteration, so there is no generator state to keep."""
    header = header | {"names": worlds.names, "mirror_of": worlds.mirror_of}
    arrays: dict[str, Any] = {name: tensor.cpu().numpy() for name, tensor in worlds.arrays().items()}
    write_npz(path, {"header": np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays})


def load_checkpoint(path: Path, *, key: str, like: Worlds) -> tuple[Worlds, dict]:
    """Worlds and header; refuses a checkpoint of other matches or settings than those of the fresh worlds `like`."""
    with reading(f"checkpoint {path}", "what this version wrote", "It is damaged: delete it and run again."):
        content = read_npz(path)
        header = parse_json(content.pop("header").tobytes())
        if header["key"] != key:
            raise InputError(
                f"checkpoint {path} belongs to other matches or settings; use those, or run without --resume"
            )
        arrays = {name: torch.from_numpy(values) for name, values in content.items()}
        _check_header(header, like)
        _check_shapes(arrays, len(header["names"]), like)
        return Worlds.from_arrays(header["names"], header["mirror_of"], arrays), header


def _check_header(header: dict, like: Worlds) -> None:
    names, mirror_of, history = header["names"], header["mirror_of"], header["history"]
    if not names or len(set(names)) < len(names) or not set(names) <= set(like.names) or not set(names) <= set(history):
        raise ValueError("its worlds are not those of this solve")
    if len(mirror_of) != len(names) or any(k is not None and not 0 <= k < len(names) for k in mirror_of):
        raise ValueError("it mirrors worlds that it does not have")
    if not (isinstance(header["iteration"], int) and header["iteration"] >= 0 and 0 < header["damping"] <= 1):
        raise ValueError("its iteration or its damping is impossible")


def _check_shapes(arrays: dict[str, torch.Tensor], n_worlds: int, like: Worlds) -> None:
    """All arrays as in fresh worlds, but for the number of worlds and of map cells, which change during a solve."""
    cells = arrays["maps"].shape[2:4]
    if len(cells) < 2 or cells[0] != cells[1] or cells[0] < 2:
        raise ValueError(f"maps have the shape {tuple(arrays['maps'].shape)}")
    for name, fresh in like.arrays().items():
        wanted = list(fresh.shape)
        if fresh.ndim:
            wanted[0] = n_worlds
        if name.startswith("map"):  # maps and their moments
            wanted[2:4] = cells if fresh.ndim else []
        found = arrays[name]
        if list(found.shape) != wanted or found.dtype != fresh.dtype:
            raise ValueError(f"{name} is {found.dtype} {tuple(found.shape)} instead of {fresh.dtype} {tuple(wanted)}")
