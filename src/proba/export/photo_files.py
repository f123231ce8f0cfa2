"""Photos and masks inside an export, so that its folder can be zipped and taken elsewhere."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from proba.errors import InputError
from proba.io.atomic import atomic_file, atomic_path
from proba.io.images import UNREADABLE, mask_files, mask_of_photo, read_photo
from proba.io.names import is_safe_name, safe_relative_path
from proba.io.picture_files import write_picture

LinkMode = Literal["copy", "hardlink", "symlink"]
ORIENTATION = 0x0112  # EXIF tag; 1 means that the photo is stored as it is shown
READABLE = (".jpg", ".jpeg", ".png")
"""What every trainer reads; photos of other formats are converted."""
PLAIN_MODES = ("L", "RGB", "RGBA")
JPEG_QUALITY = 95


@dataclass(frozen=True, kw_only=True)
class PhotoSource:
    """The photos of a result, and their masks if there are any."""

    photos: Path
    masks: dict[str, Path] = field(default_factory=dict)
    """As `proba.io.images.mask_files` lists them."""

    def path(self, name: str) -> Path:
        """Where a photo is."""
        path = self.photos / safe_relative_path(name)
        if not path.is_file():
            raise InputError(f"The photo {path} is missing. Give the folder of the photos with --images.")
        return path

    def mask_path(self, name: str) -> Path | None:
        return mask_of_photo(name, self.masks)

    def read(self, name: str) -> tuple[np.ndarray, np.ndarray | None]:
        """RGB [h, w, 3] of a photo as it is shown, and where it counts [h, w] bool."""
        path = self.path(name)
        try:
            return read_photo(path, self.mask_path(name))
        except UNREADABLE as error:
            raise InputError(f"The photo {path} or its mask cannot be read ({error}). Restore it.") from error


def photo_source(photos: Path, masks: Path | None, out: Path) -> PhotoSource:
    """The photos to export; refuses an export that would write over them."""
    for name, folder in (("images", photos), ("masks", masks)):
        if folder is not None and (out / name).resolve() == folder.resolve():
            raise InputError(f"{folder} holds the {name} themselves, which would be overwritten. Choose another --out.")
    return PhotoSource(photos=photos, masks={} if masks is None else mask_files(masks))


def exported_name(name: str) -> str:
    """Name of a photo in the export: its own, with a further suffix where the format has to change."""
    return name if name.lower().endswith(READABLE) else f"{name}.png"


def add_photo(source: PhotoSource, name: str, target: Path, mode: LinkMode) -> None:
    """Put a photo at `target`: the same file, or an upright one where other programs would show it turned.

    Where the file system has no links between the two places, the photo is copied.
    """
    photo = source.path(name)
    if not _as_it_is(photo):
        rgb, mask = source.read(name)
        keep_alpha = mask is not None and source.mask_path(name) is None and target.suffix.lower() == ".png"
        save_picture(np.dstack([rgb, np.uint8(255) * mask]) if mask is not None and keep_alpha else rgb, target)
        return
    if mode != "copy":
        with suppress(OSError), atomic_path(target) as temporary:
            temporary.unlink()
            (os.link if mode == "hardlink" else os.symlink)(photo.resolve(), temporary)
            return
    with open(photo, "rb") as content, atomic_file(target) as file:
        shutil.copyfileobj(content, file)


def save_picture(pixels: np.ndarray, target: Path) -> None:
    """Write pixels [h, w] or [h, w, 3 or 4] in the format of the file name."""
    write_picture(target, Image.fromarray(pixels), quality=JPEG_QUALITY)


def save_mask(mask: np.ndarray, target: Path) -> None:
    """Write a mask [h, w] bool, white where the photo counts."""
    save_picture(mask.astype(np.uint8) * 255, target)


def _as_it_is(photo: Path) -> bool:
    """Whether other programs read the very file and show it as we do."""
    if not photo.name.lower().endswith(READABLE):
        return False
    try:
        with Image.open(photo) as image:
            return image.mode in PLAIN_MODES and image.getexif().get(ORIENTATION, 1) == 1
    except UNREADABLE as error:
        raise InputError(f"The photo {photo} cannot be read ({error}). Restore it.") from error


def any_masks(source: PhotoSource, names: list[str]) -> bool:
    """Whether at least one of the photos has a mask."""
    return any(is_safe_name(name) and source.mask_path(name) is not None for name in names)
