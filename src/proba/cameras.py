"""What is known or assumed of the cameras before anything is measured."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from proba.errors import InputError
from proba.geometry.camera import MODELS
from proba.matches import ImageInfo, KnownLens
from proba.reconstruction import Note

Share = Literal["camera", "folder", "all", "none"]
Focal = Literal["free", "init", "fixed"]
AUTO = "auto"
EQUIRECTANGULAR = "EQUIRECTANGULAR"
"""The model of panoramas, which are cut into pinhole views before the matching."""
LISTED = 8
"""More names than this in one sentence nobody reads."""


@dataclass(frozen=True, kw_only=True)
class CameraOptions:
    """Which images have one camera, and what its focal length may be."""

    share: Share = "camera"
    """Whose images share intrinsics. A camera is equal size and EXIF camera."""
    focal: Focal = "free"
    """Known focal lengths: ignored, start and prior, held. They come from EXIF or the matches file. Cameras whose focal
    length is not known are free in any case."""
    focal_prior_sigma: float = 0.1
    """Standard deviation of a known focal length under `init`, as a share of it: EXIF rounds to a millimetre."""
    focal_px: float | None = None
    """Focal length of all photos in their own pixels, instead of EXIF's. It is held under `fixed`, else a start and a
    prior."""
    intrinsics: Path | None = None
    """Known intrinsics: COLMAP, transforms.json, YAML or JSON. For all photos, a folder or single ones; YAML is that of
    OpenCV, ROS or Kalibr."""
    calibration: Literal["fixed", "init", "free"] = "fixed"
    """Intrinsics from the file are held (fixed), a start with a prior (init), or a start alone (free), where the file
    does not say it itself."""
    calibration_sigma: float = 0.01
    """Standard deviation under `init`: of focal lengths as a share of them, of the principal point as a share of the
    longest side, of distortion as a share of the radius in the image corner."""
    model: str = AUTO
    """COLMAP's name of the lens; fisheye photos need OPENCV_FISHEYE. auto: the likelihood chooses among perspective
    ones. EQUIRECTANGULAR: panoramas, which `proba run` cuts into pinhole views."""

    def __post_init__(self) -> None:
        if not (self.focal_prior_sigma > 0 and self.calibration_sigma > 0):
            raise ValueError("focal_prior_sigma and calibration_sigma must be positive")
        if self.focal_px is not None and not self.focal_px > 0:
            raise ValueError(f"--focal-px must be positive, got {self.focal_px:g}")
        if self.focal_px is not None and self.intrinsics is not None:
            raise ValueError("give --focal-px or --intrinsics, not both")
        if self.model not in (AUTO, EQUIRECTANGULAR, *MODELS):
            names = ", ".join([*MODELS, EQUIRECTANGULAR])
            raise ValueError(f"--camera-model {self.model} is not known; choose auto, {names}")
        if self.focal_px is not None and self.focal == "free":
            object.__setattr__(self, "focal", "init")


@dataclass(frozen=True, kw_only=True)
class CameraSetup:
    """The cameras of one connected piece: N images, C cameras."""

    camera_of_image: np.ndarray  # [N] int64
    known_focal_px: np.ndarray  # [C] float64, original pixels; NaN: not known, or to be ignored
    focal_sigma: float
    """Standard deviation of the known focal lengths, as a share of them; 0: they are held."""
    by_size_alone: np.ndarray  # [N] bool
    """Images that share a camera with others only because they have one size."""
    lenses: tuple[KnownLens | None, ...] = ()
    """The whole lens of each camera, as far as it is known beforehand or assumed; empty: of none."""
    model: str = AUTO
    """The model that cameras without a known lens must have."""

    @property
    def n_cameras(self) -> int:
        return len(self.known_focal_px)

    @property
    def lens_of_image(self) -> list[KnownLens | None]:  # [N]
        """The lens of each image, as far as it is known or assumed."""
        lenses = self.lenses or (None,) * self.n_cameras
        return [lenses[camera] for camera in self.camera_of_image.tolist()]

    @property
    def known(self) -> np.ndarray:  # [C] bool
        """Cameras whose focal length is known beforehand."""
        return np.isfinite(self.known_focal_px)

    @property
    def held(self) -> np.ndarray:  # [C] bool
        """Cameras whose focal length does not change."""
        return self.known & (self.focal_sigma == 0)


def make_setup(images: Sequence[ImageInfo], options: CameraOptions | None = None) -> CameraSetup:
    """The cameras of these images, in their order."""
    options = options or CameraOptions()
    camera_of_image = _group(images, options)
    n_cameras = int(camera_of_image.max()) + 1
    log_focal, count = np.zeros(n_cameras), np.zeros(n_cameras)
    if options.focal != "free":
        told = np.array([image.focal_px is not None for image in images])  # [N]
        np.add.at(log_focal, camera_of_image[told], np.log([image.focal_px for image in images if image.focal_px]))
        np.add.at(count, camera_of_image[told], 1)
    with np.errstate(invalid="ignore"):
        known_focal_px = np.exp(log_focal / count)  # 0 / 0 is NaN: not known
    nameless = np.array([not image.camera_key and image.lens is None for image in images])
    lenses: list[KnownLens | None] = [None] * n_cameras
    for image, camera in zip(images, camera_of_image.tolist(), strict=True):
        lenses[camera] = image.lens
    return CameraSetup(
        lenses=tuple(lenses) if any(lenses) else (),
        model=options.model,
        camera_of_image=camera_of_image,
        known_focal_px=known_focal_px,
        focal_sigma=0.0 if options.focal == "fixed" else options.focal_prior_sigma,
        by_size_alone=nameless & (options.share == "camera"),
    )


def _group(images: Sequence[ImageInfo], options: CameraOptions) -> np.ndarray:
    """Index of the camera of each image, [N] int64; images of different size never share.

    Nor do images without EXIF where most have sizes of their own: in a collection, equal sizes are chance (two photos
    of imc_reichstag, whose focal lengths differ by 1.4, are 1024 x 681 px).
    """
    kinds = {(image.camera_key, *sorted((image.width, image.height))) for image in images}
    collection = len(kinds) > len(images) / 2
    keys: dict[tuple, int] = {}
    index = []
    for n, image in enumerate(images):
        told_px = None if options.focal == "free" else image.focal_px
        by = {
            "camera": image.camera_key or (n if collection else told_px),
            "folder": str(PurePosixPath(image.name).parent),
            "all": "",
            "none": n,
        }[options.share]
        index.append(keys.setdefault((image.width, image.height, by, image.lens), len(keys)))
    return np.array(index, np.int64)


def check_known_focals(images: Sequence[ImageInfo], options: CameraOptions) -> None:
    """Refuse to use known focal lengths where there are none; warn of images that have none."""
    if options.focal == "free":
        return
    unknown = unknown_focals(images, make_setup(images, options))
    if len(unknown) == len(images):
        raise no_known_focal(options)
    if unknown:
        warnings.warn(f"{_not_known(unknown)}; it is estimated in spite of --focal {options.focal}", stacklevel=3)


def no_known_focal(options: CameraOptions) -> InputError:
    """What to say where a known focal length is needed and there is none."""
    return InputError(
        f"--focal {options.focal} needs a known focal length, but neither EXIF nor the matches file tells one. "
        "Leave it out: focal lengths are estimated then. Or give it with --focal-px or --intrinsics."
    )


def unknown_focals(images: Sequence[ImageInfo], setup: CameraSetup) -> list[str]:
    """Names of the images of cameras whose focal length is not known."""
    told = np.array([image.lens is not None for image in images])  # [N]
    known = setup.known[setup.camera_of_image] | told  # [N]
    return [image.name for image, told in zip(images, known.tolist(), strict=True) if not told]


def focal_notes(images: Sequence[ImageInfo], setup: CameraSetup, options: CameraOptions) -> list[Note]:
    """What the report says of images whose focal length should be known and is not."""
    unknown = [] if options.focal == "free" else unknown_focals(images, setup)
    if not unknown:
        return []
    advice = f"it is estimated in spite of --focal {options.focal}; give it in the matches file if you know it"
    return [Note(kind="focal not known", text=_not_known(unknown), advice=advice, images=tuple(unknown))]


def _not_known(names: Sequence[str]) -> str:
    return f"the focal length of {listed(names)} is not known beforehand"


def listed(names: Sequence[str]) -> str:
    """Names for a sentence, the first ones of many."""
    return ", ".join(names[:LISTED]) + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")
