"""`proba export`: conversions of a finished reconstruction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import tyro

from proba.cli.options import OUT
from proba.dense.cloud import Cloud, CloudOptions, dense_cloud, point_cloud
from proba.errors import InputError
from proba.io.colmap import write_colmap
from proba.io.depth import DepthFormat, write_depth
from proba.io.glb import write_glb
from proba.io.nerfstudio import write_nerfstudio
from proba.io.ply import write_ply
from proba.io.reconstruction_folder import load_reconstruction
from proba.io.splat import write_splat
from proba.io.tum import write_tum
from proba.io.undistort import write_undistorted
from proba.reconstruction import Reconstruction

Format = Literal["colmap", "colmap-txt", "colmap-undistorted", "nerfstudio", "ply", "splat", "depth", "tum", "glb"]


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
    if density is not None and not density >= 1:
        raise InputError(f"--density {density:g} is finer than the photos. Give 1 or more pixels.")
    reconstructions = load_reconstruction(folder)
    target = out or folder / "export" / to
    if target.is_file():
        raise InputError(f"{target} is a file; give --out a folder.")
    for index, reconstruction in enumerate(reconstructions):
        piece = target if index == 0 else target / f"piece{index}"
        if to in ("colmap", "colmap-txt"):
            write_colmap(reconstruction, target / "sparse" / str(index), text=to == "colmap-txt")
        elif to == "colmap-undistorted":
            write_undistorted(reconstruction, target, photo_folder(folder, images, reconstruction), index)
        elif to == "nerfstudio":
            write_nerfstudio(reconstruction, piece, photo_folder(folder, images, reconstruction))
        elif to == "depth":
            write_depth(reconstruction, piece, form=depth_format, step_px=density)
        elif to == "tum":
            write_tum(reconstruction, piece / "trajectory.txt")
        elif to == "glb":
            write_glb(reconstruction, piece / "scene.glb")
        else:
            cloud = _cloud(reconstruction, folder, images, density)
            if to == "splat":
                write_splat(piece / "splat.ply", cloud)
            else:
                write_ply(piece / "points.ply", cloud.xyz, cloud.rgb, cloud.sigma, cloud.normals)
            print(f"{len(cloud.xyz)} points")
    print(f"wrote {target}")


def _cloud(reconstruction: Reconstruction, folder: Path, images: Path | None, density: float | None) -> Cloud:
    if density is None:
        return point_cloud(reconstruction)
    photos = photo_folder(folder, images, reconstruction)
    return dense_cloud(reconstruction, photos, CloudOptions(step_px=density))


def photo_folder(folder: Path, images: Path | None, reconstruction: Reconstruction) -> Path:
    """The folder of the photos: as given, else as report.json or the demo's layout has it. It must hold the first."""
    first = reconstruction.image_names[0]
    if images is not None:
        if not (images / first).is_file():
            raise InputError(f"{images} does not hold the photo {first}. Give --images the folder of the photos.")
        return images
    try:
        named = json.loads((folder / "report.json").read_text(encoding="utf-8")).get("image_folder")
    except (OSError, ValueError, AttributeError):
        named = None
    candidates = [folder / named, Path(named)] if named else [folder / "images"]
    for candidate in candidates:
        if (candidate / first).is_file():
            return candidate
    told = f"the photos are no longer in {named}" if named else f"{folder} does not tell where the photos are"
    raise InputError(f"This export needs the photos, and {told}. Give their folder with --images.")
