"""Photos without distortion and a model of pinhole cameras, in the folder layout of 3D Gaussian splatting.

OUT/images/NAME          photos as pinhole cameras see them, upright, the principal point in the middle
OUT/masks/NAME.png       the same of the masks, where there are any
OUT/sparse/0             COLMAP model of those cameras; further pieces in sparse/1, ...

Names have no folders: the original splatting code looks at the last part of a name alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from proba.export.photo_files import PhotoSource, any_masks, exported_name, save_mask, save_picture
from proba.io.colmap import write_colmap
from proba.io.names import flat_names
from proba.io.pinhole import pinhole, warped
from proba.reconstruction import Reconstruction


def undistorted(reconstruction: Reconstruction) -> Reconstruction:
    """The same reconstruction with pinhole cameras; observations outside their view are left out."""
    cameras = [pinhole(camera) for camera in reconstruction.cameras]
    points = reconstruction.points
    xy = points.obs_xy.copy()  # [K, 2]
    inside = np.ones(len(xy), bool)
    for n, mine in enumerate(points.seen_by(len(reconstruction))):
        k = reconstruction.camera_of_image[n]
        xy[mine] = cameras[k].project(reconstruction.camera(n).rays(xy[mine].astype(np.float64)))
        inside[mine] = ((xy[mine] >= 0) & (xy[mine] <= [cameras[k].width, cameras[k].height])).all(axis=1)
    kept = replace(points, obs_xy=xy[inside], obs_point=points.obs_point[inside], obs_image=points.obs_image[inside])
    return replace(reconstruction, cameras=cameras, points=kept)


def write_undistorted(pieces: list[Reconstruction], out: Path, source: PhotoSource) -> None:
    """Write photos, masks and models of all pieces."""
    names = [name for piece in pieces for name in piece.image_names]
    fresh = iter(flat_names([exported_name(name) for name in names]))
    masked = any_masks(source, names)
    for index, piece in enumerate(pieces):
        plain = replace(undistorted(piece), image_names=[next(fresh) for _ in piece.image_names])
        for n, name in enumerate(piece.image_names):
            rgb, mask = source.read(name)
            cameras, target = (piece.camera(n), plain.camera(n)), plain.image_names[n]
            save_picture(warped(rgb, *cameras), out / "images" / target)
            if masked or mask is not None:
                white = np.ones(rgb.shape[:2], bool) if mask is None else mask
                there = warped(white.astype(np.uint8) * 255, *cameras, outside=cv2.BORDER_CONSTANT)
                save_mask(there > 127, out / "masks" / f"{target}.png")
        write_colmap(plain, out / "sparse" / str(index))
