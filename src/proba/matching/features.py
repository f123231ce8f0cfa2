"""Features of all photos of a set without all of them in memory: a bounded cache over a folder of files."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections import OrderedDict
from pathlib import Path

from proba.errors import StorageError
from proba.io.images import BYTES_PER_PIXEL, Photo, load_pixels
from proba.io.npz import read_npz, write_npz
from proba.matching.matcher import Extractor, Features
from proba.memory import Budget

EXTRACTION_BYTES_PER_PIXEL = 240  # SIFT's pyramid: eleven float32 pictures of twice the sides, and smaller ones


class FeatureCache:
    """Gives the features of a photo, making them when they are asked for the first time."""

    def __init__(self, matcher: Extractor, folder: Path, key: str, *, held_bytes: float, budget: Budget):
        self.matcher = matcher
        self.folder = folder
        self.key = key
        self._held_bytes = held_bytes
        self._budget = budget  # of all photos that are worked on at a time
        self._held: OrderedDict[str, Features] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, photo: Photo) -> Features:
        """Features of a photo."""
        with self._lock:
            if photo.digest in self._held:
                self._held.move_to_end(photo.digest)
                return self._held[photo.digest]
        features = self._load(photo)  # outside the lock, so that several photos can be worked on at once
        with self._lock:
            if photo.digest not in self._held:
                self._held[photo.digest] = features
                self._size += _bytes(features)
            while self._size > self._held_bytes and len(self._held) > 2:
                _, old = self._held.popitem(last=False)
                self._size -= _bytes(old)
        return features

    def file(self, photo: Photo) -> Path:
        """Where the features of a photo are kept on disk."""
        return self.folder / f"{photo.digest}-{self.key}.npz"

    def clear(self) -> None:
        """Remove the files: they are only needed until all pairs are matched."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _load(self, photo: Photo) -> Features:
        if not self.matcher.keep_features:
            return self._extract(photo)
        path = self.file(photo)
        try:
            return read_npz(path)
        except Exception:  # not made yet, or damaged in any way: both mean that it has to be made
            pass
        features = self._extract(photo)
        # On a full disk they are made again when needed; the journal of matches is the one to complain.
        with contextlib.suppress(OSError, StorageError):
            write_npz(path, features)
        return features

    def _extract(self, photo: Photo) -> Features:
        with self._budget.take(working_bytes(photo, self.matcher.max_side_px)):
            return self.matcher.extract(load_pixels(photo, self.matcher.max_side_px))


def working_bytes(photo: Photo, max_side_px: int | None) -> float:
    """What decoding a photo, and then looking for features in its reduced copy, needs at most."""
    width, height = photo.info.width, photo.info.height
    factor = 1.0 if max_side_px is None else min(1.0, max_side_px / max(width, height))
    return width * height * max(BYTES_PER_PIXEL, factor**2 * EXTRACTION_BYTES_PER_PIXEL)


def _bytes(features: Features) -> int:
    return sum(value.nbytes for value in features.values())
