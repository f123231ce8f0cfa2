"""Names of images are data: a model from elsewhere must not make us read or write outside the folders we were given."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from proba.errors import InputError


def is_safe_name(name: str) -> bool:
    """Whether a name stays below the folder it is looked for in, on any operating system."""
    windows = PureWindowsPath(name)  # also splits at "/"
    outside = windows.drive or windows.root or ".." in windows.parts
    return bool(windows.parts) and not outside and "\0" not in name


def safe_relative_path(name: str) -> PurePosixPath:
    """The name as a path below a folder; refuses names that lead out of it."""
    if not is_safe_name(name):
        raise InputError(f"The image name {name!r} leads out of its folder. Rename the image in the model.")
    return PurePosixPath(name)


def flat_names(names: Sequence[str]) -> list[str]:
    """The names without folders, all different, for programs that look at the last part of a name alone."""
    flat: list[str] = []
    taken: set[str] = set()
    for name in names:
        wish = "_".join(safe_relative_path(name).parts)
        free, count = wish, 1
        while free.lower() in taken:  # some file systems do not tell case apart
            count += 1
            free = f"{count}_{wish}"
        taken.add(free.lower())
        flat.append(free)
    return flat
