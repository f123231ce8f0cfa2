"""A folder for nerfstudio, Brush and other NeRF and splatting programs: it holds all that it names.

OUT/transforms.json, OUT/points.ply
OUT/images/NAME           the photos, upright
OUT/masks/NAME.png        white where a photo counts, where there are masks
OUT/depth/NAME.npy        depth (z) in thousandths of a scene unit, the unit that nerfstudio takes by default

Poses in transforms.json are world_from_cam with OpenGL axes (x right, y up, z backward). The world stays ours, so that
`applied_transform` is the identity: versions of nerfstudio differ in whether they apply it to the point cloud. Where z
is known to point up, nerfstudio is told to leave the orientation as it is.
Pixels are as in COLMAP, first centre at (0.5, 0.5), and so are k1 and k2.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np

from proba.errors import InputError
from proba.export.depth import depth_maps
from proba.export.photo_files import LinkMode, PhotoSource, add_photo, any_masks, exported_name, save_mask
from proba.geometry.axes import OPENGL_FROM_OPENCV
from proba.geometry.camera import K1, K2, K3, K4, K5, K6, P1, P2, SX, SY, widened
from proba.io.atomic import atomic_file, atomic_write_text
from proba.io.dense_folder import DensePiece
from proba.io.names import safe_relative_path
from proba.io.ply import write_ply
from proba.point_cloud import Cloud
from proba.reconstruction import Camera, Reconstruction

POINTS = "points.ply"
DEPTH_SIDE_PX = 800
"""Longest side of the depth files; dense depth has about as many pixels."""
DEPTH_UNITS = 1000.0


def write_nerfstudio(
    reconstruction: Reconstruction,
    folder: str | Path,
    source: PhotoSource,
    mode: LinkMode = "copy",
    *,
    cloud: Cloud | None = None,
    dense: DensePiece | None = None,
) -> None:
    """Write transforms.json and everything it names into the folder; a `cloud` may stand for the refined points."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    points = cloud or reconstruction.points
    write_ply(folder / POINTS, points.xyz, points.rgb)
    lenses = [_lens(camera) for camera in reconstruction.cameras]
    used = sorted(set(reconstruction.camera_of_image.tolist()))
    shared = lenses[used[0]] if len(used) == 1 else {}
    world_from_cam = reconstruction.world_from_cam @ OPENGL_FROM_OPENCV  # [N, 4, 4]
    masked = any_masks(source, reconstruction.image_names)
    frames = []
    for n, name in enumerate(reconstruction.image_names):
        files = _add_files(reconstruction, n, folder, source, mode, masked, dense)
        own = {} if shared else lenses[reconstruction.camera_of_image[n]]
        frames.append({**files, "image_name": name, **own, "transform_matrix": world_from_cam[n].tolist()})
    content = {
        "camera_model": _model_name(reconstruction.cameras),
        **shared,
        **({"orientation_override": "none"} if reconstruction.up == "z" else {}),
        "applied_transform": np.eye(4)[:3].tolist(),
        "ply_file_path": POINTS,
        "frames": frames,
    }
    atomic_write_text(folder / "transforms.json", json.dumps(content, indent=1))


def _add_files(
    reconstruction: Reconstruction,
    n: int,
    folder: Path,
    source: PhotoSource,
    mode: LinkMode,
    masked: bool,
    dense: DensePiece | None,
) -> dict[str, str]:
    """Photo, mask and depth of an image; their paths below the folder. nerfstudio wants masks of all photos or none."""
    name = safe_relative_path(reconstruction.image_names[n]).as_posix()
    files = {"file_path": f"images/{exported_name(name)}", "depth_file_path": f"depth/{name}.npy"}
    add_photo(source, name, folder / files["file_path"], mode)
    if masked:
        files["mask_path"] = f"masks/{exported_name(name)}.png"
        save_mask(_mask(source, name), folder / files["mask_path"])
    depth, _, _ = depth_maps(reconstruction, n, max_side_px=DEPTH_SIDE_PX, dense=dense)
    with atomic_file(folder / files["depth_file_path"]) as file:
        np.save(file, (DEPTH_UNITS * depth).astype(np.float32))
    return files


def _mask(source: PhotoSource, name: str) -> np.ndarray:  # [h, w] bool
    """The mask of a photo; all of it where there is none."""
    rgb, mask = source.read(name)
    return np.ones(rgb.shape[:2], bool) if mask is None or source.mask_path(name) is None else mask


def _lens(camera: Camera) -> dict[str, float | int]:
    (fx, fy), (cx, cy) = camera.focal_px.tolist(), camera.principal_point_px.tolist()
    columns = widened(camera.model, camera.params)
    if camera.is_fisheye:
        bent = dict(zip(("k1", "k2", "k3", "k4"), columns[[K1, K2, K3, K4]].tolist(), strict=True))
    else:
        names = ("k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")[: 8 if columns[[K3, K4, K5, K6]].any() else 4]
        bent = dict(zip(names, columns[K1 : K1 + len(names)].tolist(), strict=True))
    size = {"w": camera.width, "h": camera.height}
    return {**size, "fl_x": fx, "fl_y": fy, "cx": cx, "cy": cy, **bent}


def _model_name(cameras: list[Camera]) -> str:
    """nerfstudio has one model for all photos; prisms it does not know."""
    if not any(camera.is_fisheye for camera in cameras):
        return "OPENCV"
    if not all(camera.is_fisheye for camera in cameras):
        raise InputError(
            "nerfstudio takes fisheye photos or others, not both together. "
            "Export with --to colmap-undistorted, or solve the two kinds apart."
        )
    bent = np.array([widened(camera.model, camera.params) for camera in cameras])  # [C, 12]
    if bent[:, [P1, P2, SX, SY]].any():
        warnings.warn("nerfstudio knows no prisms: p1, p2, sx1 and sy1 are left out of transforms.json", stacklevel=4)
    return "OPENCV_FISHEYE"
