"""Photos with ground truth, as the benchmarks read them: `images/` beside a `gt.json`, or a dataset's own layout."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proba.errors import InputError
from proba.io.datasets import LAYOUTS, Layout, layouts_of
from proba.io.ground_truth import GroundTruth, load_ground_truth

DEEPEST = 3
"""Levels below --data at which scenes are looked for: Rectified/scan24, reichstag/set_100."""


@dataclass(frozen=True, kw_only=True)
class PhotoSet:
    """One scene: photos, and where its truth is."""

    name: str
    folder: Path
    layout: str | None = None
    """Title of the dataset's layout; None: images/ and gt.json."""

    @property
    def dataset(self) -> str:
        """The dataset it belongs to, which its name begins with."""
        return dataset_of(self.name)

    def truth(self) -> GroundTruth:
        layout = self._layout()
        return load_ground_truth(self.folder / "gt.json") if layout is None else layout.load(self.folder)

    def images(self, cache: Path) -> Path:
        """Folder of the photos. Where they lie among other pictures, a folder of links to them in the cache."""
        layout = self._layout()
        if layout is None:
            return self.folder / "images"
        if not layout.mixed:
            return layout.photos(self.folder)
        links = cache / f"{self.name}.photos"
        for name in self.truth().names:
            link_photo(layout.photos(self.folder) / name, links / name)
        return links

    def _layout(self) -> Layout | None:
        return next((layout for layout in LAYOUTS if layout.title == self.layout), None)


def dataset_of(name: str) -> str:
    """The dataset that the name of a set begins with."""
    return name.partition("_")[0]


def find_sets(data: Path, names: Sequence[str] = ()) -> list[PhotoSet]:
    """The sets below a folder, or the folder itself if it is one; only those whose name holds one of `names`."""
    if not data.is_dir():
        raise InputError(f"there is no folder {data}; give --data a folder of sets (`proba bench datasets`)")
    chosen = [found for found in _walk(data, DEEPEST) if not names or any(name in found.name for name in names)]
    if not chosen:
        wanted = ", ".join(names) or "anything"
        raise InputError(
            f"no set in {data} is named like {wanted}; a set has images/ and gt.json, or a layout that "
            "`proba bench datasets` lists"
        )
    return chosen


def _walk(folder: Path, levels: int) -> Iterator[PhotoSet]:
    """The scenes at or below a folder, by name; nothing is looked for inside a scene."""
    if (folder / "gt.json").is_file():
        yield PhotoSet(name=folder.name, folder=folder)
        return
    layouts = layouts_of(folder)
    for layout in layouts:
        scene = layout.scene_name(folder)
        name = scene if scene.startswith(layout.name) else f"{layout.name}_{scene}"
        yield PhotoSet(name=name, folder=folder, layout=layout.title)
    if layouts or levels == 0:
        return
    for child in sorted(path for path in folder.iterdir() if path.is_dir()):
        yield from _walk(child, levels - 1)


def link_photo(photo: Path, link: Path) -> None:
    """Make a photo seen under another path."""
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.exists():
        return
    try:
        os.symlink(photo.resolve(), link)
    except OSError:  # Windows lets only some users make links
        shutil.copyfile(photo, link)
