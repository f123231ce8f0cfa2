"""`proba export`: conversions of a finished reconstruction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba.cli.options import OUT
from proba.export import ExportOptions, Format, export, needs_photos
from proba.export.depth import DepthFormat
from proba.io.photo_folder import photo_folder
from proba.io.reconstruction_folder import load_reconstruction


def main(
    folder: Annotated[Path, tyro.conf.Positional],
    /,
    to: Format,
    out: Annotated[Path | None, OUT] = None,
    images: Path | None = None,
    density: float | None = None,
    depth_format: DepthFormat = "npy",
) -> None:
    """Write a reconstruction in another program's format.

    Further connected pieces, each with its own frame and scale, go to OUT/sparse/1 (colmap) or OUT/piece1 (others).

    Args:
        folder: Folder that `proba solve` or `proba run` wrote, or any with COLMAP models in sparse/0, sparse/1, ...
        to: colmap, colmap-txt: cameras, images and points3D below OUT/sparse/0, as .bin or .txt files.
            colmap-undistorted: the same with pinhole cameras, and the photos without distortion in OUT/images, as 3D
            Gaussian splatting wants them. nerfstudio: transforms.json and points.ply. ply: points with colour, normal
            and sigma. splat: the same points as Gaussians for splat viewers and trainers. depth: a depth and a sigma
            map for each image. tum: trajectory.txt (time, place and quaternion of each camera). glb: cameras and points
            for Blender and browsers.
        out: Where to write; by default FOLDER/export/<format>.
        images: Folder of the photos; by default the one that report.json names.
        density: ply and splat: a dense cloud with a point every so many pixels of each photo (e.g. 4), from the depth
            maps where neighbouring images confirm them. depth: pixels of the photo for each value.
        depth_format: Files of --to depth: npy (float32), png (16 bit, its unit in depth.json) or exr (needs OpenEXR).
    """
    reconstructions = load_reconstruction(folder)
    target = out or folder / "export" / to
    options = ExportOptions(density_px=density, depth_format=depth_format)
    names = [name for reconstruction in reconstructions for name in reconstruction.image_names]
    photos = photo_folder(folder, names, images) if needs_photos(to, options) else None
    for line in export(reconstructions, to=to, out=target, photos=photos, options=options):
        print(line)
    print(f"wrote {target}")
