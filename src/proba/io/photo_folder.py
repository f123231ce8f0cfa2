"""Where the photos and masks of a result are."""

from __future__ import annotations

import warnings
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


def mask_folder(result: Path, given: Path | None = None) -> Path | None:
    """The folder of the masks: as given, or the one that the photos were matched with, as report.json remembers."""
    matching = _report(result).get("matching")
    remembered = matching.get("masks") if isinstance(matching, dict) else None
    if given is not None or not isinstance(remembered, str):
        return given
    found = next((path for path in (result / remembered, Path(remembered)) if path.is_dir()), None)
    if found is None:
        warnings.warn(f"the masks are no longer in {remembered}; give their folder with --masks", stacklevel=2)
    return found


def _remembered(result: Path) -> str | None:
    """The folder of the photos in report.json."""
    remembered = _report(result).get("image_folder")
    return remembered if isinstance(remembered, str) else None


def _report(result: Path) -> dict:
    """The content of report.json; nothing if there is none that can be read."""
    try:
        report = read_json(result / "report.json")
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def _holds_any(folder: Path, names: Sequence[str]) -> bool:
    return any(is_safe_name(name) and (folder / name).is_file() for name in names)
