"""Small copies of the photos, read when they are needed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from proba.io.names import is_safe_name


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
        if self.folder is None or not is_safe_name(name):
            return None
        try:
            with Image.open(self.folder / name) as file:
                file.draft("RGB", (side_px, side_px))  # JPEG decoders can reduce while they read
                image = ImageOps.exif_transpose(file).convert("RGB")
            image.thumbnail((side_px, side_px), reducing_gap=2.0)
        except Exception:  # decoders answer damaged files with every kind of exception there is
            return None
        return np.asarray(image)


def jpeg(rgb: np.ndarray, quality: int = 80) -> bytes:
    """A picture [h, w, 3] as JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()
