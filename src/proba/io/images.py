"""A folder of photos: which files are usable, what EXIF tells of their camera, and their pixels, one at a time.

Coordinates are those of the photo as it is shown, that is after its EXIF orientation was applied. A mask is white
where the photo counts and black where it is ignored; a transparent pixel is ignored as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from proba.errors import InputError
from proba.io.names import name_problem, safe_relative_path
from proba.matches import ImageInfo
from proba.memory import Budget, allowed_bytes

SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp", ".ppm"}
HEIC_SUFFIXES = {".heic", ".heif"}
MIN_SIDE_PX = 32  # smaller photos cannot hold enough features to be posed
FILM_DIAGONAL_MM = math.hypot(36, 24)  # what "35 mm equivalent" refers to
TURNED = (5, 6, 7, 8)  # EXIF orientations that swap width and height
INCHES_PER_UNIT = {2: 1.0, 3: 1 / 2.54, 4: 1 / 25.4}  # EXIF FocalPlaneResolutionUnit
UNREADABLE = Exception  # decoders answer damaged files with every kind of exception there is
MAX_PIXELS = 2 * (Image.MAX_IMAGE_PIXELS or 0)  # where Pillow refuses
BYTES_PER_PIXEL = 8
"""While a photo is decoded: four as Pillow holds it, and four more where it is turned or an array is made of it."""
HUGE_PX = 64 * 10**6
"""JPEG files with more pixels are decoded at a half or a quarter of their sides where they are reduced anyway."""
GAP = 3.0
"""A photo is reduced in one quick step to this many times the wanted size, and then with care."""
os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(MAX_PIXELS))  # OpenCV would take six times as many


@dataclass(frozen=True, kw_only=True)
class Photo:
    """One usable photo of a folder; its pixels stay on disk."""

    info: ImageInfo
    path: Path
    digest: str
    """Hash of the content of the photo and of its mask, which tells stale matches from fresh ones."""
    mask_path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """A photo in memory, perhaps reduced."""

    rgb: np.ndarray  # [h, w, 3] uint8
    mask: np.ndarray | None  # [h, w] bool, True where the photo counts
    width: int
    """Of the original photo, pixels."""
    height: int
    """Of the original photo, pixels."""
    name: str = ""
    """Of the photo, relative to its folder."""

    @property
    def scale(self) -> np.ndarray:  # [2] float32
        """Original pixels for each pixel here, along x and y."""
        return np.array([self.width / self.rgb.shape[1], self.height / self.rgb.shape[0]], np.float32)

    @property
    def grey(self) -> np.ndarray:  # [h, w] uint8
        """Luminance (ITU-R 601)."""
        return np.asarray(Image.fromarray(self.rgb).convert("L"))

    def to_original(self, points: np.ndarray) -> np.ndarray:  # [K, 2] float32
        """From pixels here with integer centres (`center0`) to original pixels, first centre at (0.5, 0.5)."""
        return (np.asarray(points, np.float32) + np.float32(0.5)) * self.scale

    def visible(self, points: np.ndarray) -> np.ndarray:  # [K] bool
        """Which points, in original pixels, lie inside the photo and on the white of its mask."""
        column, row = np.floor(points / self.scale).astype(int).T  # the pixel that covers a corner0.5 coordinate
        height, width = self.rgb.shape[:2]
        inside = (column >= 0) & (row >= 0) & (column < width) & (row < height)
        if self.mask is None:
            return inside
        return inside & self.mask[row.clip(0, height - 1), column.clip(0, width - 1)]


@dataclass(frozen=True, kw_only=True)
class StoredFrame:
    """How the pixels of a photo lie in its file."""

    width: int
    height: int
    orientation: int
    """EXIF's number for what a viewer does to the stored picture: 1 nothing, 3 half a turn, 6 and 8 quarter turns."""

    @property
    def shown_size(self) -> tuple[int, int]:
        """Width and height of the photo as it is shown."""
        return (self.height, self.width) if self.orientation in TURNED else (self.width, self.height)

    def to_shown(self, points: np.ndarray) -> np.ndarray:  # [K, 2]
        """From pixels of the stored picture to those of the shown one, first centre at (0.5, 0.5) in both."""
        x, y = points.T
        left, up = self.width - x, self.height - y
        turned = {2: (left, y), 3: (left, up), 4: (x, up), 5: (y, x), 6: (up, x), 7: (up, left), 8: (y, left)}
        return np.stack(turned.get(self.orientation, (x, y)), axis=1)


def read_frame(path: Path) -> StoredFrame:
    """From the header of a photo."""
    with Image.open(path) as image:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
        return StoredFrame(width=image.width, height=image.height, orientation=orientation)


def count_photos(folder: Path) -> int:
    """Files below a folder that look like photos."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `find_photos` says the same again
        return len(_image_files(folder))


def find_photos(folder: str | Path, *, masks: str | Path | None = None, jobs: int = 1, fewest: int = 2) -> list[Photo]:
    """All usable photos below a folder, sorted by name. Files that are left out are named in a warning."""
    budget = Budget(allowed_bytes())
    folder = Path(folder)
    paths = _image_files(folder)
    mask_of = mask_files(Path(masks)) if masks else {}
    photos: list[Photo] = []
    first_of: dict[str, str] = {}
    # The filter is set here and not where files are opened, because it belongs to the process and not to a thread.
    with warnings.catch_warnings(), ThreadPoolExecutor(max(1, jobs)) as pool:
        warnings.simplefilter("ignore")  # Pillow's own remarks on odd EXIF tags and large images
        results = list(pool.map(lambda path: _inspect(path, folder, mask_of, budget), paths))
    for path, result in zip(paths, results, strict=True):
        name = path.relative_to(folder).as_posix()
        if isinstance(result, str):
            warnings.warn(f"left out {name}: {result}", stacklevel=2)
        elif result.digest in first_of:
            warnings.warn(f"left out {name}: it is a copy of {first_of[result.digest]}", stacklevel=2)
        else:
            first_of[result.digest] = name
            photos.append(result)
    if len(photos) < fewest:
        needed = {1: "one is", 2: "two are"}.get(fewest, f"{fewest} are")
        raise InputError(
            f"{folder} has {len(photos)} usable image{'s' * (len(photos) != 1)}; at least {needed} needed. "
            "Give a folder of photos that show the same scene from different places."
        )
    if masks:
        _warn_unmasked(photos, Path(masks))
    return photos


def photos_named(folder: Path, names: Sequence[str]) -> list[Photo]:
    """The photos of these names below a folder, in this order; all must be there."""
    missing = next((name for name in names if not (folder / safe_relative_path(name)).is_file()), None)
    if missing is not None:
        raise InputError(f"{folder} does not hold the photo {missing}. Give --images the folder of the photos.")
    return [inspect_photo(folder / name, folder) for name in names]


def inspect_photo(path: Path, folder: Path | None = None) -> Photo:
    """One photo, named by its place below a folder, by default the one that it is in."""
    if not path.is_file():
        raise InputError(f"There is no photo {path}. Check the path.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in `find_photos`
        result = _inspected(path, path.parent if folder is None else folder, {})
    if isinstance(result, str):
        raise InputError(f"{path} cannot be used: {result}.")
    return result


def tells_focal(folder: Path) -> bool:
    """Whether EXIF tells the focal length of any photo below a folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `find_photos` says the same again
        return any(_focal_px(path) is not None for path in _image_files(folder))


def _focal_px(path: Path) -> float | None:
    """From the header of a file; None also where it cannot be read."""
    with contextlib.suppress(UNREADABLE), Image.open(path) as image:
        return _camera_from_exif(image.getexif(), *image.size, image.size)[1]
    return None


def load_pixels(photo: Photo, max_side_px: int | None = None) -> Pixels:
    """Read a photo, and its mask, reduced so that its longest side has at most `max_side_px`."""
    try:
        (width, height), rgb, mask = _read(photo.path, photo.mask_path, max_side_px)
    except UNREADABLE as error:
        raise InputError(f"{photo.path} cannot be read any more ({error}). Was it changed during the run?") from error
    mask = _like(mask, rgb)
    return Pixels(rgb=rgb, mask=mask, width=width, height=height, name=photo.info.name)


def read_photo(path: Path, mask_path: Path | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """RGB [h, w, 3] uint8 of a photo as it is shown, and where it counts [h, w] bool by its mask file and its alpha.

    Raises what is in UNREADABLE.
    """
    _, rgb, mask = _read(path, mask_path)
    return rgb, mask


def read_reduced(path: Path, mask_path: Path | None, max_side_px: int) -> tuple[np.ndarray, np.ndarray | None]:
    """As `read_photo`, with a longest side of at most `max_side_px`."""
    _, rgb, mask = _read(path, mask_path, max_side_px)
    return rgb, _like(mask, rgb)


def _like(mask: np.ndarray | None, rgb: np.ndarray) -> np.ndarray | None:
    """A mask in the size of its photo."""
    if mask is None or mask.shape == rgb.shape[:2]:
        return mask
    return np.asarray(Image.fromarray(mask).resize(rgb.shape[1::-1], Image.Resampling.NEAREST))


def _read(
    path: Path, mask_path: Path | None, max_side_px: int | None = None
) -> tuple[tuple[int, int], np.ndarray, np.ndarray | None]:
    """Width and height of a photo, its RGB, reduced, and where it counts, not reduced."""
    size, rgb, alpha = _decode(path, max_side_px)
    mask = None if alpha is None else alpha > 127
    if mask_path:
        white = _read_mask(mask_path, size)
        mask = white if mask is None else mask & white
    return size, rgb, mask


def load_grey(path: Path, max_side_px: int | None = None) -> np.ndarray:  # [h, w] uint8
    """Luminance of a photo file, reduced like `load_pixels`; raises OSError if it cannot be read."""
    try:
        _, rgb, _ = _decode(path, max_side_px)
    except UNREADABLE as error:
        raise OSError(f"{path} cannot be read ({error})") from error
    return np.asarray(Image.fromarray(rgb).convert("L"))


def _reduced(image: Image.Image, size: tuple[int, int], max_side_px: int | None) -> np.ndarray:  # [h, w, 3] uint8
    """RGB of a photo of this size, perhaps reduced already, with a longest side of at most `max_side_px`."""
    image = image if image.mode == "RGB" else image.convert("RGB")
    wanted = _size_below(size, max_side_px)
    if wanted == image.size:
        return np.asarray(image)
    return np.asarray(image.resize(wanted, Image.Resampling.LANCZOS, reducing_gap=GAP))


def _size_below(size: tuple[int, int], max_side_px: int | None) -> tuple[int, int]:
    """Width and height with a longest side of at most `max_side_px`."""
    factor = 1.0 if max_side_px is None else min(1.0, max_side_px / max(size))
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def _image_files(folder: Path) -> list[Path]:
    if folder.is_file():
        raise InputError(f"{folder} is a file. Give the folder that holds the photos.")
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. Check the path.")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise InputError(f"The folder {folder} may not be read. Change its permissions.")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not _hidden(path, folder)]
    heic = [path for path in files if path.suffix.lower() in HEIC_SUFFIXES]
    suffixes = SUFFIXES
    if heic and _open_heic():
        suffixes = SUFFIXES | HEIC_SUFFIXES
    elif heic:
        warnings.warn(f"left out {len(heic)} HEIC images: `pip install pillow-heif` to read them", stacklevel=3)
    images = [path for path in files if path.suffix.lower() in suffixes]
    if not images:
        found = f"none of its {len(files)} files is an image" if files else "it is empty"
        raise InputError(f"{folder} holds no images ({found}). Give a folder of JPEG, PNG, TIFF or WebP files.")
    return images


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _open_heic() -> bool:
    try:
        import pillow_heif
    except ImportError:
        return False
    pillow_heif.register_heif_opener()
    return True


def mask_files(folder: Path) -> dict[str, Path]:
    """Mask files by the name of the photo they belong to: the same name, or with a further or another suffix."""
    if not folder.is_dir():
        raise InputError(f"There is no masks folder {folder}. Check the path.")
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in SUFFIXES:
            name = path.relative_to(folder)
            found[name.as_posix()] = path
            found.setdefault(name.with_suffix("").as_posix(), path)
    return found


def mask_of_photo(name: str, files: dict[str, Path]) -> Path | None:
    """The mask of a photo among `mask_files`."""
    return files.get(name) or files.get(PurePosixPath(name).with_suffix("").as_posix())


def _warn_unmasked(photos: Iterable[Photo], masks: Path) -> None:
    bare = [photo.info.name for photo in photos if photo.mask_path is None]
    if bare:
        warnings.warn(
            f"{len(bare)} images have no mask in {masks}, e.g. {bare[0]}; all of each counts. "
            "Name a mask like its image, e.g. a.jpg.png, a.png or a.jpg.",
            stacklevel=3,
        )


def _inspect(path: Path, folder: Path, mask_of: dict[str, Path], budget: Budget) -> Photo | str:
    """The photo, or why it is left out."""
    with budget.take(decoding_bytes(path)):
        return _inspected(path, folder, mask_of)


def decoding_bytes(path: Path) -> int:
    """What decoding a photo needs at most, by its header."""
    with contextlib.suppress(UNREADABLE), Image.open(path) as image:
        return BYTES_PER_PIXEL * image.width * image.height
    return 0


def _inspected(path: Path, folder: Path, mask_of: dict[str, Path]) -> Photo | str:
    name = path.relative_to(folder)
    problem = name_problem(name.as_posix())
    if problem:
        return f"its name {problem}; rename it"
    try:
        content = path.read_bytes()
        if not content:
            return "the file is empty"
        width, height = _check(path)
        with Image.open(path) as image:
            camera_key, focal_px = _camera_from_exif(image.getexif(), width, height, image.size)
    except Image.DecompressionBombError:
        return f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6} million pixels; reduce it first"
    except UNREADABLE as error:
        return f"cannot be read as an image ({' '.join(str(error).split()) or type(error).__name__})"
    if min(width, height) < MIN_SIDE_PX:
        return f"it has only {width} x {height} pixels"
    mask_path = mask_of_photo(name.as_posix(), mask_of)
    digest = hashlib.sha256(content)
    if mask_path:
        digest.update(mask_path.read_bytes())
    info = ImageInfo(name=name.as_posix(), width=width, height=height, camera_key=camera_key, focal_px=focal_px)
    return Photo(info=info, path=path, digest=digest.hexdigest()[:32], mask_path=mask_path)


def _check(path: Path) -> tuple[int, int]:
    """Width and height as shown; raises if any part of the file is damaged (a truncated file has a good header)."""
    with contextlib.suppress(UnidentifiedImageError), Image.open(path) as image:
        size, turned = image.size, image.getexif().get(ExifTags.Base.Orientation) in TURNED
        if image.format == "JPEG":
            image.draft(None, (1, 1))  # reads all of the file, but makes only a small picture of it
            image.load()
            return size[::-1] if turned else size
    return _decode(path, MIN_SIDE_PX)[0]


def _decode(path: Path, max_side_px: int | None = None) -> tuple[tuple[int, int], np.ndarray, np.ndarray | None]:
    """Width and height, RGB [h, w, 3] uint8, reduced, and alpha [height, width] uint8 where there is one; all as shown
    (EXIF orientation applied)."""
    try:
        with Image.open(path) as image:
            stored = image.size
            if max_side_px is not None and stored[0] * stored[1] > HUGE_PX:
                image.draft(None, _size_below(stored, round(GAP * max_side_px)))  # only JPEG can do that
            drafted = image.size != stored
            turned = image.getexif().get(ExifTags.Base.Orientation) in TURNED
            ImageOps.exif_transpose(image, in_place=True)  # no copy of what may be 50 megapixels
            size = image.size if not drafted else stored[::-1] if turned else stored
            if image.mode in ("I", "F") or image.mode.startswith("I;16"):
                return size, _reduced(Image.fromarray(_to_8_bit(np.asarray(image))), size, max_side_px), None
            if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                rgba = image.convert("RGBA")
                alpha = np.asarray(rgba.getchannel("A"))
                return size, _reduced(rgba, size, max_side_px), None if (alpha == 255).all() else alpha
            return size, _reduced(image, size, max_side_px), None
    except UnidentifiedImageError:
        deep = Image.fromarray(_decode_deep_colour(path))
        return deep.size, _reduced(deep, deep.size, max_side_px), None


def _to_8_bit(values: np.ndarray) -> np.ndarray:  # [h, w] uint8
    """Deep grey values on 8 bits: 16-bit files by their range, others by their largest value."""
    values = np.nan_to_num(values.astype(np.float64))
    top = 65535.0 if 255 < values.max(initial=0) <= 65535 else max(255.0, values.max(initial=0))
    return (values.clip(0) * (255.0 / top)).round().astype(np.uint8)


def _decode_deep_colour(path: Path) -> np.ndarray:
    """Pillow has no RGB with 16 bits a channel, as some TIFF files have it."""
    import cv2

    image = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        raise UnidentifiedImageError("unknown or damaged format")
    return np.ascontiguousarray(image[..., ::-1])


def _read_mask(path: Path, size: tuple[int, int]) -> np.ndarray:  # [h, w] bool
    with Image.open(path) as file:
        image = ImageOps.exif_transpose(file).convert("L")
    if image.size != size:
        image = image.resize(size, Image.Resampling.NEAREST)
    return np.asarray(image) > 127


def _camera_from_exif(
    exif: Image.Exif, width: int, height: int, stored_size: tuple[int, int]
) -> tuple[str, float | None]:
    """Which camera and zoom took the photo (empty: not told), and its focal length in pixels of the photo."""
    details = exif.get_ifd(ExifTags.IFD.Exif)
    make, model = (str(exif.get(tag, "")).strip("\0 ") for tag in (ExifTags.Base.Make, ExifTags.Base.Model))
    film_mm = _positive(details.get(ExifTags.Base.FocalLengthIn35mmFilm))
    lens_mm = _positive(details.get(ExifTags.Base.FocalLength))
    zoom = f"{film_mm:g} mm (35 mm film)" if film_mm else f"{lens_mm:g} mm" if lens_mm else ""
    key = " ".join(part for part in (make, model, zoom) if part) if make or model else ""
    resized = _resized(details, stored_size)
    if resized is None:  # cropped: what EXIF says is the focal length of another picture
        return key, None
    if film_mm:
        return key, film_mm / FILM_DIAGONAL_MM * math.hypot(width, height)
    per_unit = _positive(details.get(ExifTags.Base.FocalPlaneXResolution))
    inches = INCHES_PER_UNIT.get(details.get(ExifTags.Base.FocalPlaneResolutionUnit, 2))
    if lens_mm and per_unit and inches:
        return key, lens_mm / 25.4 * per_unit / inches * resized
    return key, None


def _resized(details: Mapping[int, object], stored_size: tuple[int, int]) -> float | None:
    """Pixels of the file for each that was taken, by EXIF's own size (1 where it has none); None if it was cropped.

    A crop that keeps the ratio of the sides looks like a smaller copy and is taken for one.
    """
    tags = ExifTags.Base.ExifImageWidth, ExifTags.Base.ExifImageHeight
    width, height = (_positive(details.get(tag)) for tag in tags)
    if width is None or height is None:
        return 1.0 if width is None else stored_size[0] / width
    rounding = 1 / width + 1 / height
    for stored_width, stored_height in (stored_size, stored_size[::-1]):  # some programs turn the pixels alone
        if abs(stored_width / width - stored_height / height) <= rounding:
            return stored_width / width
    return None


def _positive(value: object) -> float | None:
    """A finite positive number, or None: EXIF has zeros, 0/0 and text where it should have numbers."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return number if math.isfinite(number) and number > 0 else None
