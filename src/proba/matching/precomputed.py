"""Matches that another program has made, taken through verification, triplets and densification like all others."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from proba.errors import InputError
from proba.io.foreign_matches import import_matches
from proba.io.images import Pixels
from proba.io.matches_h5 import h5_name
from proba.matches import PairMatches
from proba.matching.matcher import Features, empty_matches
from proba.matching.verify import SEMI_DENSE


class Precomputed:
    """Looks matches up in a file that `proba import` can read."""

    max_side_px = 64  # only the name of a photo is needed
    keep_features = False
    preview = 0
    bounds = SEMI_DENSE

    def __init__(self, file: Path | None, *, for_matcher: str = "precomputed"):
        if file is None:
            raise InputError(f"The matcher {for_matcher} needs a matches file: give it with --weights FILE.")
        matches = import_matches(file)
        names = [h5_name(image.name) for image in matches.images]
        self._pairs = {(names[i], names[j]): pair for (i, j), pair in matches.pairs.items()}
        self._digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]

    def settings(self) -> dict[str, Any]:
        return {"matcher": "precomputed", "file": self._digest}

    def extract(self, pixels: Pixels) -> Features:
        return {"name": np.array(h5_name(pixels.name))}

    def match(self, one: Features, other: Features) -> PairMatches:
        names = str(one["name"]), str(other["name"])
        if names[::-1] in self._pairs:
            found = self._pairs[names[::-1]]
            return PairMatches(found.points_j, found.points_i, found.scores)
        return self._pairs.get(names, empty_matches())
