"""Features of all photos of a set without all of them in memory: a bounded cache over a folder of files."""

from __future__ import annotations

import contextlib
import shutil
import threading
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np

from proba.io.atomic import atomic_path
from proba.io.images import Photo, load_pixels
from proba.matching.matcher import Extractor, Features


class FeatureCache:
    """Gives the features of a photo, making them when they are asked for the first time."""

    def __init__(self, matcher: Extractor, folder: Path, key: str, *, memory_mb: int = 1024):
        self.matcher = matcher
        self.folder = folder
        self.key = key
        self._budget = memory_mb * 1024**2
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
            while self._size > self._budget and len(self._held) > 2:
                _, old = self._held.popitem(last=False)
                self._size -= _bytes(old)
        return features

    def clear(self) -> None:
        """Remove the files: they are only needed until all pairs are matched."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _load(self, photo: Photo) -> Features:
        if not self.matcher.keep_features:
            return self._extract(photo)
        path = self.folder / f"{photo.digest}-{self.key}.npz"
        try:
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            pass  # not made yet, or by a run that was killed: both mean that it has to be made
        features = self._extract(photo)
        # On a full disk they are made again when needed; the journal of matches is the one to complain.
        with contextlib.suppress(OSError), atomic_path(path) as temporary:
            np.savez(temporary, **features)  # type: ignore[arg-type]
        return features

    def _extract(self, photo: Photo) -> Features:
        return self.matcher.extract(load_pixels(photo, self.matcher.max_side_px))


def _bytes(features: Features) -> int:
    return sum(value.nbytes for value in features.values())
