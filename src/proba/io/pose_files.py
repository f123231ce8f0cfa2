"""Known poses for the photos at hand: from files of other programs, and from EXIF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np
from scipy.spatial.transform import Rotation

from proba.errors import InputError
from proba.io.gps import read_gps_and_error, to_enu
from proba.io.ground_truth import load_ground_truth, rigid
from proba.io.reading import MAX_COORDINATE, reading
from proba.known_poses import UNKNOWN, KnownPoseOptions, KnownPoses
from proba.matches import ImageInfo

TUM_COLUMNS = 8
TUM_SUFFIXES = (".txt", ".tum")
MIN_PLACES = 3
"""GPS places below which there is no frame."""


def load_known_poses(options: KnownPoseOptions, images: Sequence[ImageInfo], photos: Path | None) -> KnownPoses | None:
    """What the options say of these images, in their order; None where they say nothing."""
    if options.gps:
        return _gps_places(options, images, photos)
    if options.file is None:
        return None
    path = Path(options.file)
    if path.suffix in TUM_SUFFIXES and path.stem not in ("images", "cameras", "points3D"):
        names, cam_from_world = read_tum(path)
        focal = np.full(len(names), np.nan)
    else:
        truth = load_ground_truth(path)
        names, cam_from_world = truth.names, truth.cam_from_world
        # As a share of the longest side: photos may be stored in another size.
        focal = np.sqrt(truth.intrinsics[:, 0] * truth.intrinsics[:, 1]) / np.maximum(truth.width, truth.height)
    chosen = entries_of([image.name for image in images], names)  # [N], -1: none
    if (chosen >= 0).sum() < 2:
        raise InputError(
            f"{path} has poses of fewer than two of these photos; it names {names[0]}, and a photo is {images[0].name}."
        )
    width = np.radians(options.rotation_sigma_deg), 1.0 if options.centre_sigma is None else options.centre_sigma
    sigma = np.repeat(np.where(chosen >= 0, 1.0, UNKNOWN)[:, None], 6, axis=1) * np.repeat(width, 3)
    longest = np.array([max(image.width, image.height) for image in images])
    return KnownPoses(
        cam_from_world=np.where((chosen >= 0)[:, None, None], cam_from_world[chosen], np.eye(4)),
        focal_px=np.where(chosen >= 0, focal[chosen] * longest, np.nan),
        sigma=sigma,
        use=options.use,
        z_up=False,
        outlier_sigmas=options.outlier_sigmas,
    )


def entries_of(images: Sequence[str], names: Sequence[str]) -> np.ndarray:  # [N] int
    """The entry of each image in a list of names, -1 for none: by the whole name, else by its last part without suffix
    where that is unique on both sides."""
    whole = {name: k for k, name in enumerate(names)}
    stems = [PurePosixPath(name).stem for name in names]
    unique = {stem for stem, count in Counter(stems).items() if count == 1}
    mine = Counter(PurePosixPath(name).stem for name in images)
    by_stem = {stem: k for k, stem in enumerate(stems) if stem in unique and mine[stem] == 1}
    return np.array([whole.get(name, by_stem.get(PurePosixPath(name).stem, -1)) for name in images], np.int64)


def read_tum(path: Path) -> tuple[list[str], np.ndarray]:
    """Names (the time stamps as they stand there) and cam_from_world [K, 4, 4] of a TUM trajectory, whose poses are
    world_from_cam: `timestamp tx ty tz qx qy qz qw`."""
    if not path.is_file():
        raise InputError(f"There are no poses at {path}. Check the path.")
    with reading(path, "a TUM trajectory", "Each line is: timestamp tx ty tz qx qy qz qw."):
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [row for row in rows if row and not row[0].startswith("#")]
        if not rows or any(len(row) != TUM_COLUMNS for row in rows):
            raise ValueError(f"a line has not {TUM_COLUMNS} numbers")
        numbers = np.array([[float(word) for word in row[1:]] for row in rows])  # [K, 7]
        if not (np.abs(numbers) < MAX_COORDINATE).all():
            raise ValueError("a pose is not finite")
        if not (np.linalg.norm(numbers[:, 3:], axis=1) > 0.5).all():
            raise ValueError("a quaternion is none")
        rotation = Rotation.from_quat(numbers[:, 3:]).as_matrix().transpose(0, 2, 1)  # [K, 3, 3] cam_from_world
        poses = rigid(rotation, -np.einsum("kij,kj->ki", rotation, numbers[:, :3]))
        return [f"{row[0]}.png" for row in rows], poses


def _gps_places(options: KnownPoseOptions, images: Sequence[ImageInfo], photos: Path | None) -> KnownPoses:
    """Centres in metres, east, north and up, from EXIF."""
    if photos is None:
        raise InputError("GPS places are read from the photos: give their folder with --images.")
    read = [read_gps_and_error(photos / image.name) for image in images]
    places = [place for place, _ in read]
    known = np.array([place is not None for place in places])  # [N]
    if known.sum() < MIN_PLACES:
        raise InputError(f"Only {known.sum()} photos have a GPS place; --gps needs {MIN_PLACES}. Leave it out.")
    centres = np.zeros((len(images), 3))
    centres[known] = to_enu(np.array([place for place in places if place is not None]))
    flat = np.array([options.gps_sigma_m if error is None else error for _, error in read])  # [N]
    sigma = np.full((len(images), 6), UNKNOWN)
    sigma[known, 3:] = flat[known, None] * [1.0, 1.0, options.gps_up_factor]
    return KnownPoses(
        cam_from_world=rigid(np.tile(np.eye(3), (len(images), 1, 1)), -centres),
        focal_px=np.full(len(images), np.nan),
        sigma=sigma,
        use="prior",
        z_up=True,
        outlier_sigmas=options.outlier_sigmas,
    )
