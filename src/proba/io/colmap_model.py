"""COLMAP's model files, binary and text, as arrays.

They are read here and not by pycolmap, which crashes on damaged text and believes every count that a file holds; here
no count exceeds what the file has room for. Rigs and frames (COLMAP 3.12 and later) are not needed: images.bin holds
every pose.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from proba.io.names import check_name
from proba.io.reading import MAX_COORDINATE, MAX_SIDE_PX


class CameraModel(NamedTuple):
    """A camera model of COLMAP."""

    name: str
    n_params: int
    n_focals: int
    """2: fx and fy come first, 1: f does; then cx and cy. 0: it has neither."""


MODELS = {
    0: CameraModel("SIMPLE_PINHOLE", 3, 1),
    1: CameraModel("PINHOLE", 4, 2),
    2: CameraModel("SIMPLE_RADIAL", 4, 1),
    3: CameraModel("RADIAL", 5, 1),
    4: CameraModel("OPENCV", 8, 2),
    5: CameraModel("OPENCV_FISHEYE", 8, 2),
    6: CameraModel("FULL_OPENCV", 12, 2),
    7: CameraModel("FOV", 5, 2),
    8: CameraModel("SIMPLE_RADIAL_FISHEYE", 4, 1),
    9: CameraModel("RADIAL_FISHEYE", 5, 1),
    10: CameraModel("THIN_PRISM_FISHEYE", 12, 2),
    11: CameraModel("RAD_TAN_THIN_PRISM_FISHEYE", 16, 2),
    12: CameraModel("SIMPLE_DIVISION", 4, 1),
    13: CameraModel("DIVISION", 5, 2),
    14: CameraModel("SIMPLE_FISHEYE", 3, 1),
    15: CameraModel("FISHEYE", 4, 2),
    16: CameraModel("EUCM", 6, 2),
}
MODEL_IDS = {model.name: key for key, model in MODELS.items()}
NO_POINT = (1 << 64) - 1
KEYPOINT = np.dtype([("xy", "<f8", 2), ("point", "<u8")])
POINT = struct.Struct("<Q3d3BdQ")  # id, position, colour, error, length of the track
IMAGE = struct.Struct("<I7dI")  # id, quaternion wxyz and translation, camera


@dataclass
class ColmapCamera:
    """Intrinsics."""

    model: CameraModel
    width: int
    height: int
    params: np.ndarray  # [n_params] float64

    def check(self) -> None:
        """ValueError says what is wrong."""
        if not (0 < self.width <= MAX_SIDE_PX and 0 < self.height <= MAX_SIDE_PX):
            raise ValueError(f"a camera has {self.width} x {self.height} pixels")
        if len(self.params) != self.model.n_params:
            raise ValueError(f"a {self.model.name} camera has {len(self.params)} parameters, not {self.model.n_params}")
        if not (np.abs(self.params) < MAX_COORDINATE).all() or (self.params[: self.model.n_focals] <= 0).any():
            raise ValueError(f"a camera has the parameters {self.params.tolist()}")

    @property
    def pinhole(self) -> np.ndarray:  # [4] fx, fy, cx, cy
        return self.params[[0, 1, 2, 3] if self.model.n_focals == 2 else [0, 0, 1, 2]]


@dataclass
class ColmapImage:
    """A posed image."""

    camera_id: int
    name: str
    quaternion: np.ndarray  # [4] wxyz
    translation: np.ndarray  # [3]
    keypoints: np.ndarray = field(default_factory=lambda: np.zeros(0, KEYPOINT))  # [K]

    def check(self) -> None:
        """ValueError says what is wrong."""
        check_name(self.name)
        if not (np.abs([*self.quaternion, *self.translation]) < MAX_COORDINATE).all():
            raise ValueError(f"the pose of {self.name} is not finite")
        if not np.linalg.norm(self.quaternion) > 1e-6:
            raise ValueError(f"the rotation of {self.name} is zero")
        if not (np.abs(self.keypoints["xy"]) < MAX_COORDINATE).all():
            raise ValueError(f"the keypoints of {self.name} are not finite")

    @property
    def cam_from_world(self) -> np.ndarray:  # [4, 4]
        pose = np.eye(4)
        pose[:3, :3] = Rotation.from_quat(self.quaternion[[1, 2, 3, 0]]).as_matrix()
        pose[:3, 3] = self.translation
        return pose


@dataclass
class ColmapPoints:
    """Points in the order of their ids; where they are seen is told by the keypoints of the images."""

    ids: np.ndarray  # [P] uint64, ascending
    xyz: np.ndarray  # [P, 3] float64
    rgb: np.ndarray  # [P, 3] uint8
    error: np.ndarray  # [P] float64, mean reprojection error in pixels, -1 where not known

    def check(self) -> None:
        """ValueError says what is wrong."""
        if (self.ids[1:] == self.ids[:-1]).any():
            raise ValueError("two points have one id")
        if not (np.abs(self.xyz) < MAX_COORDINATE).all():
            raise ValueError("points3D has points that are not finite, or further away than anything is")


@dataclass
class ColmapModel:
    """A model: cameras and images by id, in ascending order. What was read is checked; what we made is not."""

    cameras: dict[int, ColmapCamera]
    images: dict[int, ColmapImage]
    points: ColmapPoints

    def check(self) -> None:
        """ValueError says what is wrong."""
        for camera in self.cameras.values():
            camera.check()
        for image in self.images.values():
            image.check()
        self.points.check()
        names = [image.name for image in self.images.values()]
        if len(set(names)) < len(names):
            raise ValueError("two images have one name")
        for image in self.images.values():
            if image.camera_id not in self.cameras:
                raise ValueError(f"camera {image.camera_id} of {image.name} is missing")


def find_model(folder: Path) -> str | None:
    """`bin` or `txt`, whichever model a folder holds; binary files win, as in COLMAP."""
    return next((kind for kind in ("bin", "txt") if (folder / f"images.{kind}").is_file()), None)


def read_model(folder: Path) -> ColmapModel:
    """Read a model; ValueError, OSError or InputError tells what is wrong with it."""
    if find_model(folder) == "bin":
        cameras = _read_cameras(_Bytes(folder / "cameras.bin"))
        images = _read_images(_Bytes(folder / "images.bin"))
        file = folder / "points3D.bin"
        points = _read_points(_Bytes(file)) if file.is_file() else _points([])
    else:
        cameras = _parse_cameras(folder / "cameras.txt")
        images = _parse_images(folder / "images.txt")
        file = folder / "points3D.txt"
        points = _parse_points(file) if file.is_file() else _points([])
    model = ColmapModel(cameras=_by_id(cameras, "cameras"), images=_by_id(images, "images"), points=points)
    model.check()
    return model


def read_cameras(path: Path) -> dict[int, ColmapCamera]:
    """The cameras of a cameras.txt or cameras.bin alone."""
    pairs = _read_cameras(_Bytes(path)) if path.suffix == ".bin" else _parse_cameras(path)
    cameras = _by_id(pairs, "cameras")
    for camera in cameras.values():
        camera.check()
    return cameras


def _by_id(pairs: list, what: str) -> dict:
    found = dict(sorted(pairs, key=lambda pair: pair[0]))
    if len(found) < len(pairs):
        raise ValueError(f"two {what} have one id")
    return found


# ---- binary


class _Bytes:
    """A binary file that is read from its beginning to its end, and never beyond."""

    def __init__(self, path: Path):
        self.name, self.data, self.place = path.name, path.read_bytes(), 0

    def _advance(self, size: int) -> int:
        begin, self.place = self.place, self.place + size
        if self.place > len(self.data):
            raise ValueError(f"{self.name} ends too early")
        return begin

    def unpack(self, form: struct.Struct) -> tuple:
        return form.unpack_from(self.data, self._advance(form.size))

    def count(self, smallest: int) -> int:
        """A count of things that take at least `smallest` bytes each."""
        (number,) = self.unpack(struct.Struct("<Q"))
        if number * smallest > len(self.data) - self.place:
            raise ValueError(f"{self.name} promises {number} entries, more than it has room for")
        return number

    def array(self, dtype: str | np.dtype, count: int) -> np.ndarray:
        kind = np.dtype(dtype)
        return np.frombuffer(self.data, kind, count, self._advance(count * kind.itemsize))

    def text(self) -> str:
        end = self.data.find(b"\0", self.place)
        if end < 0:
            raise ValueError(f"{self.name} ends too early")
        begin = self._advance(end + 1 - self.place)
        return self.data[begin:end].decode("utf-8")


def _read_cameras(file: _Bytes) -> list[tuple[int, ColmapCamera]]:
    cameras = []
    head = struct.Struct("<IiQQ")
    for _ in range(file.count(head.size)):
        key, kind, width, height = file.unpack(head)
        if kind not in MODELS:
            raise ValueError(f"camera {key} has the unknown model {kind}")
        params = file.array("<f8", MODELS[kind].n_params)
        cameras.append((key, ColmapCamera(MODELS[kind], width, height, params)))
    return cameras


def _read_images(file: _Bytes) -> list[tuple[int, ColmapImage]]:
    images = []
    for _ in range(file.count(IMAGE.size + 9)):
        key, *pose, camera = file.unpack(IMAGE)
        name = file.text()
        keypoints = file.array(KEYPOINT, file.count(KEYPOINT.itemsize))
        images.append((key, ColmapImage(camera, name, np.array(pose[:4]), np.array(pose[4:]), keypoints)))
    return images


def _read_points(file: _Bytes) -> ColmapPoints:
    rows = []
    for _ in range(file.count(POINT.size)):
        *row, track = file.unpack(POINT)
        file._advance(8 * track)
        rows.append(row)
    return _points(rows)


def _points(rows: list[list]) -> ColmapPoints:
    """From id, x, y, z, r, g, b, error of each."""
    rows.sort(key=lambda row: row[0])
    return ColmapPoints(
        ids=np.array([row[0] for row in rows], np.uint64),
        xyz=np.array([row[1:4] for row in rows], np.float64).reshape(-1, 3),
        rgb=np.array([row[4:7] for row in rows], np.uint8).reshape(-1, 3),
        error=np.array([row[7] for row in rows], np.float64),
    )


# ---- text


def _lines(path: Path) -> Iterator[str]:
    """Lines without those that are comments; empty ones count, since an image without keypoints has one."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        if not line.lstrip().startswith("#"):
            yield line.strip()


def _parse_cameras(path: Path) -> list[tuple[int, ColmapCamera]]:
    cameras = []
    for line in filter(None, _lines(path)):
        key, kind, width, height, *params = line.split()
        if kind not in MODEL_IDS:
            raise ValueError(f"camera {key} has the unknown model {kind}")
        model = MODELS[MODEL_IDS[kind]]
        cameras.append((int(key), ColmapCamera(model, int(width), int(height), np.array(params, np.float64))))
    return cameras


def _parse_images(path: Path) -> list[tuple[int, ColmapImage]]:
    """Some programs leave out the line of keypoints that should follow each image."""
    images = []
    lines = list(_lines(path))
    k = 0
    while k < len(lines):
        fields = lines[k].split(maxsplit=9)
        k += 1
        if not fields:
            continue
        if len(fields) < 10:
            raise ValueError(f"images.txt has the line {lines[k - 1][:80]!r}, which is no image")
        keypoints = _parse_keypoints(lines[k]) if k < len(lines) else None
        if keypoints is not None:
            k += 1
        pose = np.array(fields[1:8], np.float64)
        known = np.zeros(0, KEYPOINT) if keypoints is None else keypoints
        images.append((int(fields[0]), ColmapImage(int(fields[8]), fields[9], pose[:4], pose[4:], known)))
    return images


def _parse_keypoints(line: str) -> np.ndarray | None:  # [K]
    """The keypoints of a line x y id x y id ..., None if it is something else."""
    fields = line.split()
    if len(fields) % 3:
        return None
    try:
        ids = [int(field) % (1 << 64) for field in fields[2::3]]  # -1 stands for none
        xy = np.array([fields[0::3], fields[1::3]], np.float64).T
    except ValueError:
        return None
    keypoints = np.zeros(len(ids), KEYPOINT)
    keypoints["xy"], keypoints["point"] = xy, np.array(ids, np.uint64)
    return keypoints


def _parse_points(path: Path) -> ColmapPoints:
    rows = []
    for line in filter(None, _lines(path)):
        key, x, y, z, red, green, blue, error, *_ = line.split(maxsplit=8)
        colour = [int(value) for value in (red, green, blue)]
        if not all(0 <= value <= 255 for value in colour):
            raise ValueError(f"point {key} has the colour {colour}")
        rows.append([_point_id(key), float(x), float(y), float(z), *colour, float(error)])
    return _points(rows)


def _point_id(text: str) -> int:
    key = int(text)
    if not 0 <= key < NO_POINT:
        raise ValueError(f"a point has the id {key}")
    return key
