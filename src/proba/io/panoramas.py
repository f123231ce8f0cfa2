"""Equirectangular panoramas as folders of pinhole views that share a centre, with the rig file that says how."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import cv2
import numpy as np
from PIL import ExifTags, Image
from scipy.spatial.transform import Rotation

from proba.errors import InputError
from proba.geometry.equirectangular import panorama_pixels
from proba.io.atomic import atomic_write_text
from proba.io.images import Photo, find_photos, read_photo
from proba.io.picture_files import write_picture
from proba.io.rig_files import pose_entry
from proba.rigs import PanoramaOptions

VIEWS, VIEW_MASKS, RIG_CONFIG = "views", "view_masks", "rig_config.json"
ASPECT = 0.005
"""A panorama is twice as wide as high, up to this share."""
GPS_TAGS = 0x8825


def views_of(
    images: Path, folder: Path, options: PanoramaOptions, *, masks: Path | None = None, resume: bool = False
) -> tuple[Path, Path | None]:
    """Cut all panoramas of the folder `images` into `folder`/views, and link the other photos there. Returns the folder
    of the views, and that of their masks."""
    views, white = folder / VIEWS, None if masks is None else folder / VIEW_MASKS
    if resume and (views / RIG_CONFIG).is_file():
        return views, white
    photos = find_photos(images, masks=masks, fewest=1)
    panoramas = [photo for photo in photos if is_panorama(photo)]
    if not panoramas:
        one = photos[0].info
        raise InputError(
            f"{images} has no panorama: {one.name} has {one.width} x {one.height} pixels, and an equirectangular "
            "panorama is twice as wide as high. Leave --camera-model out."
        )
    partial = views.with_name(views.name + ".partial")
    for old in (views, partial, *([] if white is None else [white])):
        shutil.rmtree(old, ignore_errors=True)
    sizes = sorted({(photo.info.width, photo.info.height) for photo in panoramas})
    for photo in photos:
        if photo in panoramas:
            prefix = "" if len(sizes) == 1 else f"{photo.info.width}x{photo.info.height}/"
            _cut(photo, partial, white, prefix, options)
        else:
            _link(photo.path, partial / photo.info.name)
            if white is not None and photo.mask_path is not None:
                _link(photo.mask_path, white / Path(photo.info.name).with_suffix(photo.mask_path.suffix))
    rigs = [_rig(width, "" if len(sizes) == 1 else f"{width}x{height}/", options) for width, height in sizes]
    atomic_write_text(partial / RIG_CONFIG, json.dumps(rigs, indent=1))
    partial.rename(views)
    return views, white


def is_panorama(photo: Photo) -> bool:
    """Whether a photo has the shape of an equirectangular panorama."""
    return abs(photo.info.width / (2 * photo.info.height) - 1) < ASPECT


def view_rotations(options: PanoramaOptions) -> np.ndarray:  # [V, 3, 3]
    """view_from_panorama of the views: around the horizon, each farther to the right."""
    turns = -2 * np.pi * np.arange(options.views) / options.views
    return Rotation.from_rotvec(turns[:, None] * np.array([0.0, 1.0, 0.0])).as_matrix()


def view_camera(width: int, options: PanoramaOptions) -> tuple[int, float]:
    """Side and focal length of a view, in pixels: as fine in its middle as a panorama of this width."""
    focal_px = width / (2 * np.pi)
    side = max(1, round(2 * focal_px * np.tan(np.radians(options.fov_deg) / 2)))
    return side, float(focal_px)


def _rig(width: int, prefix: str, options: PanoramaOptions) -> dict:
    """The views as COLMAP's rig_config.json has them."""
    side, focal_px = view_camera(width, options)
    lens = {"camera_model_name": "SIMPLE_PINHOLE", "camera_params": [focal_px, side / 2, side / 2]}
    cameras = []
    for k, rotation in enumerate(view_rotations(options)):
        pose = np.eye(4)
        pose[:3, :3] = rotation
        place = {"ref_sensor": True} if k == 0 else pose_entry(pose)
        cameras.append({"image_prefix": f"{prefix}view{k}/", **place, **lens})
    return {"cameras": cameras}


def _cut(photo: Photo, views: Path, masks: Path | None, prefix: str, options: PanoramaOptions) -> None:
    """Write the views of a panorama, and of its mask."""
    rgb, mask = read_photo(photo.path, photo.mask_path)  # [H, W, 3], [H, W]
    height, width = rgb.shape[:2]
    name, exif = Path(photo.info.name).with_suffix(".jpg"), _place_of(photo.path)
    for k, rotation in enumerate(view_rotations(options)):
        where = _sampling(width, height, rotation, options)
        view = Image.fromarray(_sampled(rgb, where, cv2.INTER_CUBIC))
        target = views / f"{prefix}view{k}" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_picture(target, view, quality=options.jpeg_quality, subsampling=0, **({"exif": exif} if exif else {}))
        if masks is not None and mask is not None:
            white = masks / f"{prefix}view{k}" / name.with_suffix(".png")
            white.parent.mkdir(parents=True, exist_ok=True)
            write_picture(white, Image.fromarray(_sampled(255 * mask.astype(np.uint8), where, cv2.INTER_NEAREST)))


def _sampling(width: int, height: int, rotation: np.ndarray, options: PanoramaOptions) -> np.ndarray:
    """Where each pixel of a view lies in the panorama [h, w, 2], first pixel centre at (0, 0)."""
    side, focal_px = view_camera(width, options)
    along = (np.arange(side) + 0.5 - side / 2) / focal_px
    x, y = np.meshgrid(along, along)
    rays = np.stack([x, y, np.ones_like(x)], axis=-1) @ rotation  # [h, w, 3] in the panorama's axes
    return (panorama_pixels(rays, width, height) - 0.5).astype(np.float32)


def _sampled(picture: np.ndarray, where: np.ndarray, how: int) -> np.ndarray:
    """A panorama at some places; it has no left and right border."""
    pad = 2
    wide = np.concatenate([picture[:, -pad:], picture, picture[:, :pad]], axis=1)
    return cv2.remap(wide, where[..., 0] + pad, where[..., 1], how, borderMode=cv2.BORDER_REPLICATE)


def _place_of(path: Path) -> Image.Exif | None:
    """The GPS place of a panorama as EXIF data for its views; nothing else of it is true of them."""
    with Image.open(path) as picture:
        place = dict(picture.getexif().get_ifd(GPS_TAGS))
    if not place:
        return None
    exif = Image.Exif()
    exif[ExifTags.Base.GPSInfo] = place
    return exif


def _link(photo: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system has no links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(photo, target)
    except OSError:
        shutil.copyfile(photo, target)
