"""Camera poses that are known beforehand, roughly or well, and what is to be made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from proba.errors import InputError
from proba.geometry.sim3 import Sim3, umeyama_robust

Use = Literal["start", "prior", "fixed"]
UNKNOWN = np.inf
"""Standard deviation of what is not known."""


@dataclass(frozen=True, kw_only=True)
class KnownPoseOptions:
    """What is known of the poses, roughly or well."""

    file: str | None = None
    """Known poses: COLMAP model, transforms.json, TUM .txt."""
    use: Use = "start"
    """How known poses count: start (a world that others must beat), prior (they pull at the result), or fixed."""
    search: bool = True
    """start, prior: unless the poses explain nearly all matches, worlds from a cold start are searched as rivals."""
    rotation_sigma_deg: float = 2.0
    """prior: standard deviation of a known rotation about each axis, degrees."""
    centre_sigma: float | None = None
    """prior: standard deviation of a known camera centre along each axis, in the unit of the file. Must be given."""
    gps: bool = False
    """EXIF places are priors: metres, z up, y north."""
    gps_sigma_m: float = 5.0
    """Standard deviation of a GPS place along each horizontal axis, metres, where the photo does not tell its own."""
    gps_up_factor: float = 2.0
    """Heights are this many times less sure than places on the map."""
    outlier_sigmas: float = 5.0
    """A prior that the photos contradict by more standard deviations is left out, and named."""

    def __post_init__(self) -> None:
        if self.file is not None:
            object.__setattr__(self, "file", str(Path(self.file).absolute()))
        if self.file is None and self.use != "start":
            raise InputError(f"Poses cannot be used as {self.use} without a file of them: give one with --poses.")
        if self.use == "prior" and self.centre_sigma is None:
            raise InputError("Poses as a prior need --known.centre-sigma: how far off a known place may be.")
        if self.gps and self.file is not None:
            raise InputError("Give --poses or --gps: they may have different frames.")
        widths = (self.rotation_sigma_deg, self.gps_sigma_m, self.gps_up_factor, self.outlier_sigmas)
        if not min(widths) > 0 or (self.centre_sigma is not None and not self.centre_sigma > 0):
            raise InputError("Standard deviations of known poses must be positive.")

    @property
    def searches(self) -> bool:
        """Whether worlds from a cold start may compete with known poses."""
        return self.search and self.use != "fixed"


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownPoses:
    """What is known of N images. Where a rotation or a centre is not known, its standard deviation is infinite."""

    cam_from_world: np.ndarray  # [N, 4, 4] float64
    focal_px: np.ndarray  # [N] float64, NaN: not told
    sigma: np.ndarray  # [N, 6], rotation (rad, camera axes), centre (world axes)
    use: Use
    z_up: bool
    """Whether the world's z axis is up."""
    outlier_sigmas: float

    @property
    def posed(self) -> np.ndarray:  # [N] bool
        """Images whose rotation and centre are known."""
        return np.isfinite(self.sigma).all(axis=1)

    @property
    def placed(self) -> np.ndarray:  # [N] bool
        """Images whose centre is known."""
        return np.isfinite(self.sigma[:, 3:]).all(axis=1)

    @property
    def starts(self) -> bool:
        """Whether a world can begin with these poses."""
        return bool(self.posed.sum() >= 2)

    @property
    def anchors(self) -> bool:
        """Whether the result is held by these poses, and not only begun with them."""
        return self.use != "start"

    @property
    def centres(self) -> np.ndarray:  # [N, 3]
        rotation, translation = self.cam_from_world[:, :3, :3], self.cam_from_world[:, :3, 3]
        return -np.einsum("nji,nj->ni", rotation, translation)

    def of(self, images: np.ndarray) -> KnownPoses:
        """Those of some images [M] int, in this order."""
        return replace(
            self,
            cam_from_world=self.cam_from_world[images],
            focal_px=self.focal_px[images],
            sigma=self.sigma[images],
        )

    def frame(self, centres: np.ndarray, rotations: np.ndarray) -> Sim3 | None:
        """The robust similarity from another world, with these camera centres [N, 3] and rotations [N, 3, 3]
        (cam_from_world), into the world of the known poses; None where too little is known."""
        placed, posed = self.placed, self.posed
        if posed.sum() >= 2 and not _spread(self.centres[posed]):
            return self._frame_by_rotations(centres, rotations)
        if placed.sum() < 3 or not _spread(self.centres[placed]):
            return None
        return umeyama_robust(centres[placed], self.centres[placed])[0]

    def _frame_by_rotations(self, centres: np.ndarray, rotations: np.ndarray) -> Sim3 | None:
        """Cameras on one line fix no turn about it, but their rotations do."""
        posed = self.posed
        turn = np.einsum("nji,njk->ik", self.cam_from_world[posed, :3, :3], rotations[posed])  # [3, 3]
        left, _, right = np.linalg.svd(turn)
        rotation = (left * [1, 1, np.sign(np.linalg.det(left @ right))]) @ right
        source, target = centres[posed] @ rotation.T, self.centres[posed]
        a, b = (points - np.median(points, axis=0) for points in (source, target))
        length = float(np.linalg.norm(a))
        if length == 0:
            return None
        scale = float(np.linalg.norm(b)) / length
        return Sim3(scale, rotation, np.median(target - scale * source, axis=0)) if scale > 0 else None


MIN_SPREAD = 0.02
"""Places are on one line where their second extent is less than this share of the first."""


def _spread(places: np.ndarray) -> bool:
    """Whether places [M, 3] span a plane, so that they fix a similarity."""
    if len(places) < 3:
        return False
    extent = np.linalg.svd(places - places.mean(axis=0), compute_uv=False)
    return bool(extent[0] > 0 and extent[1] > MIN_SPREAD * extent[0])
