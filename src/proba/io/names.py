"""Names of images are data: a file from elsewhere must not make us read or write outside the folders we were given.

Every reader passes the names it finds through `check_name`, so that nothing behind it sees a hostile one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import PurePosixPath, PureWindowsPath

from proba.errors import InputError

MAX_CHARACTERS = 1024
UNPRINTABLE = {"Cc": "a control character", "Zl": "a line break", "Zp": "a line break", "Cs": "bytes that are no UTF-8"}
"""Categories of characters that break text files and terminals, and what a user calls them."""


def name_problem(name: str) -> str | None:
    """What keeps a name from being one of an image below a folder, on any operating system; None if nothing does."""
    windows = PureWindowsPath(name)  # also splits at "/"
    if windows.drive or windows.root or ".." in windows.parts:
        return "leads out of its folder"
    if not windows.parts:
        return "is empty"
    if len(name) > MAX_CHARACTERS:
        return f"has more than {MAX_CHARACTERS} characters"
    found = (UNPRINTABLE.get(unicodedata.category(character)) for character in name)
    what = next((text for text in found if text), None)
    return f"holds {what}" if what else None


def is_safe_name(name: str) -> bool:
    """Whether a name stays below the folder it is looked for in, and fits into one line of text."""
    return name_problem(name) is None


def check_name(name: object) -> str:
    """The name of an image in a file; ValueError says what is wrong with it."""
    if not isinstance(name, str):
        raise ValueError(f"the name of an image is {name!r}"[:200])
    problem = name_problem(name)
    if problem:
        raise ValueError(f"the image name {name[:100]!r} {problem}")
    return name


def safe_relative_path(name: str) -> PurePosixPath:
    """The name as a path below a folder; refuses names that lead out of it."""
    problem = name_problem(name)
    if problem:
        raise InputError(f"The image name {name[:100]!r} {problem}. Rename the image in the model.")
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
