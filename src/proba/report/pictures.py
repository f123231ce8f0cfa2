"""Pictures of the pairs that fit worst: two small photos side by side, their matches as lines."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from proba.matches import Matches
from proba.reconstruction import Reconstruction
from proba.report.facts import AGREE_PX, PairFacts, match_errors, pair_of, unit_px

MAX_PAIRS = 4
SIDE_PX = 400
"""Longest side of a small photo; four pairs take about 300 kB."""
MAX_LINES = 80
MAX_THUMBNAILS = 300
THUMBNAIL_PX = 80
"""Longest side of the photos in the table of images; 300 of them take about 1 MB."""
MIN_MATCHES = 20
"""Pairs that two-view geometry can explain fewer matches of say little."""


@dataclass(frozen=True, kw_only=True)
class Thumbnail:
    """A small photo, or an empty frame where there is none."""

    width: int
    height: int
    jpeg_base64: str | None


@dataclass(frozen=True, kw_only=True)
class PairPicture:
    """What is drawn of one pair."""

    edge: PairFacts
    left: Thumbnail
    right: Thumbnail
    lines: np.ndarray  # [L, 4] x, y in the left and x, y in the right picture
    agrees: np.ndarray  # [L] bool


def worst_pairs(
    matches: Matches, reconstructions: Sequence[Reconstruction], edges: list[PairFacts], image_folder: Path | None
) -> list[PairPicture]:
    """The pairs whose matches the result explains worst. Without photos only frames and lines."""
    telling = (edge for edge in edges if edge.explainable * edge.matches >= MIN_MATCHES)
    ranked = sorted(telling, key=lambda edge: edge.explained_part)
    owner = {name: rec for rec in reconstructions for name in rec.image_names}
    return [_picture(matches, owner[edge.i], edge, image_folder) for edge in ranked[:MAX_PAIRS]]


def thumbnails(reconstructions: Sequence[Reconstruction], image_folder: Path | None) -> dict[str, Thumbnail]:
    """The first photos by name, very small; without those that cannot be read."""
    if image_folder is None:
        return {}
    images = [(rec, n) for rec in reconstructions for n in range(len(rec))][:MAX_THUMBNAILS]
    small = {rec.image_names[n]: _thumbnail(rec, n, image_folder, THUMBNAIL_PX, quality=60) for rec, n in images}
    return {name: photo for name, photo in small.items() if photo.jpeg_base64 is not None}


def _picture(
    matches: Matches, reconstruction: Reconstruction, edge: PairFacts, image_folder: Path | None
) -> PairPicture:
    names = edge.i, edge.j
    in_matches = {info.name: k for k, info in enumerate(matches.images)}
    pair = pair_of(matches, in_matches[names[0]], in_matches[names[1]])
    i, j = (reconstruction.index(name) for name in names)
    take = np.random.default_rng(0).permutation(len(pair.points_i))[:MAX_LINES]
    errors = match_errors(reconstruction, i, j, pair)[take]  # [L]
    small = [_thumbnail(reconstruction, k, image_folder) for k in (i, j)]
    points = [
        xy[take] * [photo.width / camera.width, photo.height / camera.height]
        for xy, photo, camera in zip(pair[:2], small, (reconstruction.camera(k) for k in (i, j)), strict=True)
    ]
    return PairPicture(
        edge=edge,
        left=small[0],
        right=small[1],
        lines=np.hstack(points),
        agrees=errors < AGREE_PX * unit_px(reconstruction, i, j),
    )


def _thumbnail(
    reconstruction: Reconstruction, image: int, image_folder: Path | None, side_px: int = SIDE_PX, quality: int = 72
) -> Thumbnail:
    camera = reconstruction.camera(image)
    scale = side_px / max(camera.width, camera.height)
    width, height = (max(1, round(side * scale)) for side in (camera.width, camera.height))
    return Thumbnail(
        width=width,
        height=height,
        jpeg_base64=None
        if image_folder is None
        else _small_jpeg(image_folder / reconstruction.image_names[image], (width, height), quality),
    )


def _small_jpeg(path: Path, size: tuple[int, int], quality: int) -> str | None:
    """A photo as base64 text, None if it cannot be read: a report without pictures is better than none."""
    try:
        with Image.open(path) as file:
            file.draft("RGB", (2 * max(size), 2 * max(size)))  # JPEG: decode at a fraction of the size
            photo = ImageOps.exif_transpose(file).convert("RGB").resize(size, Image.Resampling.LANCZOS)
    except Exception:  # decoders answer damaged files with every kind of exception there is
        return None
    buffer = io.BytesIO()
    photo.save(buffer, "JPEG", quality=quality, optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
