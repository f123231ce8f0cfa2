"""Dense matches of a synthetic scene, with the noise of the paper's robustness experiment."""

from __future__ import annotations

import numpy as np

from proba.matches import ImageInfo, Matches
from proba.synthetic.scene import Scene

MAX_ANGLE_DEG = 60.0
"""No matcher recognises a surface patch from viewpoints farther apart than this."""


def scene_matches(
    scene: Scene,
    *,
    grid: int = 64,
    noise_px: float = 1.0,
    noise_ratio: float = 1.0,
    outliers: float = 0.0,
    seed: int = 0,
    min_matches: int = 50,
    max_neighbours: int | None = None,
    known_focal: bool = False,
) -> Matches:
    """Matches in both directions between all images that overlap.

    Grid pixels of image i (`grid` x `grid`) are exact; their targets in image j get Gaussian noise of `noise_px`
    on the share `noise_ratio` of them (appendix, controlled noise: sigma and r), then the share `outliers` is
    moved to uniformly random places of the target image. `max_neighbours` shortlists pairs by overlap for large
    sets. Pairs with fewer than `min_matches` are left out. Noisy targets may lie outside the image, as in the
    paper.
    """
    rng = np.random.default_rng(seed)
    focal_px = scene.intrinsics[:, 0]
    matches = Matches(
        images=[
            ImageInfo(
                name=name,
                width=scene.width,
                height=scene.height,
                camera_key="synthetic",
                focal_px=float(focal_px[k]) if known_focal else None,
            )
            for k, name in enumerate(scene.image_names)
        ]
    )
    pixels = scene.grid(grid, grid)  # [G, 2]
    surfaces = [scene.lifted(k, pixels) for k in range(scene.n_images)]
    for i, j in candidate_pairs(scene, max_neighbours):
        sources, targets = [], []
        for (points, valid), other, this in ((surfaces[i], j, i), (surfaces[j], i, j)):
            index, exact = _seen_in(scene, points, valid, this, other)
            sources.append(pixels[index])
            targets.append(_disturb(rng, exact, scene, noise_px, noise_ratio, outliers))
        if len(sources[0]) + len(sources[1]) >= min_matches:
            matches.add(i, j, np.vstack([sources[0], targets[1]]), np.vstack([targets[0], sources[1]]))
    return matches


def candidate_pairs(scene: Scene, max_neighbours: int | None = None, min_share: float = 0.02) -> list[tuple[int, int]]:
    """Pairs i < j that overlap on a coarse grid without occlusion; the best `max_neighbours` of each image."""
    share = _frustum_overlap(scene)
    share = np.maximum(share, share.T)
    keep = share >= min_share
    if max_neighbours is not None and max_neighbours < scene.n_images - 1:
        best = np.argsort(-share, axis=1, kind="stable")[:, :max_neighbours]  # [N, k]
        nearest = np.zeros_like(keep)
        np.put_along_axis(nearest, best, True, axis=1)
        keep &= nearest | nearest.T
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(keep, 1))]


def _frustum_overlap(scene: Scene, cells: int = 8) -> np.ndarray:  # [N, N]
    """Share of a coarse grid of image i (row) that projects into image j (column)."""
    pixels = scene.grid(cells, cells)
    lifted = [scene.lifted(k, pixels) for k in range(scene.n_images)]
    points = np.concatenate([p for p, _ in lifted])  # [N * C, 3]
    valid = np.concatenate([v for _, v in lifted])  # [N * C]
    origins = np.repeat(scene.centres, cells * cells, axis=0)
    share = np.zeros((scene.n_images, scene.n_images))
    for j in range(scene.n_images):
        # Long scenes: skip what is too far away before the costlier tests.
        close = np.flatnonzero(valid & (np.abs(points - scene.centre(j)).max(axis=1) <= scene.max_range))
        inside = _in_frame(scene, scene.project(j, points[close])[0])
        inside &= _similar_direction(points[close], origins[close], scene.centre(j))
        share[:, j] = np.bincount(close[inside] // cells**2, minlength=scene.n_images) / cells**2
    np.fill_diagonal(share, 0)
    return share


def _seen_in(
    scene: Scene, points: np.ndarray, valid: np.ndarray, source: int, target: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which points [G, 3] of `source` are seen in `target` [M], and at which pixels [M, 2]."""
    pixels, _ = scene.project(target, points)
    index = np.flatnonzero(valid & _in_frame(scene, pixels))
    index = index[_similar_direction(points[index], scene.centre(source), scene.centre(target))]
    index = index[scene.visible(target, points[index])]
    return index, pixels[index]


def _in_frame(scene: Scene, pixels: np.ndarray) -> np.ndarray:  # [G] bool, NaN is outside
    x, y = pixels.T
    return (x > 0) & (x < scene.width) & (y > 0) & (y < scene.height)


def _similar_direction(points: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:  # [G] bool
    a, b = points - one, points - other
    cosine = np.einsum("ni,ni->n", a, b) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1) + 1e-12)
    return cosine >= np.cos(np.radians(MAX_ANGLE_DEG))


def _disturb(
    rng: np.random.Generator,
    exact: np.ndarray,
    scene: Scene,
    noise_px: float,
    noise_ratio: float,
    outliers: float,
) -> np.ndarray:  # [M, 2]
    """Gaussian noise on a share of the targets, then gross outliers."""
    targets, m = exact.copy(), len(exact)
    noisy = rng.permutation(m)[: round(noise_ratio * m)]
    targets[noisy] += rng.normal(0, noise_px, (len(noisy), 2))
    wild = rng.permutation(m)[: round(outliers * m)]
    targets[wild] = rng.uniform(0, [scene.width, scene.height], (len(wild), 2))
    return targets
