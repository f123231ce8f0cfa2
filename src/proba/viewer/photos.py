"""Small copies of the photos, read when they are needed."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import Image, ImageOps

from proba.errors import InputError


class Photos:
    """The photos of a result, or what is left of them: a missing one is None."""

    def __init__(self, folder: Path | None, names: Sequence[str]):
        self.folder, self.names = folder, list(names)
        self._cache: dict[tuple[int, int], np.ndarray | None] = {}

    def __call__(self, index: int, side_px: int) -> np.ndarray | None:  # [h, w, 3] uint8
        """A photo as it is shown, its longest side at most `side_px`."""
        key = (index, side_px)
        if key not in self._cache:
            self._cache[key] = self._read(self.names[index], side_px)
        return self._cache[key]

    def load(self, side_px: int) -> list[np.ndarray | None]:
        """All photos, several at a time."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda k: self(k, side_px), range(len(self.names))))

    def _read(self, name: str, side_px: int) -> np.ndarray | None:
        if self.folder is None or ".." in PurePosixPath(name).parts or Path(name).is_absolute():
            return None
        try:
            with Image.open(self.folder / name) as file:
                file.draft("RGB", (side_px, side_px))  # JPEG decoders can reduce while they read
                image = ImageOps.exif_transpose(file).convert("RGB")
            image.thumbnail((side_px, side_px), reducing_gap=2.0)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None
        return np.asarray(image)


def find_photos(folder: Path, given: Path | None) -> Path | None:
    """Where the photos of a result are: as told, as the report remembers, or in the result itself."""
    if given is not None:
        if not given.is_dir():
            raise InputError(f"There is no folder {given}. Give --images the folder of the photos.")
        return given
    try:
        remembered = json.loads((folder / "report.json").read_text(encoding="utf-8")).get("image_folder")
    except (OSError, ValueError, AttributeError):
        remembered = None
    candidates = [Path(remembered)] if isinstance(remembered, str) else []
    return next((path for path in [*candidates, folder / "images"] if path.is_dir()), None)


def jpeg(rgb: np.ndarray, quality: int = 80) -> bytes:
    """A picture [h, w, 3] as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
