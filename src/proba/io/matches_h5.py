"""Matches on disk: hloc's dense h5 layout, and a plain npz.

h5: `name0/name1/{keypoints0, keypoints1, scores}`, a `/` inside an image name becomes `-` as in hloc. hloc
puts integer coordinates at pixel centres (`center0`: it adds 0.5 when it fills a COLMAP database), so keypoints
are stored that way and shifted by half a pixel here, the one place that converts. One more group, `.proba`,
holds what hloc leaves out: dataset `images`, a JSON list of name, width, height, camera_key, focal_px, and the
attributes `pixel_convention` and `version`.

npz: `names` [N] str, `sizes` [N, 2] width and height, `pairs` [E, 2] image indices, `counts` [E], and the matches
of all pairs one after the other in `points_i` [M, 2], `points_j` [M, 2] (pixels, first pixel centre at
(0.5, 0.5)); optional `scores` [M], `camera_keys` [N] str, `focal_px` [N] (NaN: not known).
"""

from __future__ import annotations

import json
import math
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np

from proba.errors import InputError
from proba.io.atomic import atomic_path
from proba.matches import ImageInfo, Matches, PairMatches

META_GROUP = ".proba"
HALF_PIXEL = np.float32(0.5)  # corner0.5 = center0 + 0.5
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".ppm"}

RawMatches = dict[tuple[str, str], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""By the names of two images: their points [M, 2] each, and scores [M]."""


def save_matches(path: str | Path, matches: Matches) -> None:
    """Write an h5 file that hloc's readers understand. The file appears whole or not at all."""
    keys = [h5_name(image.name) for image in matches.images]
    if len(set(keys)) < len(keys):
        clash = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"Two images are both called {clash!r} once '/' becomes '-'. Rename one of them.")
    with atomic_path(path) as temporary, h5py.File(temporary, "w", libver="latest") as file:
        write_images(file, matches.images)
        for (i, j), pair in matches.pairs.items():
            write_pair(file, matches.images[i].name, matches.images[j].name, pair)


def write_pair(file: h5py.File, name_i: str, name_j: str, pair: PairMatches) -> None:
    """Put the matches of one pair into an open h5 file."""
    group = file.create_group(f"{h5_name(name_i)}/{h5_name(name_j)}")
    group["keypoints0"] = pair.points_i - HALF_PIXEL  # [M, 2]
    group["keypoints1"] = pair.points_j - HALF_PIXEL  # [M, 2]
    group["scores"] = pair.scores  # [M]


def load_matches(path: str | Path, images: str | Path | None = None) -> Matches:
    """Read an h5 or npz file. `images` is the image folder, for h5 files that do not know image sizes."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no matches file {path}. Make one with `proba match IMAGES --out {path}`.")
    if path.suffix == ".npz":
        return _load_npz(path)
    try:
        with h5py.File(path, "r") as file:
            return _read_h5(file, path, images)
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise _damaged(path, error) from error


def h5_name(image_name: str) -> str:
    """An image's name as a group of the h5 file, hloc's rule."""
    return image_name.replace("/", "-")


def write_images(file: h5py.File, images: list[ImageInfo]) -> None:
    """Put the list of images into an open h5 file."""
    group = file.require_group(META_GROUP)
    group.attrs["version"] = 1
    group.attrs["pixel_convention"] = "center0: integer coordinates at pixel centres, as hloc"
    if "images" in group:
        del group["images"]
    group["images"] = json.dumps([vars(image) for image in images])


def read_images(file: h5py.File) -> list[ImageInfo] | None:
    """The images of an open h5 file, None if it was not written by ProBA."""
    if META_GROUP not in file:
        return None
    return [ImageInfo(**entry) for entry in json.loads(file[META_GROUP]["images"][()])]


def _read_h5(file: h5py.File, path: Path, images: str | Path | None) -> Matches:
    raw: RawMatches = {}
    for name0, group0 in file.items():
        if name0 == META_GROUP:
            continue
        for name1, group in group0.items() if isinstance(group0, h5py.Group) else ():
            if isinstance(group, h5py.Group) and name0 != name1:
                raw[name0, name1] = _read_pair(group, path)
    if not raw and META_GROUP not in file:
        raise InputError(
            f"{path} holds no groups name0/name1/keypoints0. Give a dense hloc matches file, "
            "or make one with `proba match`."
        )
    infos = read_images(file)
    if not infos and images is not None:
        infos, raw = _with_photos(raw, Path(images))
    infos = infos or _guess_images(raw, path)
    index = {h5_name(info.name): k for k, info in enumerate(infos)}
    matches = Matches(images=infos)
    dropped = 0
    for (name0, name1), (points0, points1, scores) in raw.items():
        if name0 not in index or name1 not in index:
            missing = name0 if name0 not in index else name1
            raise InputError(f"{path} has matches of {missing!r}, which is not among its images. Match again.")
        good = np.isfinite(points0).all(1) & np.isfinite(points1).all(1) & np.isfinite(scores)  # [M]
        dropped += int((~good).sum())
        matches.add(index[name0], index[name1], points0[good], points1[good], scores[good])
    _warn_dropped(path, dropped)
    return matches


def _read_pair(group: h5py.Group, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if "keypoints0" not in group:
        raise InputError(
            f"{path} has the pair {group.name} without keypoints0. hloc's sparse matches keep the keypoints in "
            "a second file: import both, or give a dense matches file."
        )
    points0 = np.asarray(group["keypoints0"], np.float32) + HALF_PIXEL  # [M, 2]
    points1 = np.asarray(group["keypoints1"], np.float32) + HALF_PIXEL  # [M, 2]
    scores = np.asarray(group["scores"], np.float32) if "scores" in group else np.ones(len(points0), np.float32)
    if not (points0.ndim == 2 and points0.shape[1] == 2 and points0.shape == points1.shape):
        raise _damaged(path, f"pair {group.name} has shapes {points0.shape} and {points1.shape}")
    if scores.shape != points0.shape[:1]:
        raise _damaged(path, f"pair {group.name} has {len(points0)} matches and scores of shape {scores.shape}")
    return points0, points1, scores


def _guess_images(raw: RawMatches, path: Path) -> list[ImageInfo]:
    """hloc files name the images but not their sizes: the extent of the keypoints."""
    keys = sorted({name for pair in raw for name in pair})
    extent = {key: np.zeros(2) for key in keys}
    for pair, points in raw.items():
        for key, xy in zip(pair, points[:2], strict=True):
            if len(xy):
                extent[key] = np.fmax(extent[key], np.nanmax(np.where(np.isfinite(xy), xy, np.nan), axis=0))
    # A common extent, because one camera is likelier than many and a wrong centre biases the poses.
    width, height = (max(1, math.ceil(side)) for side in np.max(list(extent.values()), axis=0))
    warnings.warn(
        f"{path} does not tell image sizes; assuming {width} x {height} from the extent of the keypoints. "
        "Give the image folder to read the true sizes.",
        stacklevel=4,
    )
    return [ImageInfo(name=key, width=width, height=height) for key in keys]


def _with_photos(raw: RawMatches, folder: Path) -> tuple[list[ImageInfo], RawMatches]:
    """Names and sizes of the photos as they are shown, and the matches in these coordinates.

    hloc reads photos as they are shown, other writers of its layout as they are stored: what fits the sizes is right.
    """
    from proba.io.images import read_frame  # only this path needs it

    keys = sorted({name for pair in raw for name in pair})
    name_of = _names_in_folder(keys, folder)
    frame = {key: read_frame(folder / name_of[key]) for key in keys}
    outside_shown = outside_stored = 0
    for key, points in ((pair[end], points[end]) for pair, points in raw.items() for end in (0, 1)):
        stored = np.array([frame[key].width, frame[key].height])
        outside_shown += int((points > frame[key].shown_size).any(1).sum())
        outside_stored += int((points > stored).any(1).sum())
    if outside_stored < outside_shown:
        raw = {
            (one, other): (frame[one].to_shown(points), frame[other].to_shown(others), scores)
            for (one, other), (points, others, scores) in raw.items()
        }
    sizes = [frame[key].shown_size for key in keys]
    images = [ImageInfo(name=name_of[key], width=w, height=h) for key, (w, h) in zip(keys, sizes, strict=True)]
    return images, raw


def _names_in_folder(keys: list[str], folder: Path) -> dict[str, str]:
    """Names of the photos of a folder by their keys; refuses a folder that lacks one."""
    if not folder.is_dir():
        raise InputError(f"There is no image folder {folder}. Check the path.")
    files = (file for file in folder.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
    name_of = {h5_name(name): name for name in (file.relative_to(folder).as_posix() for file in files)}
    missing = [key for key in keys if key not in name_of]
    if missing:
        raise InputError(
            f"{len(missing)} matched images are not in {folder}, e.g. {missing[0]!r}. "
            "Give the folder that the matches were made from."
        )
    return name_of


def _load_npz(path: Path) -> Matches:
    try:
        with np.load(path, allow_pickle=False) as file:
            data = {key: file[key] for key in file.files}
        n = len(data["names"])
        keys = data.get("camera_keys", np.full(n, ""))
        focals = data.get("focal_px", np.full(n, np.nan))
        images = [
            ImageInfo(
                name=str(data["names"][k]),
                width=int(data["sizes"][k, 0]),
                height=int(data["sizes"][k, 1]),
                camera_key=str(keys[k]),
                focal_px=float(focals[k]) if np.isfinite(focals[k]) else None,
            )
            for k in range(n)
        ]
        points_i, points_j = data["points_i"], data["points_j"]
        scores = data.get("scores", np.ones(len(points_i), np.float32))
        pairs, counts = np.asarray(data["pairs"]).reshape(-1, 2), np.asarray(data["counts"]).reshape(-1)
    except (OSError, KeyError, ValueError, IndexError, EOFError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from error
    if not (len(points_i) == len(points_j) == len(scores) == counts.sum()) or len(pairs) != len(counts):
        raise _damaged(path, "the lengths of pairs, counts, points_i, points_j and scores do not fit")
    if len(pairs) and (pairs.min() < 0 or pairs.max() >= n):
        raise _damaged(path, f"pairs name images outside 0..{n - 1}")
    good = np.isfinite(points_i).all(1) & np.isfinite(points_j).all(1) & np.isfinite(scores)  # [M]
    matches = Matches(images=images)
    for (i, j), start, count in zip(pairs.tolist(), np.cumsum(counts) - counts, counts, strict=True):
        keep = np.arange(start, start + count)[good[start : start + count]]
        matches.add(i, j, points_i[keep], points_j[keep], scores[keep])
    _warn_dropped(path, int((~good).sum()))
    return matches


def _warn_dropped(path: Path, dropped: int) -> None:
    if dropped:
        warnings.warn(f"{path}: left out {dropped} matches with NaN or infinite values.", stacklevel=4)


def _damaged(path: Path, reason: object) -> InputError:
    return InputError(
        f"{path} is damaged, half-written, or not a matches file ({reason}). "
        "Delete it and run the matching again, e.g. `proba match IMAGES --out FILE`."
    )
