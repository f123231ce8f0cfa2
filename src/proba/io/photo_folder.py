"""Where the photos of a result are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proba.errors import InputError
from proba.io.names import is_safe_name
from proba.io.reading import read_json


def find_photo_folder(result: Path, names: Sequence[str], given: Path | None = None) -> Path | None:
    """The folder that holds at least one of the named photos: as given, as report.json remembers, or RESULT/images."""
    if given is not None:
        if not given.is_dir():
            raise InputError(f"There is no folder {given}. Give --images the folder of the photos.")
        if not _holds_any(given, names):
            raise InputError(f"{given} does not hold the photo {names[0]}. Give --images the folder of the photos.")
        return given
    remembered = _remembered(result)
    candidates = [] if remembered is None else [result / remembered, Path(remembered)]
    return next((path for path in [*candidates, result / "images"] if _holds_any(path, names)), None)


def photo_folder(result: Path, names: Sequence[str], given: Path | None = None) -> Path:
    """As `find_photo_folder`, for work that cannot be done without the photos."""
    found = find_photo_folder(result, names, given)
    if found is None:
        remembered = _remembered(result)
        told = f"the photos are no longer in {remembered}" if remembered else f"{result} does not say where they are"
        raise InputError(f"This needs the photos, and {told}. Give their folder with --images.")
    return found


def _remembered(result: Path) -> str | None:
    """What report.json says."""
    try:
        remembered = read_json(result / "report.json").get("image_folder")
    except (OSError, ValueError, AttributeError):
        return None
    return remembered if isinstance(remembered, str) else None


def _holds_any(folder: Path, names: Sequence[str]) -> bool:
    return any(is_safe_name(name) and (folder / name).is_file() for name in names)
