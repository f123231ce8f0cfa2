"""Ground truth of an image set: cameras, and geometry where there is any."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from proba.errors import InputError
from proba.geometry import camera as lens
from proba.io.atomic import atomic_write_text
from proba.io.colmap_model import ColmapCamera, read_model
from proba.io.names import check_name
from proba.io.ply import read_ply, write_ply
from proba.io.reading import MAX_COORDINATE, MAX_SIDE_PX, read_json, reading, whole_numbers

COLMAP_FILES = ("images.bin", "images.txt")
MIN_DETERMINANT = 1e-9
DEPTH_SUFFIXES = (".png", ".tif", ".tiff", ".pgm")
NO_DEPTH = 65535
"""Counts of a depth image that mean that nothing is known, as 0 does."""
ADVICE = (
    "Give a gt.json (cameras with image, width, height, fx, fy, cx, cy, R, t), a nerfstudio transforms.json, "
    "the folder of a COLMAP model, or of a scene in a layout that `proba bench datasets` lists."
)


@dataclass(kw_only=True)
class GroundTruth:
    """True cameras, OpenCV axes; intrinsics in original pixels, first pixel centre at (0.5, 0.5)."""

    names: list[str]
    cam_from_world: np.ndarray  # [N, 4, 4] float64
    intrinsics: np.ndarray  # [N, 4] float64: fx, fy, cx, cy
    width: np.ndarray  # [N] int
    height: np.ndarray  # [N] int
    metres_per_unit: float | None = None
    """Length of one world unit; None where the world has no known scale."""
    points: np.ndarray | None = None  # [P, 3] float64, world units
    distortion: np.ndarray | None = None  # [N, 5 to 8] float64, k1 k2 p1 p2 k3 k4 and k5 k6 or sx sy
    fisheye: np.ndarray | None = None  # [N] bool, whether the lens is one; None: none is
    depth_paths: list[Path | None] | None = None
    """One 16-bit depth image for each image, None where it has none."""
    depth_units_per_count: float = 1.0
    """World units of one count in the depth images."""
    depth_focal_px: float | None = None
    """Focal length of the depth images, in their own pixels, where they are from a camera of their own."""

    def __post_init__(self) -> None:
        n = len(self.names)
        assert self.cam_from_world.shape == (n, 4, 4), self.cam_from_world.shape
        assert self.intrinsics.shape == (n, 4), self.intrinsics.shape

    def rays(self, n: int, xy: np.ndarray) -> np.ndarray:
        """Rays [..., 3] of pixels [..., 2] of an image: homogeneous (x/z, y/z, 1), or unit directions of a fisheye."""
        columns, fisheye = self.lens(n)
        plane = (np.asarray(xy, np.float64) - columns[2:4]) / columns[:2]
        plane = lens.undistorted(plane, columns, fisheye)
        if fisheye:
            return lens.directions(plane, True)
        return np.concatenate([plane, np.ones_like(plane[..., :1])], axis=-1)

    def lens(self, n: int) -> tuple[np.ndarray, bool]:
        """Columns [12] of the lens of an image (`proba.geometry.camera`), and whether it is a fisheye."""
        columns = np.zeros(lens.WIDTH)
        columns[:4] = self.intrinsics[n]
        if self.distortion is not None:
            columns[4 : 4 + self.distortion.shape[1]] = self.distortion[n]
        return columns, self.fisheye is not None and bool(self.fisheye[n])

    @property
    def centres(self) -> np.ndarray:  # [N, 3]
        """Camera centres in the world."""
        rotation, translation = self.cam_from_world[:, :3, :3], self.cam_from_world[:, :3, 3]
        return -np.einsum("nji,nj->ni", rotation, translation)


def load_ground_truth(path: str | Path) -> GroundTruth:
    """Read a gt.json, a nerfstudio transforms.json, a COLMAP model, a folder that holds one of them, or a scene of a
    dataset in its original layout (`proba.io.datasets`)."""
    path = Path(path)
    if path.is_dir():
        return _load_folder(path)
    if not path.is_file():
        raise InputError(f"There is no ground truth at {path}. Check the path.")
    if path.suffix != ".json":
        if path.name in COLMAP_FILES:
            return read_colmap_truth(path.parent)
        raise InputError(f"{path} is no ground truth. {ADVICE}")
    with reading(path, "ground truth that can be read", ADVICE):
        content = read_json(path)
        if "cameras" in content:
            return checked(_from_gt_json(content, path.parent))
        if "frames" in content:
            return checked(_from_nerfstudio(content, path.parent))
        raise ValueError("it has neither `cameras` nor `frames`")


def save_ground_truth(truth: GroundTruth, path: str | Path) -> None:
    """Write a gt.json, and the cloud, if any, as a PLY beside it."""
    path = Path(path)
    cameras = []
    for n, name in enumerate(truth.names):
        fx, fy, cx, cy = truth.intrinsics[n].tolist()
        rotation, translation = truth.cam_from_world[n, :3, :3].tolist(), truth.cam_from_world[n, :3, 3].tolist()
        size = {"width": int(truth.width[n]), "height": int(truth.height[n])}
        entry = {"image": name, **size, "fx": fx, "fy": fy, "cx": cx, "cy": cy, "R": rotation, "t": translation}
        columns, fisheye = truth.lens(n)
        bent = {"dist": columns[4:].tolist()} if columns[4:].any() else {}
        cameras.append({**entry, **bent, **({"lens": "fisheye"} if fisheye else {})})
    content: dict = {
        "convention": "x_cam = R @ X_world + t; camera axes x right, y down, z forward",
        "pixel_convention": "corner0.5",
        "units": {None: "arbitrary", 1.0: "metres", 0.001: "mm"}.get(truth.metres_per_unit, "arbitrary"),
        "cameras": cameras,
    }
    if truth.points is not None:
        content["cloud"] = f"{path.stem}_cloud.ply"
        write_ply(path.parent / content["cloud"], truth.points)
    atomic_write_text(path, json.dumps(content, indent=1))


def true_points(truth: GroundTruth, max_points: int = 1_000_000) -> np.ndarray | None:  # [P, 3]
    """The true surface as a cloud in world units: as given, or lifted from the depth images; None without either."""
    if truth.points is not None:
        return truth.points
    if truth.depth_paths is None:
        return None
    n_maps = sum(path is not None for path in truth.depth_paths)
    clouds = [
        _lift_depth(truth, n, max_points // max(n_maps, 1))
        for n, path in enumerate(truth.depth_paths)
        if path is not None
    ]
    return np.concatenate(clouds) if clouds else None


def with_depth_folder(
    truth: GroundTruth, folder: str | Path, *, counts_per_unit: float = 1000.0, focal_px: float | None = None
) -> GroundTruth:
    """The same cameras with the depth images of a folder, 16 bit, named like the photos or with another suffix.

    Args:
        truth: True cameras.
        folder: Folder of the depth images; 0 and 65535 mean that nothing is known.
        counts_per_unit: Counts of one world unit: 1000 for millimetres in a world of metres.
        focal_px: Focal length of the depth images in their own pixels; None: that of the photos.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. Give the folder of the depth images.")
    if not counts_per_unit > 0 or (focal_px is not None and not focal_px > 0):
        raise InputError("The counts for a unit and the focal length of depth images must be positive.")
    by_stem = {path.stem: path for path in sorted(folder.iterdir()) if path.suffix.lower() in DEPTH_SUFFIXES}
    paths = [by_stem.get(PurePosixPath(name).name) or by_stem.get(PurePosixPath(name).stem) for name in truth.names]
    if not any(paths):
        raise InputError(f"{folder} holds no depth image (PNG, TIFF) named like a photo, e.g. {truth.names[0]}.")
    return replace(truth, depth_paths=paths, depth_units_per_count=1 / counts_per_unit, depth_focal_px=focal_px)


def true_depth(truth: GroundTruth, n: int) -> np.ndarray | None:  # [H, W] float64
    """The depth image of an image in world units, 0 where nothing is known; None if it has none."""
    from PIL import Image  # only depth images need it

    path = None if truth.depth_paths is None else truth.depth_paths[n]
    if path is None:
        return None
    with reading(path, "a depth image", "Restore it, or remove its entry."), Image.open(path) as image:
        counts = np.asarray(image)
        if counts.ndim != 2:
            raise ValueError("it has colours")
        return np.where(counts < NO_DEPTH, counts, 0).astype(np.float64) * truth.depth_units_per_count


def depth_lens(truth: GroundTruth, n: int, shape: tuple[int, ...]) -> np.ndarray:  # [4] fx, fy, cx, cy
    """Of a depth image of this shape [H, W]."""
    if truth.depth_focal_px is not None:
        return np.array([truth.depth_focal_px, truth.depth_focal_px, shape[1] / 2, shape[0] / 2])
    return truth.intrinsics[n] * np.tile([shape[1] / truth.width[n], shape[0] / truth.height[n]], 2)


def _lift_depth(truth: GroundTruth, n: int, max_points: int) -> np.ndarray:  # [P, 3]
    depth = true_depth(truth, n)
    assert depth is not None
    rows, columns = np.nonzero(depth > 0)
    step = max(1, -(-len(rows) // max(max_points, 1)))
    rows, columns = rows[::step], columns[::step]
    distorted = replace(truth, intrinsics=np.tile(depth_lens(truth, n, depth.shape), (len(truth.names), 1)))
    plain = distorted if truth.depth_focal_px is None else replace(distorted, distortion=None, fisheye=None)
    in_camera = plain.rays(n, np.stack([columns, rows], axis=1) + 0.5) * depth[rows, columns, None]  # [P, 3]
    pose = truth.cam_from_world[n]
    return (in_camera - pose[:3, 3]) @ pose[:3, :3]


def _load_folder(folder: Path) -> GroundTruth:
    for name in ("gt.json", "transforms.json"):
        if (folder / name).is_file():
            return load_ground_truth(folder / name)
    from proba.io.datasets import layouts_of  # they build on this module

    for layout in layouts_of(folder):
        return layout.load(folder)
    for model in (folder, folder / "sparse" / "0", folder / "sparse"):
        if any((model / name).is_file() for name in COLMAP_FILES):
            return read_colmap_truth(model)
    raise InputError(f"The folder {folder} holds no ground truth. {ADVICE}")


def _from_gt_json(content: dict, folder: Path) -> GroundTruth:
    cameras = content["cameras"]
    if not cameras:
        raise ValueError("`cameras` is empty")
    shifts = {"center0": 0.5, "corner0.5": 0.0}
    convention = content.get("pixel_convention", "corner0.5")
    if convention not in shifts:
        raise ValueError(f"pixel_convention is {convention!r}, not center0 or corner0.5")
    intrinsics = np.array([[c["fx"], c["fy"], c["cx"], c["cy"]] for c in cameras], np.float64)  # [N, 4]
    intrinsics[:, 2:] += shifts[convention]
    units = str(content.get("units", ""))
    depth_scale = re.search(r"depth[^;]*/\s*([\d.]+)", units)  # "metres; depth png uint16 /5000"
    distortion = np.array([(list(c.get("dist") or []) + [0.0] * 8)[:8] for c in cameras], np.float64)  # [N, 8]
    fisheye = np.array([c.get("lens") == "fisheye" for c in cameras])
    depth = [folder / check_name(c["depth"]) if c.get("depth") else None for c in cameras]
    return GroundTruth(
        names=[c["image"] for c in cameras],
        cam_from_world=rigid(np.array([c["R"] for c in cameras], np.float64), np.array([c["t"] for c in cameras])),
        intrinsics=intrinsics,
        width=np.array([c["width"] for c in cameras]),
        height=np.array([c["height"] for c in cameras]),
        metres_per_unit=_metres_per_unit(units),
        points=read_ply(folder / check_name(content["cloud"]))["xyz"] if content.get("cloud") else None,
        distortion=distortion if distortion.any() else None,
        fisheye=fisheye if fisheye.any() else None,
        depth_paths=depth if any(depth) else None,
        depth_units_per_count=1 / float(depth_scale.group(1)) if depth_scale else 1.0,
    )


def _from_nerfstudio(content: dict, folder: Path) -> GroundTruth:
    """Poses there are world_from_cam with OpenGL axes (y up, z backward); pixels are as in COLMAP."""
    frames = content["frames"]
    if not frames:
        raise ValueError("`frames` is empty")
    world_from_cam = np.array([frame["transform_matrix"] for frame in frames], np.float64)  # [N, 3 or 4, 4]
    rotation = world_from_cam[:, :3, :3] * [1, -1, -1]  # columns are the camera's axes in the world
    translation = -np.einsum("nji,nj->ni", rotation, world_from_cam[:, :3, 3])
    lenses, sizes = zip(*(_nerfstudio_lens({**content, **frame}, folder) for frame in frames), strict=True)
    width, height = np.array(sizes).T
    columns = np.array([columns for columns, _ in lenses])  # [N, 12]
    fisheye = np.array([fisheye for _, fisheye in lenses])
    return GroundTruth(
        names=[_frame_name(frame) for frame in frames],
        cam_from_world=rigid(rotation.transpose(0, 2, 1), translation),
        intrinsics=columns[:, :4],
        width=width,
        height=height,
        distortion=columns[:, 4:] if columns[:, 4:].any() else None,
        fisheye=fisheye if fisheye.any() else None,
    )


def _frame_name(frame: dict) -> str:
    """The image's name; a path may lead up from the file and down into the folder of the photos, of which only the
    way down counts."""
    parts = PurePosixPath(str(frame.get("image_name", frame["file_path"])).replace("\\", "/")).parts
    return "/".join(part for part in parts if part not in ("..", "/"))


def _nerfstudio_lens(entry: dict, folder: Path) -> tuple[tuple[np.ndarray, bool], tuple[int, int]]:
    """Columns [12] and whether it is a fisheye; width and height."""
    if "w" in entry and "h" in entry:
        width, height = int(entry["w"]), int(entry["h"])
    else:
        width, height = image_size(folder / entry["file_path"])
    angle = entry.get("camera_angle_x")  # Blender's files give the field of view instead
    fx = float(entry["fl_x"]) if "fl_x" in entry or angle is None else width / 2 / np.tan(float(angle) / 2)
    pinhole = [fx, float(entry.get("fl_y", fx)), entry.get("cx", width / 2), entry.get("cy", height / 2)]
    return nerfstudio_columns(entry, pinhole), (width, height)


def nerfstudio_columns(entry: dict, pinhole: list[float]) -> tuple[np.ndarray, bool]:
    """Columns [12] of `proba.geometry.camera`, and whether it is a fisheye, of an entry of nerfstudio's."""
    model = str(entry.get("camera_model", "OPENCV"))
    fisheye = model in ("OPENCV_FISHEYE", "THIN_PRISM_FISHEYE", "FISHEYE", "SIMPLE_FISHEYE")
    names = ("k1", "k2", "p1", "p2", "k3", "k4", *(("sx1", "sy1") if fisheye else ("k5", "k6")))
    bent = [float(entry.get(name, 0.0)) for name in names]
    return np.array([*pinhole, *bent], np.float64), fisheye


def image_size(path: Path) -> tuple[int, int]:
    from PIL import Image  # only files without sizes need it

    for candidate in (path, path.with_name(path.name + ".png"), path.with_name(path.name + ".jpg")):
        if candidate.is_file():
            with Image.open(candidate) as image:
                return image.size
    raise ValueError(f"`w` and `h` are missing, and the image {path} is too")


def read_colmap_truth(folder: Path) -> GroundTruth:
    """Only poses, cameras and points are used: tracks may name images that were removed."""
    with reading(folder, "a COLMAP model that can be read", ADVICE):
        model = read_model(folder)
        images = sorted(model.images.values(), key=lambda image: image.name)
        if not images:
            raise ValueError("it has no image with a pose")
        cameras = [model.cameras[image.camera_id] for image in images]
        columns = np.array([_colmap_columns(camera) for camera in cameras])  # [N, 12]
        fisheye = np.array([lens.is_fisheye(camera.model.name) for camera in cameras])
        return GroundTruth(
            names=[image.name for image in images],
            cam_from_world=np.array([image.cam_from_world for image in images]),
            intrinsics=columns[:, :4],
            width=np.array([camera.width for camera in cameras]),
            height=np.array([camera.height for camera in cameras]),
            points=model.points.xyz if len(model.points.xyz) else None,
            distortion=columns[:, 4:] if columns[:, 4:].any() else None,
            fisheye=fisheye if fisheye.any() else None,
        )


def _colmap_columns(camera: ColmapCamera) -> np.ndarray:  # [12]
    """Of a model that is not supported, focal lengths and principal point alone."""
    if camera.model.name in lens.MODELS:
        return lens.widened(camera.model.name, camera.params)
    return np.concatenate([camera.pinhole, np.zeros(lens.WIDTH - 4)])


def checked(truth: GroundTruth) -> GroundTruth:
    """The same, after a look at every number; ValueError says which is wrong."""
    for name in truth.names:
        check_name(name)
    if len(set(truth.names)) < len(truth.names):
        raise ValueError("two images have one name")
    if not (np.abs(truth.cam_from_world) < MAX_COORDINATE).all():
        raise ValueError("a pose is not finite")
    if not (np.abs(np.linalg.det(truth.cam_from_world[:, :3, :3])) > MIN_DETERMINANT).all():
        raise ValueError("a rotation is none")
    if not (np.isfinite(truth.intrinsics).all() and (truth.intrinsics[:, :2] > 0).all()):
        raise ValueError("a focal length is not positive or not finite")
    truth.width = whole_numbers(truth.width, "the widths", 1, MAX_SIDE_PX)
    truth.height = whole_numbers(truth.height, "the heights", 1, MAX_SIDE_PX)
    if truth.distortion is not None and not np.isfinite(truth.distortion).all():
        raise ValueError("a distortion is not finite")
    if not (np.isfinite(truth.depth_units_per_count) and truth.depth_units_per_count > 0):
        raise ValueError("the unit of the depth images is not positive")
    if truth.points is not None:
        truth.points = truth.points[(np.abs(truth.points) < MAX_COORDINATE).all(axis=1)]
    return truth


def rigid(rotation: np.ndarray, translation: np.ndarray) -> np.ndarray:  # [N, 4, 4]
    transform = np.tile(np.eye(4), (len(rotation), 1, 1))
    transform[:, :3, :3], transform[:, :3, 3] = rotation, translation
    return transform


def _metres_per_unit(units: str) -> float | None:
    for prefix, metres in (("metre", 1.0), ("meter", 1.0), ("mm", 0.001), ("cm", 0.01)):
        if units.lower().startswith(prefix):
            return metres
    return None
