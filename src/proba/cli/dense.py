"""`proba dense`: depth, normal and standard deviation at every pixel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from proba import api
from proba.cli.options import OUT
from proba.cli.progress import MatchBar
from proba.dense.dense_depth import DenseOptions, DenseResult
from proba.report import LITTLE_DEPTH, main_reason

DEFAULTS = DenseOptions()


def main(
    folder: Annotated[Path, tyro.conf.Positional],
    /,
    images: Path | None = None,
    masks: Path | None = None,
    cameras: Path | None = None,
    out: Annotated[Path | None, OUT] = None,
    max_side: int = DEFAULTS.max_side_px,
    threads: int | None = None,
    memory: float | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> None:
    """Find depth, normal and standard deviation at every pixel of the photos of a result, and a dense cloud.

    Every photo is compared with its neighbours, patch by patch. Depths that other photos confirm are fused; where the
    photos show nothing that can be found again (bare walls, sky, glass, things that move) there is no depth.
    Writes FOLDER/dense, and the dense cloud as FOLDER/points.ply; the sparse one is kept as FOLDER/points_sparse.ply.
    A COLMAP model will do: FOLDER/sparse/0, with the photos in FOLDER/images or in --images.

    Args:
        folder: Folder that `proba run` or `proba solve` wrote, or any with COLMAP models in sparse/0, sparse/1, ...
        images: Folder of the photos; by default the one that report.json names.
        masks: Folder of masks named like the photos: white counts, black gets no depth; by default that of the
            matching.
        cameras: Cameras that are known, instead of those of FOLDER: a gt.json, a COLMAP model, a transforms.json. The
            points of FOLDER are placed anew in them. Needs --out.
        out: Where the cameras, the cloud and the depth go; by default FOLDER.
        max_side: Longest side of the compared photos, pixels: twice that is four times the work.
        threads: Processor threads; all by default.
        memory: Gigabytes that the process may hold; by default four fifths of what the machine has left.
        resume: Keep the photos that an interrupted run has finished.
        quiet: No progress display.
    """
    with MatchBar(quiet=quiet) as bar:
        results = api.dense_folder(
            folder, images=images, masks=masks, cameras=cameras, out=out, options=DenseOptions(max_side_px=max_side),
            threads=threads, memory=memory, resume=resume,
            observer=bar,
        )  # fmt: skip
    for line in describe(results):
        print(line)
    target = folder if out is None else out
    print(f"wrote {target / 'points.ply'} and {target / 'dense'}")


def describe(results: list[DenseResult]) -> list[str]:
    """What was found, in lines."""
    lines = []
    for k, result in enumerate(results):
        piece = f"piece {k}: " if len(results) > 1 else ""
        shares = np.array(list(result.shares.values()))
        lines.append(f"{piece}{len(result.cloud.xyz)} points; depth at {100 * shares.mean():.0f} % of all pixels")
        few = [name for name, share in result.shares.items() if share < LITTLE_DEPTH]
        named = [f"{name} ({100 * result.shares[name]:.0f} %, {main_reason(result.missing[name])})" for name in few[:5]]
        if few:
            more = f" and {len(few) - 5} more" if len(few) > 5 else ""
            lines.append(f"{piece}little depth in {', '.join(named)}{more}; dense.json has the shares of all photos")
    return lines
