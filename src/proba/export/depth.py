"""Depth and its standard deviation for every image as files: npy and EXR hold scene units, PNG 16-bit counts.

OUT/depth/NAME.npy, OUT/sigma/NAME.npy (or .png, .exr)   z, of a fisheye the distance; NAME with its own suffix
OUT/normal/NAME.npy (or .png)   of dense depth
OUT/depth.json   for each image: files, size, intrinsics of the map, and for PNG `units_per_count`
"""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from proba.dense import depth_at, pixel_grid
from proba.errors import InputError, StorageError
from proba.io.atomic import atomic_file, atomic_path, atomic_write_text
from proba.io.dense_folder import DensePiece
from proba.io.names import safe_relative_path
from proba.io.picture_files import write_picture
from proba.reconstruction import Reconstruction

DepthFormat = Literal["npy", "png", "exr"]
MAX_SIDE_PX = 1024
"""Longest side of the maps unless a step is given; the maps inside have far fewer cells."""
MAX_COUNT = 65535
NORMALS_TEXT = "unit vectors in the camera's frame, towards it; in a PNG 127.5 + 127.5 times that; 0: none"


def write_depth(
    reconstruction: Reconstruction,
    folder: str | Path,
    *,
    form: DepthFormat = "npy",
    step_px: float | None = None,
    dense: DensePiece | None = None,
) -> None:
    """Write depth and sigma maps of every image, one value for `step_px` pixels of the photo, and depth.json.

    Those of dense depth, where there is any, are 0 where nothing is known, and come with normals.
    """
    folder = Path(folder)
    if form == "exr" and importlib.util.find_spec("OpenEXR") is None:
        raise InputError("EXR files need OpenEXR: `pip install 'proba-sfm[exr]'`, or take --depth-format npy.")
    images = {}
    for n, name in enumerate(reconstruction.image_names):
        camera = reconstruction.camera(n)
        depth, sigma, normal = depth_maps(reconstruction, n, step_px=step_px, dense=dense)
        height, width = depth.shape
        shrink = np.array([width / camera.width, height / camera.height])
        entry: dict = {"width": width, "height": height}
        entry |= dict(zip(("fx", "fy"), (camera.focal_px * shrink).tolist(), strict=True))
        entry |= dict(zip(("cx", "cy"), (camera.principal_point_px * shrink).tolist(), strict=True))
        for kind, values in (("depth", depth), ("sigma", sigma)):
            entry[kind] = f"{kind}/{safe_relative_path(name)}.{form}"
            scale = _write(folder / entry[kind], values, form)
            if scale is not None:
                entry[f"{kind}_units_per_count"] = scale
        if normal is not None:
            entry["normal"] = f"normal/{safe_relative_path(name)}.{'png' if form == 'png' else 'npy'}"
            _write_normals(folder / entry["normal"], normal)
        images[name] = entry
    content = {
        "depth": "z in the camera's frame, of a fisheye the distance from it, scene units",
        "sigma": "standard deviation of the depth, scene units",
        **({} if dense is None else {"normal": NORMALS_TEXT}),
        "pixel_convention": "corner0.5",
        "distortion": "that of the photos: undo it with the camera model of the COLMAP export",
        "images": images,
    }
    atomic_write_text(folder / "depth.json", json.dumps(content, indent=1))


def depth_maps(
    reconstruction: Reconstruction,
    image: int,
    *,
    step_px: float | None = None,
    max_side_px: int = MAX_SIDE_PX,
    dense: DensePiece | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Depth and its standard deviation [h, w] of an image in scene units, one value for `step_px` pixels.

    Without a step the longest side has at most `max_side_px` values. Dense depth is 0 where nothing is known, and has
    normals [h, w, 3].
    """
    camera = reconstruction.camera(image)
    step = step_px or max(1, math.ceil(max(camera.width, camera.height) / max_side_px))
    xy, height, width = pixel_grid(camera, step)
    found = None if dense is None else dense.read_depth(reconstruction.image_names[image])
    if found is None:
        depth, sigma = depth_at(reconstruction, image, xy)
        return depth.reshape(height, width), sigma.reshape(height, width), None
    depth, sigma, normal = found.at(camera, xy)
    return depth.reshape(height, width), sigma.reshape(height, width), normal.reshape(height, width, 3)


def _write_normals(path: Path, normal: np.ndarray) -> None:
    """Write normals [h, w, 3], as colours where the file is a PNG."""
    if path.suffix == ".png":
        write_picture(path, Image.fromarray((127.5 + 127.5 * normal).round().astype(np.uint8)))
        return
    with atomic_file(path) as file:
        np.save(file, normal.astype(np.float32))


def _write(path: Path, values: np.ndarray, form: DepthFormat) -> float | None:
    """Write one map [h, w]; for PNG the scene units of one count are returned."""
    if form == "png":
        scale = (float(values.max()) or 1.0) / MAX_COUNT
        write_picture(path, Image.fromarray((values / scale).round().astype(np.uint16)))
        return scale
    if form == "npy":
        with atomic_file(path) as file:
            np.save(file, values.astype(np.float32))
    else:
        _write_exr(path, values.astype(np.float32))
    return None


def _write_exr(path: Path, values: np.ndarray) -> None:
    import OpenEXR  # optional

    with atomic_path(path) as temporary:
        header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
        OpenEXR.File(header, {"Z": values}).write(str(temporary))
        written = OpenEXR.File(str(temporary)).channels()["Z"].pixels  # OpenEXR may overlook a full disk
        if not np.array_equal(written, values, equal_nan=True):
            raise StorageError(f"{path} could not be written whole. Is its disk full? Free some space and run again.")
