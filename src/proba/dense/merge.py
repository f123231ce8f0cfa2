"""Many depth maps to one surface: every depth is judged by the other photos, and places seen by several become one
point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from proba.dense.confirm import claim, confirm, score_differences
from proba.dense.stereo import row_bands, transfer
from proba.io.dense_folder import DepthMap
from proba.point_cloud import Cloud
from proba.reconstruction import Camera, Reconstruction
from proba.threads import in_parallel

BINS = 101
NORMAL_MEDIAN = 0.6745
"""Median of the absolute value of a standard normal variable."""
SCALE_RANGE = (0.3, 10.0)
CALIBRATION_IMAGES = 12
"""Images, evenly spread, whose differences to others set the scale of the deviations."""


SPECK_APART = 0.02
"""Share of the depth by which neighbouring pixels of one surface may differ."""
SPECK_SHARE = 8e-5
"""Of the pixels of a photo: smaller patches of surface stand alone and are taken for mistakes."""
BARE_CONTRAST = 3.0
"""Standard deviation of the grey values (of 255) around a pixel below which its surface is called bare."""
CONTRAST_SIDE_PX = 11


@dataclass(frozen=True, eq=False, kw_only=True)
class PhotoMaps:
    """What the search has found in one photo."""

    camera: Camera
    rho: np.ndarray  # [h, w] float32, inverse depth
    sigma: np.ndarray  # [h, w] float32, its deviation; 0: none
    normal: np.ndarray  # [h, w, 3] int8
    slope: np.ndarray  # [h, w, 2] float32, of the inverse depth, as a share of it by pixel
    support: np.ndarray  # [h, w] uint8, photos in which the patch was found
    rgb: np.ndarray  # [h, w, 3] uint8


def _without_specks(rho: np.ndarray, good: np.ndarray) -> np.ndarray:  # [h, w] int16, 0: none
    """Inverse depths [h, w] on a scale of logarithms, without lone patches of a few pixels."""
    middle = float(np.median(rho[good])) if good.any() else 1.0
    steps = np.log(np.where(good, rho, middle) / middle) / SPECK_APART
    counts = np.where(good, 10 * steps.clip(-1500, 1500) + 16000, 0).astype(np.int16)
    cv2.filterSpeckles(counts, 0, max(1, round(SPECK_SHARE * rho.size)), 10)
    return counts


def missing_shares(rgb: np.ndarray, known: np.ndarray, through: np.ndarray) -> dict[str, float]:
    """Shares of the pixels [h, w] of a photo that have no depth, by what is known of the reason.

    bare: there is nothing to be found again. contradicted: another photo looks through the place, as behind things that
    moved, in mirrors and at edges. lost: seen in too few photos, or different in each.
    """
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY).astype(np.float32)
    side = (CONTRAST_SIDE_PX, CONTRAST_SIDE_PX)
    bare = cv2.blur(grey * grey, side) - cv2.blur(grey, side) ** 2 < BARE_CONTRAST**2
    return {
        "bare": float((~known & bare).mean()),
        "contradicted": float((~known & ~bare & (through > 0)).mean()),
        "lost": float((~known & ~bare & (through == 0)).mean()),
    }


class Merger:
    """Judges the depth of photo after photo, and gathers the points."""

    def __init__(
        self,
        reconstruction: Reconstruction,
        maps: Callable[[int], PhotoMaps],
        judges: list[list[int]],
        *,
        min_agreeing: int,
        max_relative_sigma: float,
    ):
        self.reconstruction, self.maps, self.judges = reconstruction, maps, judges
        self.min_agreeing, self.max_relative_sigma = min_agreeing, max_relative_sigma
        self.scale = 1.0
        self.shown: dict[int, np.ndarray] = {}
        self.parts: list[Cloud] = []
        self.missing: dict[int, dict[str, float]] = {}
        """Of every photo so far, see `missing_shares`."""

    def calibrate(self) -> float:
        """Set and return the factor on all deviations with which photos differ as much as these say."""
        histogram = np.zeros(BINS, np.int64)
        some = np.unique(np.linspace(0, len(self.judges) - 1, CALIBRATION_IMAGES).astype(int))
        for n in some.tolist():
            if self.judges[n]:
                own, others, transfers = self._packed(n)
                score_differences(own, others, transfers, histogram)
        count = np.cumsum(histogram)
        if count[-1] > 0:
            middle = (int(np.searchsorted(count, count[-1] / 2)) + 0.5) / 10
            self.scale = float(np.clip(middle / NORMAL_MEDIAN, *SCALE_RANGE))
        return self.scale

    def add(self, n: int) -> DepthMap:
        """Depth of a photo that others confirm. Its points join the cloud, but for those that are there already."""
        maps = self.maps(n)
        fused, deviation = np.zeros(maps.rho.shape), np.zeros(maps.rho.shape)
        votes = np.zeros((*maps.rho.shape, 3), np.int32)
        if self.judges[n]:
            own, others, transfers = self._packed(n)
            in_parallel(
                lambda band: confirm(own, others, transfers, self.scale, fused, deviation, votes, *band),
                row_bands(len(fused)),
            )
            agreeing, through = votes[..., 1], votes[..., 2]
            needed = min(self.min_agreeing, len(self.judges[n]))
            # One photo is enough where the patch itself was found in several and nobody looks through.
            seen = (agreeing >= needed) | ((agreeing >= 1) & (maps.support >= needed) & (through == 0))
            good = seen & (agreeing > through) & (deviation < self.max_relative_sigma * fused)
            fused[_without_specks(fused, good) == 0] = 0.0
            self._gather(n, maps, fused, deviation, votes, others[4], transfers)
        known = fused > 0
        self.missing[n] = missing_shares(maps.rgb, known, votes[..., 2])
        depth = np.where(known, 1 / np.where(known, fused, 1.0), 0.0)  # [h, w]
        sigma = np.where(known, deviation * depth**2, 0.0)
        normal = np.where(known[..., None], maps.normal, 0).astype(np.int8)
        return DepthMap(
            camera=maps.camera, depth=depth.astype(np.float32), sigma=sigma.astype(np.float32), normal=normal
        )

    def cloud(self) -> Cloud:
        """All points so far."""
        if not self.parts:
            return Cloud(
                xyz=np.zeros((0, 3)), rgb=np.zeros((0, 3), np.uint8), sigma=np.zeros(0), normals=np.zeros((0, 3))
            )
        columns = zip(*((part.xyz, part.rgb, part.sigma, part.normals) for part in self.parts), strict=True)
        xyz, rgb, sigma, normals = map(np.concatenate, columns)
        return Cloud(xyz=xyz, rgb=rgb, sigma=sigma, normals=normals)

    def _packed(self, n: int) -> tuple[tuple, tuple, tuple]:
        """What the kernels need of a photo, of its judges, and of the ways between."""
        maps, others = self.maps(n), [self.maps(j) for j in self.judges[n]]
        poses = self.reconstruction.cam_from_world
        sizes = np.array([other.rho.shape[::-1] for other in others])  # [V, 2]
        width, height = sizes.max(axis=0)
        rhos, sigmas = (np.zeros((len(others), height, width), np.float32) for _ in range(2))
        normals = np.zeros((len(others), height, width, 3), np.int8)
        slopes = np.zeros((len(others), height, width, 2), np.float32)
        for k, other in enumerate(others):
            high, wide = other.rho.shape
            rhos[k, :high, :wide], sigmas[k, :high, :wide] = other.rho, other.sigma
            normals[k, :high, :wide], slopes[k, :high, :wide] = other.normal, other.slope
        ways = [
            transfer(maps.camera, poses[n], other.camera, poses[j])
            for j, other in zip(self.judges[n], others, strict=True)
        ]
        m, e = (np.array(values) for values in zip(*ways, strict=True))
        turns = poses[self.judges[n], :3, :3] @ poses[n, :3, :3].T  # [V, 3, 3]
        return (maps.rho, maps.sigma, maps.normal), (rhos, sigmas, normals, slopes, sizes), (m, e, turns)

    def _marks(self, n: int) -> np.ndarray:
        """Pixels [h, w] of a photo that the cloud shows already (1)."""
        if n not in self.shown:
            self.shown[n] = np.zeros(self.maps(n).rho.shape, np.uint8)
        return self.shown[n]

    def _gather(
        self, n: int, maps: PhotoMaps, fused: np.ndarray, deviation: np.ndarray, votes: np.ndarray,
        sizes: np.ndarray, transfers: tuple,
    ) -> None:  # fmt: skip
        """Add the confirmed pixels that no photo before has shown."""
        width, height = sizes.max(axis=0)
        used = np.zeros((len(sizes), height, width), np.uint8)
        for k, j in enumerate(self.judges[n]):
            marks = self._marks(j)
            used[k, : marks.shape[0], : marks.shape[1]] = marks
        taken = self._marks(n)
        claim(fused, votes, transfers, sizes, used, taken)
        for k, j in enumerate(self.judges[n]):
            marks = self.shown[j]
            marks[:] = used[k, : marks.shape[0], : marks.shape[1]]
        row, column = np.nonzero(taken == 2)
        pose = self.reconstruction.cam_from_world[n]
        depth = 1 / fused[row, column]
        in_camera = maps.camera.rays(np.stack([column, row], axis=1) + 0.5) * depth[:, None]
        self.parts.append(
            Cloud(
                xyz=(in_camera - pose[:3, 3]) @ pose[:3, :3],
                rgb=maps.rgb[row, column],
                sigma=deviation[row, column] * depth**2,
                normals=maps.normal[row, column].astype(np.float64) / 127 @ pose[:3, :3],
            )
        )
        taken[taken == 2] = 1
