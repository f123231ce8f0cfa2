"""Cameras that moved together: which of them took each image, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from proba.errors import InputError
from proba.matches import KnownLens, Matches

FOLDERS = "folders"
SAME_PLACE = 1e-9
"""Cameras that are nearer to each other have one centre: what both see says nothing of where it is."""


@dataclass(frozen=True, kw_only=True)
class RigOptions:
    """What is known of cameras that moved together."""

    cameras: str | None = None
    """Cameras that moved together: `folders`, or a rig_config.json. A folder is a camera then, and equal file names are
    one moment; the file is COLMAP's."""
    use: Literal["fixed", "prior"] = "fixed"
    """Where the cameras sit, as far as the file says it: held (fixed), or a prior."""
    rotation_sigma_deg: float = 1.0
    """prior: standard deviation of a known rotation on the rig about each axis, degrees."""
    centre_sigma: float = 0.01
    """prior: standard deviation of a known centre on the rig along each axis, in the unit of the file."""
    max_loss: float = 0.05
    """Cameras are not taken for a rig where that explains so much less of the matches."""

    def __post_init__(self) -> None:
        if self.cameras is not None and self.cameras != FOLDERS:
            object.__setattr__(self, "cameras", str(Path(self.cameras).absolute()))
        if not (self.rotation_sigma_deg > 0 and self.centre_sigma > 0):
            raise InputError("Standard deviations of a rig must be positive.")
        if self.cameras is None and self.use != "fixed":
            raise InputError("A rig cannot be a prior without a file that tells it: give one with --rig.")


@dataclass(frozen=True, kw_only=True)
class PanoramaOptions:
    """Into which pinhole views panoramas are cut."""

    views: int = 6
    """Views around the horizon, each turned by the same angle."""
    fov_deg: float = 90.0
    """Field of view of each, degrees. They should overlap."""
    jpeg_quality: int = 95
    """Quality of the pictures of the views, 1 to 100."""

    def __post_init__(self) -> None:
        if not (2 <= self.views <= 36 and 30 <= self.fov_deg <= 120 and 1 <= self.jpeg_quality <= 100):
            raise InputError("Panoramas are cut into 2 to 36 views of 30 to 120 degrees.")


@dataclass(frozen=True, kw_only=True, eq=False)
class Sensor:
    """A camera of a rig."""

    name: str
    """What the names of its images begin with."""
    rig: int
    """Which rig it is on."""
    reference: bool = False
    """Whether its frame is that of the rig."""
    cam_from_rig: np.ndarray | None = None  # [4, 4]
    """Where it sits, if that is known beforehand."""
    lens: KnownLens | None = None
    """Its lens, if that is known beforehand."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rigs:
    """Which sensor took each of N images in which frame, a moment of a rig."""

    sensors: tuple[Sensor, ...]
    frames: tuple[str, ...]
    """Names of the moments."""
    sensor_of_image: np.ndarray  # [N] int, -1: of no rig
    frame_of_image: np.ndarray  # [N] int, -1: of no rig
    options: RigOptions

    def of(self, images: np.ndarray) -> Rigs:
        """Those of some images [M] int, in this order."""
        return replace(self, sensor_of_image=self.sensor_of_image[images], frame_of_image=self.frame_of_image[images])

    @property
    def rig_of_image(self) -> np.ndarray:  # [N] int, -1: of no rig
        rig = np.array([sensor.rig for sensor in self.sensors])
        return np.where(self.sensor_of_image >= 0, rig[self.sensor_of_image], -1)

    @property
    def ties(self) -> bool:
        """Whether any two of the images are of one frame."""
        frames = self.frame_of_image[self.frame_of_image >= 0]
        return len(np.unique(frames)) < len(frames)

    def incomplete(self) -> list[tuple[str, list[str]]]:
        """Frames that lack images of some sensors, with the names of these."""
        taken = {(f, s) for f, s in zip(self.frame_of_image.tolist(), self.sensor_of_image.tolist(), strict=True)}
        rig_of_frame = {f: self.sensors[s].rig for f, s in taken if f >= 0}
        found = []
        for frame, rig in sorted(rig_of_frame.items()):
            mine = [s for s, sensor in enumerate(self.sensors) if sensor.rig == rig]
            if lacking := [self.sensors[s].name for s in mine if (frame, s) not in taken]:
                found.append((self.frames[frame], lacking))
        return found

    def one_place(self, one: int, other: int) -> bool:
        """Whether two sensors are known to have one centre."""
        poses = [self.sensors[s].cam_from_rig for s in (one, other)]
        if poses[0] is None or poses[1] is None:
            return False
        centres = [-pose[:3, :3].T @ pose[:3, 3] for pose in poses if pose is not None]
        return bool(np.linalg.norm(centres[0] - centres[1]) < SAME_PLACE)


def with_rigs(matches: Matches, rigs: Rigs | None) -> Matches:
    """The matches with the cameras of the rigs: a camera for each sensor, with its lens if that is known. Matches of
    images of one moment and one place go: all they say is known."""
    if rigs is None:
        return matches
    images = list(matches.images)
    for k, s in enumerate(rigs.sensor_of_image.tolist()):
        if s < 0 or images[k].lens is not None:
            continue
        lens, key = rigs.sensors[s].lens, f"{images[k].camera_key} {rigs.sensors[s].name}".strip()
        images[k] = replace(images[k], camera_key=key) if lens is None else replace(images[k], lens=lens)
    sensor, frame = rigs.sensor_of_image, rigs.frame_of_image
    idle = [
        (i, j)
        for i, j in matches.pairs
        if frame[i] >= 0 and frame[i] == frame[j] and rigs.one_place(int(sensor[i]), int(sensor[j]))
    ]
    pairs = {pair: points for pair, points in matches.pairs.items() if pair not in set(idle)}
    return replace(matches, images=images, pairs=pairs)


def check_rigs(rigs: Rigs, source: str, names: Sequence[str]) -> None:
    """Refuse rigs that tie nothing, or whose names are not unique."""
    taken: dict[tuple[int, int], str] = {}
    for name, s, f in zip(names, rigs.sensor_of_image.tolist(), rigs.frame_of_image.tolist(), strict=True):
        if f >= 0 and (before := taken.setdefault((s, f), name)) != name:
            raise InputError(f"{before} and {name} are one moment of one camera. Leave one of them out.")
    if not rigs.ties:
        raise InputError(f"No two photos are of one moment by {source}. Cameras of a rig need equal file names.")
