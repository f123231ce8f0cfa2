"""`proba localize`: where a photo was taken, in a model that is there already."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from proba import api
from proba.cli.options import RESULT
from proba.errors import GeometryError
from proba.io.atomic import atomic_write_text
from proba.localize import Localized, LocalizeOptions

DEFAULTS = LocalizeOptions()


def main(
    folder: Annotated[Path, tyro.conf.Positional, RESULT],
    photos: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="PHOTO [PHOTO ...]")],
    /,
    images: Path | None = None,
    piece: int = 0,
    json: Path | None = None,
    threads: int | None = None,
    options: LocalizeOptions = DEFAULTS,
) -> None:
    """Find where photos were taken, in a model that is there already, with standard deviations.

    The features of the model's photos are kept in RESULT/features: the first call makes them. Exit code 0 if every
    photo was found, 1 if not.

    Args:
        folder: Folder that `proba run` or `proba solve` wrote.
        photos: The photos to look for.
        images: Folder of the model's photos; by default the one that report.json names.
        piece: Which connected piece of the model, the largest is 0.
        json: Also write the poses and their covariances to this file.
        threads: Processor threads; all by default.
    """
    found = api.localize(folder, photos, images=images, piece=piece, options=options, threads=threads)
    for photo, result in zip(photos, found, strict=True):
        print(_line(photo, result))
    if json is not None:
        rows = [_row(photo, result) for photo, result in zip(photos, found, strict=True)]
        atomic_write_text(json, json_module.dumps(rows, indent=1))
    if any(isinstance(result, GeometryError) for result in found):
        raise SystemExit(1)


def _line(photo: Path, result: Localized | GeometryError) -> str:
    if isinstance(result, GeometryError):
        return f"{photo}: {result}"
    x, y, z = result.centre
    turn, off = np.degrees(result.std[:3].max()), result.std[3:].max()
    focal = "" if result.camera_known else f", focal length {result.camera.focal_px[0]:.0f} px (found)"
    return (
        f"{photo}: at {x:.4g} {y:.4g} {z:.4g} +- {off:.2g}, turned +- {turn:.2g} deg, "
        f"{result.inliers} points agree ({100 * result.share:.0f} %){focal}"
    )


def _row(photo: Path, result: Localized | GeometryError) -> dict:
    if isinstance(result, GeometryError):
        return {"photo": str(photo), "found": False, "reason": str(result)}
    camera = result.camera
    return {
        "photo": str(photo),
        "found": True,
        "cam_from_world": result.cam_from_world.tolist(),
        "covariance": result.covariance.tolist(),
        "camera": {
            "model": camera.model, "width": camera.width, "height": camera.height, "params": camera.params.tolist(),
            "known": result.camera_known,
        },
        "points": result.inliers,
        "share": result.share,
    }  # fmt: skip
