"""`proba export`: conversions of a finished reconstruction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from proba.io.colmap import write_colmap
from proba.io.ply import write_ply
from proba.io.reconstruction_folder import load_reconstruction


def main(
    folder: Annotated[Path, tyro.conf.Positional], /, to: Literal["colmap", "ply"], out: Path | None = None
) -> None:
    """Write a reconstruction in another program's format.

    Args:
        folder: Folder that `proba solve` or `proba run` wrote.
        to: colmap: cameras, images and points3D as .bin files. ply: points with colour and sigma.
        out: Where to write; by default FOLDER/export/<format>.
    """
    target = out or folder / "export" / to
    for index, reconstruction in enumerate(load_reconstruction(folder)):
        if to == "colmap":
            write_colmap(reconstruction, target / str(index))
        else:
            points = reconstruction.points
            write_ply(target / f"points{index}.ply", points.xyz, rgb=points.rgb, sigma=points.sigma)
    print(f"wrote {target}")
