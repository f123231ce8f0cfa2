"""`proba export`: conversions of a finished reconstruction."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba.cli.options import OUT
from proba.export import ExportOptions, Format, export, needs_photos, next_commands
from proba.export.depth import DepthFormat
from proba.export.photo_files import LinkMode
from proba.io.dense_folder import load_dense
from proba.io.photo_folder import mask_folder, photo_folder
from proba.io.reconstruction_folder import load_reconstruction


def main(
    folder: Annotated[Path, tyro.conf.Positional],
    /,
    to: Format,
    out: Annotated[Path | None, OUT] = None,
    images: Path | None = None,
    masks: Path | None = None,
    density: float | None = None,
    depth_format: DepthFormat = "npy",
    photo_files: LinkMode = "copy",
    sparse: bool = False,
    max_points: int | None = None,
) -> None:
    """Write a reconstruction in another program's format, and say what to run next.

    Further connected pieces, each with its own frame and scale, go to OUT/sparse/1 (colmap) or OUT/piece1 (others).

    Args:
        folder: Folder that `proba solve` or `proba run` wrote, or any with COLMAP models in sparse/0, sparse/1, ...
        to: colmap, colmap-txt: cameras, images and points3D below OUT/sparse/0, as .bin or .txt files.
            colmap-undistorted: pinhole cameras below OUT/sparse/0, and in OUT/images the photos without distortion and
            upright, as programs for Gaussian splatting want them. nerfstudio: transforms.json with photos, masks, depth
            and points, in one folder that can be zipped. ply: points with colour, normal and sigma. splat: the same
            points as Gaussians for splat viewers and trainers. depth: a depth and a sigma map for each image, and a
            normal map of dense depth. mesh: triangles with colours as PLY and GLB (needs pycolmap). tum: trajectory.txt
            (time, place and quaternion of each camera). glb: cameras and points for Blender.
        out: Where to write; by default FOLDER/export/<format>.
        images: Folder of the photos; by default the one that report.json names.
        masks: Folder of masks named like the photos, for colmap-undistorted and nerfstudio: white counts, black is
            ignored; by default the one that the photos were matched with.
        density: ply and splat: a dense cloud with this distance between points, in pixels of each photo (e.g. 4), from
            the depth maps where neighbouring images confirm them. depth: pixels of the photo for each value.
        depth_format: Files of --to depth: npy (float32), png (16 bit, its unit in depth.json) or exr (needs OpenEXR).
        photo_files: nerfstudio: copy the photos, or link to them (hardlink, symlink), which saves space.
        sparse: Take the refined points, even where `proba dense` has made dense ones.
        max_points: ply, splat, nerfstudio: points of a larger cloud that are kept, chosen at random.
    """
    reconstructions = load_reconstruction(folder)
    target = out or folder / "export" / to
    options = ExportOptions(
        density_px=density, depth_format=depth_format, photo_files=photo_files, sparse=sparse, max_points=max_points
    )
    names = [name for reconstruction in reconstructions for name in reconstruction.image_names]
    photos = photo_folder(folder, names, images) if needs_photos(to, options) else None
    masks = mask_folder(folder, masks) if needs_photos(to) else None
    dense = [load_dense(folder, piece, k) for k, piece in enumerate(reconstructions)]
    for line in export(reconstructions, to=to, out=target, photos=photos, masks=masks, options=options, dense=dense):
        print(line)
    print(f"wrote {target}")
    commands = next_commands(to, target)
    if commands:
        print("\n  ".join(["next, for example:", *commands]))
