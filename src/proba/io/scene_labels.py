"""Labels of mixed photo folders, as in the Image Matching Challenge 2025: which photo shows which scene, from where."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from proba.errors import InputError
from proba.io.reading import reading

LABELS_FILE, THRESHOLDS_FILE = "labels.csv", "thresholds.csv"
STRANGERS = "outliers"
"""The scene of photos that belong to none."""


@dataclass(frozen=True, kw_only=True)
class LabelledScene:
    """The photos of one scene and where they were taken from."""

    name: str
    images: list[str]
    cam_from_world: np.ndarray  # [N, 4, 4]
    thresholds: np.ndarray  # [T], ascending distances at which a camera counts as placed, in units of the labels

    @property
    def centres(self) -> np.ndarray:  # [N, 3]
        rotation, translation = self.cam_from_world[:, :3, :3], self.cam_from_world[:, :3, 3]
        return -np.einsum("nji,nj->ni", rotation, translation)


def load_scenes(folder: Path) -> list[LabelledScene]:
    """The scenes of a folder with labels.csv and thresholds.csv, in the order of the labels."""
    labels, thresholds = folder / LABELS_FILE, folder / THRESHOLDS_FILE
    advice = "Its columns are scene, image, R (nine numbers, row by row) and t (three), numbers separated by ';'."
    poses: dict[str, dict[str, np.ndarray]] = {}
    with reading(labels, "a table of labels", advice), labels.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["scene"] != STRANGERS:
                pose = np.eye(4)
                pose[:3, :3], pose[:3, 3] = _numbers(row["R"]).reshape(3, 3), _numbers(row["t"])
                poses.setdefault(row["scene"], {})[row["image"]] = pose
    advice = "Its columns are scene and thresholds (distances, separated by ';')."
    with reading(thresholds, "a table of thresholds", advice), thresholds.open(encoding="utf-8", newline="") as file:
        bounds = {row["scene"]: np.sort(_numbers(row["thresholds"])) for row in csv.DictReader(file)}
    missing = sorted(set(poses) - set(bounds))
    if missing:
        raise InputError(f"{thresholds} has no thresholds for the scene {missing[0]}. Add them.")
    return [
        LabelledScene(name=name, images=list(of), cam_from_world=np.stack(list(of.values())), thresholds=bounds[name])
        for name, of in poses.items()
    ]


def _numbers(text: str) -> np.ndarray:
    values = np.array(text.split(";"), np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    return values
