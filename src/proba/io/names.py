"""Names of images are data: a model from elsewhere must not make us read or write outside the folders we were given."""

from __future__ import annotations

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
