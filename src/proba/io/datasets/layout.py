"""What is known of a dataset's layout, and what all loaders need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from proba.io.ground_truth import GroundTruth, checked, image_size
from proba.io.reading import reading

PHOTO_SUFFIXES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One published layout of one scene."""

    name: str
    """Short name, as in tables and at the front of the names of sets."""
    title: str
    source: str
    """Where to get it."""
    licence: str
    """What its site says of the use of the data."""
    tree: str
    """The files of one scene, a line each."""
    recognises: Callable[[Path], bool]
    """Whether a folder is a scene in this layout."""
    photos: Callable[[Path], Path]
    """Folder of the photos of a scene."""
    read: Callable[[Path], GroundTruth]
    """Its true cameras."""
    mixed: bool = False
    """The folder of the photos holds other pictures too; only those that the truth names are photos."""
    scene_name: Callable[[Path], str] = lambda folder: folder.name
    """What the scene is called; of 7-Scenes' seq-01 one wants to know of which scene."""

    def load(self, folder: Path) -> GroundTruth:
        """The true cameras, after a look at every number."""
        advice = f"Compare it with the layout that `proba bench datasets` shows for {self.name}."
        with reading(folder, f"a scene of {self.title} that can be read", advice):
            return checked(self.read(folder))


def photos_in(folder: Path) -> list[Path]:
    """Photos of a folder itself, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in PHOTO_SUFFIXES)


def first_folder(scene: Path, names: Sequence[str]) -> Path:
    """The first of these folders that exists, or the scene itself."""
    return next((scene / name for name in names if (scene / name).is_dir()), scene)


def sizes_px(paths: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:  # [N], [N]
    """Widths and heights of photos."""
    if not paths:
        raise ValueError("it has no photos")
    width, height = np.array([image_size(path) for path in paths]).T
    return width, height


def pinhole(matrix: np.ndarray, *, pixel_centre: float) -> np.ndarray:  # [..., 4]
    """fx, fy, cx, cy of calibration matrices [..., 3, 3] whose first pixel centre is at `pixel_centre`."""
    matrix = matrix / matrix[..., 2:, 2:]
    shift = 0.5 - pixel_centre  # ours is at (0.5, 0.5)
    return np.stack(
        [matrix[..., 0, 0], matrix[..., 1, 1], matrix[..., 0, 2] + shift, matrix[..., 1, 2] + shift], axis=-1
    )


def inverted(world_from_cam: np.ndarray) -> np.ndarray:  # [N, 4, 4]
    """cam_from_world of poses [N, 3 or 4, 4] that map from the camera to the world."""
    result = np.tile(np.eye(4), (len(world_from_cam), 1, 1))
    result[:, :3, :3] = world_from_cam[:, :3, :3].transpose(0, 2, 1)
    result[:, :3, 3] = -np.einsum("nji,nj->ni", world_from_cam[:, :3, :3], world_from_cam[:, :3, 3])
    return result
