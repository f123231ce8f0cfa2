"""Photos with ground truth, as the benchmarks read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proba.errors import InputError
from proba.io.ground_truth import GroundTruth, load_ground_truth


@dataclass(frozen=True, kw_only=True)
class PhotoSet:
    """One scene: photos, and where its truth is."""

    name: str
    images: Path
    """Folder of the photos."""
    truth_path: Path

    def truth(self) -> GroundTruth:
        return load_ground_truth(self.truth_path)


def find_sets(data: Path, names: Sequence[str] = ()) -> list[PhotoSet]:
    """The sets below a folder, or the folder itself if it is one; only those whose name holds one of `names`."""
    if not data.is_dir():
        raise InputError(f"there is no folder {data}; give --data a folder of sets, each with images/ and gt.json")
    folders = [data] if (data / "gt.json").is_file() else sorted(p.parent for p in data.glob("*/gt.json"))
    chosen = [
        PhotoSet(name=folder.name, images=folder / "images", truth_path=folder / "gt.json")
        for folder in folders
        if not names or any(name in folder.name for name in names)
    ]
    if not chosen:
        raise InputError(f"no set with images/ and gt.json in {data} is named like {', '.join(names) or 'anything'}")
    return chosen
