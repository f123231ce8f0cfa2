"""Matches on disk: hloc's dense h5 layout, and a plain npz.

h5: `name0/name1/{keypoints0, keypoints1, scores}`, a `/` inside an image name becomes `-` as in hloc. hloc
puts integer coordinates at pixel centres (`center0`: it adds 0.5 when it fills a COLMAP database), so keypoints
are stored that way and shifted by half a pixel here, the one place that converts. One more group, `.proba`,
holds what hloc leaves out: dataset `images`, a JSON list of name, width, height, camera_key, focal_px, and the
attributes `pixel_convention` and `version`. If one matcher made the view graph and another the matches, dataset
`graph` is a JSON object: `matcher`, the name of the first, and `counts`, a list of two image numbers and how many
matches it found for them.

npz: `names` [N] str, `sizes` [N, 2] width and height, `pairs` [E, 2] image indices, `counts` [E], and the matches
of all pairs one after the other in `points_i` [M, 2], `points_j` [M, 2] (pixels, first pixel centre at
(0.5, 0.5)); optional `scores` [M], `camera_keys` [N] str, `focal_px` [N] (NaN: not known).
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import h5py
import numpy as np

from proba.errors import InputError
from proba.io.atomic import atomic_file
from proba.io.matches_checks import check_distinct, checked_image, checked_matches, usable
from proba.io.npz import read_npz
from proba.io.reading import Allowance, parse_json, reading, whole_numbers
from proba.matches import ImageInfo, Matches, PairMatches

META_GROUP = ".proba"
_GRAPH = "graph"
MOST_COUNTED = 1 << 40
HALF_PIXEL = np.float32(0.5)  # corner0.5 = center0 + 0.5
DAMAGED = (
    "It is damaged, half-written or something else: run the matching again, e.g. `proba match IMAGES --out FILE`, or "
    "`proba import`."
)
IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".ppm"}

RawMatches = dict[tuple[str, str], PairMatches]
"""By the names of two images."""


def save_matches(path: str | Path, matches: Matches) -> None:
    """Write an h5 file that hloc's readers understand. The file appears whole or not at all."""
    keys = [h5_name(image.name) for image in matches.images]
    if len(set(keys)) < len(keys):
        clash = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"Two images are both called {clash!r} once '/' becomes '-'. Rename one of them.")
    with new_h5(path) as file:
        write_images(file, matches.images)
        for (i, j), pair in matches.pairs.items():
            write_pair(file, matches.images[i].name, matches.images[j].name, pair)
        if matches.graph_counts is not None:
            write_graph(file, "", matches.graph_counts)


@contextmanager
def new_h5(path: str | Path) -> Iterator[h5py.File]:
    """An h5 file to write; it appears whole or not at all, also on a full disk, which HDF5 itself overlooks."""
    with atomic_file(path, errors_at_end=True) as stream, h5py.File(stream, "w", libver="latest") as file:
        yield file


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
    with reading(path, "a matches file that can be read", DAMAGED):
        if path.suffix == ".npz":
            matches, total = _read_npz(path)
        else:
            with h5py.File(path, "r") as file:
                matches, total = _read_h5(file, path, images)
    dropped = total - sum(len(pair.scores) for pair in matches.pairs.values())
    if dropped:
        warnings.warn(
            f"{path}: left out {dropped} matches with NaN or infinite values or far outside their images.", stacklevel=2
        )
    return matches


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
    group["images"] = json.dumps([image.stored for image in images])


def write_graph(file: h5py.File, matcher: str, counts: Mapping[tuple[int, int], int]) -> None:
    """Put into an open h5 file how many matches the matcher for the view graph has found."""
    rows = [[i, j, count] for (i, j), count in sorted(counts.items())]
    file.require_group(META_GROUP)[_GRAPH] = json.dumps({"matcher": matcher, "counts": rows})


def read_graph(file: h5py.File, allowance: Allowance) -> tuple[str, list] | None:
    """Name of the matcher for the view graph and its counts [[i, j, count], ...]; None if there was none."""
    if META_GROUP not in file or _GRAPH not in file[META_GROUP]:
        return None
    found = parse_json(read_text(file[META_GROUP][_GRAPH], allowance))
    return str(found["matcher"]), list(found["counts"])


def read_images(file: h5py.File, allowance: Allowance) -> list[ImageInfo] | None:
    """The images of an open h5 file, None if it was not written by ProBA."""
    if META_GROUP not in file:
        return None
    entries = parse_json(read_text(file[META_GROUP]["images"], allowance))
    names = {field.name for field in fields(ImageInfo)} - {"lens"}
    images = [checked_image(**{key: value for key, value in entry.items() if key in names}) for entry in entries]
    check_distinct(images)
    return images


def _read_h5(file: h5py.File, path: Path, images: str | Path | None) -> tuple[Matches, int]:
    """The matches, and how many there were before the unusable ones were left out."""
    allowance = Allowance(path)
    raw: RawMatches = {}
    for name0, group0 in own_items(file):
        if name0 == META_GROUP:
            continue
        for name1, group in own_items(group0) if isinstance(group0, h5py.Group) else ():
            if isinstance(group, h5py.Group) and name0 != name1:
                raw[name0, name1] = read_pair(group, allowance)
    if not raw and META_GROUP not in file:
        raise InputError(
            f"{path} holds no groups name0/name1/keypoints0. Give a dense hloc matches file, "
            "or make one with `proba match`."
        )
    infos = read_images(file, allowance)
    if not infos and images is not None:
        infos, raw = _with_photos(raw, Path(images))
    infos = infos or _guess_images(raw, path)
    index = {h5_name(info.name): k for k, info in enumerate(infos)}
    matches = Matches(images=infos)
    for (name0, name1), pair in raw.items():
        if name0 not in index or name1 not in index:
            missing = name0 if name0 not in index else name1
            raise InputError(f"{path} has matches of {missing!r}, which is not among its images. Match again.")
        i, j = index[name0], index[name1]
        matches.add(i, j, *usable(pair, infos[i], infos[j]))
    if (graph := read_graph(file, allowance)) is not None:
        rows = whole_numbers(np.array(graph[1]).reshape(-1, 3), "counts of the view graph", 0, MOST_COUNTED)  # [E, 3]
        matches.graph_counts = {(i, j): count for i, j, count in rows.tolist()}
    return matches, sum(len(pair.scores) for pair in raw.values())


def own_items(group: h5py.Group) -> Iterator[tuple[str, h5py.Group | h5py.Dataset]]:
    """What a group holds itself: links may lead to other files, or round in circles."""
    for name in group:
        if isinstance(group.get(name, getlink=True), h5py.HardLink):
            yield name, group[name]


def read_dataset(group: h5py.Group, name: str, allowance: Allowance) -> np.ndarray:
    """The numbers of a dataset, after a look at how many there are."""
    dataset = group[name]
    if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "fiu":
        raise ValueError(f"{group.name}/{name} holds no numbers")
    allowance.take(dataset.nbytes)
    return dataset[()]


def read_text(dataset: h5py.Dataset, allowance: Allowance) -> bytes:
    """The text of a dataset that holds one."""
    if not isinstance(dataset, h5py.Dataset) or dataset.shape != ():
        raise ValueError("what should be a text is none")
    allowance.take(dataset.nbytes)
    text = dataset[()]
    if not isinstance(text, bytes):
        raise ValueError(f"{dataset.name} holds no text")
    return text


def read_pair(group: h5py.Group, allowance: Allowance) -> PairMatches:
    """The matches of a pair's group, in our pixels."""
    if "keypoints0" not in group:
        raise InputError(
            f"{group.file.filename} has the pair {group.name} without keypoints0. hloc's sparse matches keep the "
            "keypoints in a second file: import both, or give a dense matches file."
        )
    points = [read_dataset(group, f"keypoints{k}", allowance) for k in (0, 1)]
    scores = read_dataset(group, "scores", allowance) if "scores" in group else None
    pair = checked_matches(points[0], points[1], scores, f"the pair {group.name}")
    return PairMatches(pair.points_i + HALF_PIXEL, pair.points_j + HALF_PIXEL, pair.scores)


def _guess_images(raw: RawMatches, path: Path) -> list[ImageInfo]:
    """hloc files name the images but not their sizes: the extent of the keypoints."""
    keys = sorted({name for pair in raw for name in pair})
    extent = {key: np.zeros(2) for key in keys}
    for pair, points in raw.items():
        for key, xy in zip(pair, points[:2], strict=True):
            extent[key] = np.max(np.where(np.isfinite(xy), xy, 0.0), axis=0, initial=0.0).clip(min=extent[key])
    # A common extent, because one camera is likelier than many and a wrong centre biases the poses.
    width, height = (max(1, math.ceil(side)) for side in np.max(list(extent.values()), axis=0))
    warnings.warn(
        f"{path} does not tell image sizes; assuming {width} x {height} from the extent of the keypoints. "
        "Give the image folder to read the true sizes.",
        stacklevel=4,
    )
    return [checked_image(name=key, width=width, height=height) for key in keys]


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
            (one, other): PairMatches(frame[one].to_shown(points), frame[other].to_shown(others), scores)
            for (one, other), (points, others, scores) in raw.items()
        }
    sizes = [frame[key].shown_size for key in keys]
    images = [checked_image(name=name_of[key], width=w, height=h) for key, (w, h) in zip(keys, sizes, strict=True)]
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


def _read_npz(path: Path) -> tuple[Matches, int]:
    """The matches, and how many there were before the unusable ones were left out."""
    data = read_npz(path)
    names, n = data["names"].tolist(), len(data["names"])
    sizes = data["sizes"].reshape(n, 2).tolist()
    keys = data["camera_keys"].tolist() if "camera_keys" in data else [""] * n
    focals = data["focal_px"].tolist() if "focal_px" in data else [None] * n
    images = [
        checked_image(name=name, width=width, height=height, camera_key=key, focal_px=_known(focal))
        for name, (width, height), key, focal in zip(names, sizes, keys, focals, strict=True)
    ]
    check_distinct(images)
    points = checked_matches(data["points_i"], data["points_j"], data.get("scores"), "the file")
    total = len(points.scores)
    pairs = whole_numbers(data["pairs"].reshape(-1, 2), "pairs", 0, n - 1)  # [E, 2]
    counts = whole_numbers(data["counts"].reshape(-1), "counts", 0, total)  # [E]
    if len(pairs) != len(counts) or counts.sum() != total:
        raise ValueError("the lengths of pairs, counts, points_i and points_j do not fit")
    matches = Matches(images=images)
    start = 0
    for (i, j), count in zip(pairs.tolist(), counts.tolist(), strict=True):
        part = PairMatches(*(column[start : start + count] for column in points))
        matches.add(i, j, *usable(part, images[i], images[j]))
        start += count
    return matches, total


def _known(focal: object) -> object:
    """A focal length, None where the file has NaN."""
    return None if isinstance(focal, float) and math.isnan(focal) else focal
