"""What a matches file remembers of the matching."""

from __future__ import annotations

import json
from pathlib import Path

import h5py

from proba.io.matches_h5 import META_GROUP


def matching_facts(path: Path) -> dict | None:
    """Matchers, and pairs tried and kept; None where the file does not say (matches of other programs)."""
    if not h5py.is_hdf5(path):
        return None
    with h5py.File(path, "r") as file:
        if f"{META_GROUP}/matching" not in file:
            return None
        origin = json.loads(file[META_GROUP]["matching"][()])
    counts = [sum(part[2] for part in parts) for _, _, parts in origin["pairs"]]
    return {
        "matchers": sorted({settings["matcher"] for settings in origin["settings"].values()}),
        "pairs_tried": len(counts),
        "pairs_kept": sum(count > 0 for count in counts),
        "matches": sum(counts),
    }
