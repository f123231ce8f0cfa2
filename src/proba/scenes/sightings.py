"""What two photos of a reconstruction should both see, and what they do.

A point that one photo sees falls somewhere in another. If that photo shows something there, at the same depth or beyond
it, it should see the point too. Matchers miss many such points, more of them the more the two views differ; how many is
measured on the reconstruction itself. Photos of two places that look alike are placed on top of each other: they share
what looks alike, and miss most else that both should see.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from proba.reconstruction import Reconstruction

FEWEST = 20
"""Views of a class below which nothing is known of it."""


@dataclass(frozen=True, kw_only=True)
class SightingOptions:
    """Which points a photo should see."""

    points: int = 500
    """Points of each photo that are looked for in the others; more say nothing new ..."""
    points_of_all: int = 100_000
    """... and of all photos together, which bounds the time where there are many."""
    held_by: int = 2
    """A point counts if this many photos hold it without the one in question."""
    near: float = 0.04
    """A photo shows something at a place if two of its own points are within this part of its longest side."""
    hidden: float = 0.9
    """A point is hidden if the photo's own points there are nearer than this part of its depth."""
    angles_deg: tuple[float, ...] = (5, 10, 15)
    """Classes of the angle between two views of a point; beyond the last one nothing is expected. Look-alikes lie on
    top of each other, so their views are near. Views farther apart may share only what both see at a grazing angle."""
    zooms: tuple[float, ...] = (1.2, 1.6, 2.2)
    """Classes of the ratio of the sizes at which they see it; beyond the last one nothing is expected."""

    @property
    def classes(self) -> int:
        """Number of classes of views."""
        return len(self.angles_deg) * len(self.zooms)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sightings:
    """Points that pairs of photos should both see, by class of views. Index n counts the reconstruction's images."""

    images: int
    zooms: int
    """Classes of zooms; those of one angle stand together."""
    pairs: np.ndarray  # [M, 2] int, i < j
    should: np.ndarray  # [M, B], points of either that the other should see
    seen: np.ndarray  # [M, B], those of them that it does see

    def of(self, members: np.ndarray) -> Sightings:
        """Those of some images [n] alone, ascending, which are counted anew."""
        inside = np.isin(self.pairs, members).all(axis=1)  # [M]
        pairs = np.searchsorted(members, self.pairs[inside])
        return Sightings(
            images=len(members), zooms=self.zooms, pairs=pairs, should=self.should[inside], seen=self.seen[inside]
        )

    def across(self, side: np.ndarray) -> np.ndarray:  # [M] bool
        """Pairs with one photo on each side [N] bool."""
        i, j = self.pairs.T
        return side[i] != side[j]

    def expected(self, of: np.ndarray) -> np.ndarray:  # [M]
        """Points that each pair would see together if it were like the pairs `of` [M] bool.

        Where these have hardly any views that are as near, the rate of the next ones farther apart is what they would
        have at least.
        """
        should, seen = (part[of].sum(axis=0) for part in (self.should, self.seen))  # [B] each
        rate = seen / np.maximum(should, 1)  # [B]
        for k in range(len(rate) - self.zooms - 1, -1, -1):
            if should[k] < FEWEST:
                rate[k] = rate[k + self.zooms]
        return self.should @ rate


def count_sightings(reconstruction: Reconstruction, options: SightingOptions, *, seed: int = 0) -> Sightings:
    """Look for the points of every photo in all others."""
    points, n = reconstruction.points, len(reconstruction)
    source = _some_observations(reconstruction, options, seed)  # [S]
    point, image = points.obs_point[source], points.obs_image[source]  # [S] each
    held = np.bincount(points.obs_point, minlength=len(points.xyz))  # [P]
    scale = np.array([reconstruction.camera(k).focal_px[0] for k in range(n)])  # [N]
    depth = _depths(reconstruction, image, points.xyz[point])  # [S]
    wanted, place = np.unique(point, return_inverse=True)  # [W], [S]
    codes, should, seen = [], [], []
    for other in range(n):
        sees = np.zeros(len(points.xyz), bool)  # [P]
        sees[points.obs_point[points.obs_image == other]] = True
        use = _in_view(reconstruction, other, wanted, options)[place] & (image != other)  # [S]
        use &= held[point] - sees[point] >= options.held_by
        some, xyz = image[use], points.xyz[point[use]]  # [U], [U, 3]
        there = _depths(reconstruction, np.full(len(some), other), xyz)  # [U]
        zoom = np.abs(np.log((depth[use] / scale[some]) / (there / scale[other])))  # [U]
        view = _class_of(_angle_deg(reconstruction, some, other, xyz), np.exp(zoom), options)  # [U]
        key = some[view >= 0] * options.classes + view[view >= 0]
        size = n * options.classes
        codes.append(np.stack([np.arange(n), np.full(n, other)], axis=1))
        should.append(np.bincount(key, minlength=size).reshape(n, -1))
        seen.append(np.bincount(key, sees[point[use]][view >= 0], minlength=size).reshape(n, -1))
        found = should[-1].any(axis=1)  # [N]
        codes[-1], should[-1], seen[-1] = codes[-1][found], should[-1][found], seen[-1][found]
    return _of_either(n, len(options.zooms), *(np.concatenate(part) for part in (codes, should, seen)))


def _of_either(n: int, zooms: int, codes: np.ndarray, should: np.ndarray, seen: np.ndarray) -> Sightings:
    """Both directions of each pair together; `codes` [D, 2] are directed pairs."""
    pairs, index = np.unique(np.sort(codes, axis=1), axis=0, return_inverse=True)  # [M, 2], [D]
    sums = np.zeros((2, len(pairs), should.shape[1]))
    for total, part in zip(sums, (should, seen), strict=True):
        np.add.at(total, index.reshape(-1), part)
    return Sightings(images=n, zooms=zooms, pairs=pairs, should=sums[0], seen=sums[1])


def _some_observations(reconstruction: Reconstruction, options: SightingOptions, seed: int) -> np.ndarray:  # [S]
    """Observations of points that two photos hold, so many of each photo at most."""
    points, rng = reconstruction.points, np.random.default_rng(seed)
    shuffled = rng.permutation(len(points.obs_image))
    order = shuffled[np.argsort(points.obs_image[shuffled], kind="stable")]  # [K]
    rank = np.arange(len(order)) - np.searchsorted(points.obs_image[order], points.obs_image[order])  # [K]
    return np.sort(order[rank < min(options.points, options.points_of_all // len(reconstruction))])


def _in_view(
    reconstruction: Reconstruction, image: int, wanted: np.ndarray, options: SightingOptions
) -> np.ndarray:  # [W] bool
    """Which of the points `wanted` [W] an image should see: in it, where it shows something, and not behind that."""
    points, camera = reconstruction.points, reconstruction.camera(image)
    own = points.obs_image == image  # [K]
    visible = np.zeros(len(wanted), bool)
    if own.sum() < 3:
        return visible
    shows = points.obs_point[own]  # [O]
    depth_shown = _depths(reconstruction, np.full(len(shows), image), points.xyz[shows])  # [O]
    depth = _depths(reconstruction, np.full(len(wanted), image), points.xyz[wanted])  # [W]
    xy = reconstruction.project(image, points.xyz[wanted])  # [W, 2]
    with np.errstate(invalid="ignore"):
        inside = np.flatnonzero((depth > 0) & ((xy > 0) & (xy < [camera.width, camera.height])).all(axis=1))  # [V]
    distance, nearest = cKDTree(points.obs_xy[own]).query(xy[inside], k=3)  # [V, 3] each
    itself = np.isin(wanted[inside], shows).astype(int)  # [V], it shows nothing but what is asked for
    close = distance[np.arange(len(inside)), 1 + itself] < options.near * max(camera.width, camera.height)
    shown = np.median(depth_shown[nearest], axis=1)  # [V]
    visible[inside[close & (shown > options.hidden * depth[inside])]] = True
    return visible


def _depths(reconstruction: Reconstruction, image: np.ndarray, xyz: np.ndarray) -> np.ndarray:  # [S]
    """Depth of points [S, 3] in images [S]."""
    row = reconstruction.cam_from_world[image, 2]  # [S, 4]
    return np.einsum("sk,sk->s", row[:, :3], xyz) + row[:, 3]


def _angle_deg(reconstruction: Reconstruction, image: np.ndarray, other: int, xyz: np.ndarray) -> np.ndarray:  # [U]
    """Angle under which images [U] and another one see points [U, 3]."""
    centres = reconstruction.centres
    one, two = xyz - centres[image], xyz - centres[other]  # [U, 3]
    length = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return np.degrees(np.arccos(np.clip((one * two).sum(axis=1) / np.maximum(length, 1e-30), -1, 1)))


def _class_of(angle_deg: np.ndarray, zoom: np.ndarray, options: SightingOptions) -> np.ndarray:  # [U]
    """Class of each view, -1 for those that differ too much."""
    angle = np.searchsorted(options.angles_deg, angle_deg)  # [U]
    size = np.searchsorted(options.zooms, zoom)  # [U]
    beyond = (angle == len(options.angles_deg)) | (size == len(options.zooms)) | ~np.isfinite(zoom)
    return np.where(beyond, -1, angle * len(options.zooms) + size)
