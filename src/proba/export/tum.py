"""Camera trajectories in the TUM RGB-D format: `timestamp tx ty tz qx qy qz qw`, world_from_cam."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from scipy.spatial.transform import Rotation

from proba.io.atomic import atomic_write_text
from proba.reconstruction import Reconstruction


def write_tum(reconstruction: Reconstruction, path: str | Path) -> None:
    """One line an image, by time. Times are the file names where all of these are numbers, else positions."""
    order, times = _times(reconstruction.image_names)
    world_from_cam = reconstruction.world_from_cam  # [N, 4, 4]
    quaternion = Rotation.from_matrix(world_from_cam[:, :3, :3]).as_quat()  # [N, 4] xyzw
    lines = ["# timestamp tx ty tz qx qy qz qw (world_from_cam, scene units)"]
    for n, time in zip(order, times, strict=True):
        numbers = [*world_from_cam[n, :3, 3], *quaternion[n]]
        lines.append(" ".join([time, *(f"{number:.10g}" for number in numbers)]))
    atomic_write_text(path, "\n".join(lines) + "\n")


def _times(names: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Order of the images [N] and their timestamps as text, which keeps all digits."""
    stems = [PurePosixPath(name).stem for name in names]
    try:
        seconds = np.array([float(stem) for stem in stems])
        if len(set(seconds.tolist())) == len(seconds) and np.isfinite(seconds).all():
            order = np.argsort(seconds)
            return order, [stems[n] for n in order]
    except ValueError:
        pass
    return np.arange(len(names)), [str(n) for n in range(len(names))]
