"""Pictures as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from proba.errors import InputError
from proba.io.atomic import atomic_file


def write_picture(path: str | Path, picture: Image.Image, **options: Any) -> None:
    """Write a picture in the format that the suffix names, whole or not at all; the options are Pillow's."""
    suffix = Path(path).suffix.lower()
    form = Image.registered_extensions().get(suffix)
    if form not in Image.SAVE:
        raise InputError(f"{path} cannot be written: pictures have names that end in .png or .jpg, not {suffix!r}.")
    with atomic_file(path) as file:
        picture.save(file, form, **options)
