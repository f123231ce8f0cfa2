"""What a matches file remembers of the matching."""

from __future__ import annotations

from pathlib import Path

import h5py

from proba.io.matches_h5 import DAMAGED, META_GROUP, read_graph, read_text
from proba.io.reading import Allowance, parse_json, reading


def matching_facts(path: Path) -> dict | None:
    """Matchers, pairs tried and kept, the folder of the masks; None where the file does not say (other programs')."""
    if not h5py.is_hdf5(path):
        return None
    with reading(path, "a matches file that can be read", DAMAGED), h5py.File(path) as file:
        if f"{META_GROUP}/matching" not in file:
            return None
        origin = parse_json(read_text(file[META_GROUP]["matching"], Allowance(path)))
        graph = read_graph(file, Allowance(path))
        counts = [sum(part[2] for part in parts) for _, _, parts in origin["pairs"]]
        return {
            "matchers": sorted({str(settings["matcher"]) for settings in origin["settings"].values()}),
            **({} if graph is None else {"graph_matcher": graph[0]}),
            "pairs_tried": len(counts),
            "pairs_kept": sum(count > 0 for count in counts),
            "matches": int(sum(counts)),
            "masks": None if origin.get("masks") is None else str(origin["masks"]),
            "subject_alone": any(bool(settings.get("subject")) for settings in origin["settings"].values()),
        }
