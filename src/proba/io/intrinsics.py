"""Known intrinsics from files: COLMAP cameras, nerfstudio's transforms.json, calibrations as YAML (OpenCV, ROS, Kalibr)
and our own JSON, which may name photos and say of each parameter how certain it is:

    {"cameras": [{"model": "OPENCV", "width": 4000, "height": 3000, "params": [3000, 3000, 2000, 1500, -0.1, 0, 0, 0],
                  "sigma": {"fx": 5, "k1": 0.01, "cx": 0, "k2": null}, "images": ["left/*"]}]}

`sigma` 0 holds a parameter, null leaves it free, and what is not named follows the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from proba.cameras import CameraOptions
from proba.errors import InputError
from proba.geometry import camera as lens
from proba.io.colmap_model import ColmapCamera, find_model, read_cameras, read_model
from proba.io.ground_truth import nerfstudio_columns
from proba.io.reading import read_json, reading
from proba.matches import ImageInfo, KnownLens, Matches

ADVICE = (
    "Give a COLMAP cameras.txt, a folder with a COLMAP model, a nerfstudio transforms.json, a YAML calibration of "
    "OpenCV, ROS or Kalibr, or JSON as in docs/guides/calibration.md."
)
NAMES = ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3", "k4", "k5", "k6")
ASPECT_TOLERANCE = 0.01
CENTER0 = 0.5
"""OpenCV, ROS and Kalibr put the centre of the first pixel at (0, 0)."""


@dataclass(frozen=True, kw_only=True)
class KnownCamera:
    """One camera of a file."""

    model: str
    columns: np.ndarray  # [12] float64, see `proba.geometry.camera`, in pixels of an image of this size
    width: int | None
    height: int | None
    patterns: tuple[str, ...] = ()
    """Names of its photos, also with * and ?, or their folders; empty: all of its size."""
    sigma: dict[str, float | None] | None = None
    """By name of the parameter; 0: held, None: free."""


def with_known_intrinsics(matches: Matches, options: CameraOptions) -> Matches:
    """The matches with what `--focal-px` and `--intrinsics` say of their images."""
    if options.focal_px is not None:
        return replace(matches, images=[replace(image, focal_px=options.focal_px) for image in matches.images])
    if options.intrinsics is None:
        return matches
    cameras = read_intrinsics(options.intrinsics)
    images = [replace(image, lens=_lens_of(image, cameras, options)) for image in matches.images]
    if not any(image.lens for image in images):
        example = matches.images[0]
        raise InputError(
            f"{options.intrinsics} has no camera for any photo, e.g. {example.name} ({example.width} x "
            f"{example.height}). Check its names and sizes."
        )
    return replace(matches, images=images)


def read_intrinsics(path: Path) -> list[KnownCamera]:
    """All cameras of a file or of a folder with a COLMAP model."""
    if not path.exists():
        raise InputError(f"There are no intrinsics at {path}. Check the path.")
    with reading(path, "intrinsics that can be read", ADVICE):
        cameras = _read(path)
        if not cameras:
            raise ValueError("it has no camera")
        for camera in cameras:
            if not np.isfinite(camera.columns).all() or not (camera.columns[:2] > 0).all():
                raise ValueError("a parameter is not finite, or a focal length is not positive")
        return cameras


def _read(path: Path) -> list[KnownCamera]:
    if path.is_dir():
        if find_model(path) is None:
            raise ValueError("the folder holds no COLMAP model")
        return _with_names(path)
    if path.name in ("cameras.txt", "cameras.bin"):
        if find_model(path.parent) == path.suffix[1:]:
            return _with_names(path.parent)
        return [_of_colmap(camera) for camera in read_cameras(path).values()]
    if path.suffix.lower() in (".yaml", ".yml"):
        return _of_yaml(path.read_text("utf-8"))
    content = read_json(path)
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    if "frames" in content or "fl_x" in content:
        return _of_nerfstudio(content)
    entries = content.get("cameras", [content])
    return [_of_entry(entry) for entry in entries]


def _with_names(folder: Path) -> list[KnownCamera]:
    model = read_model(folder)
    names: dict[int, list[str]] = {key: [] for key in model.cameras}
    for image in model.images.values():
        names[image.camera_id].append(image.name)
    return [_of_colmap(camera, tuple(names[key])) for key, camera in model.cameras.items()]


def _of_colmap(camera: ColmapCamera, patterns: tuple[str, ...] = ()) -> KnownCamera:
    return KnownCamera(
        model=camera.model.name,
        columns=_widened(camera.model.name, camera.params),
        width=camera.width,
        height=camera.height,
        patterns=patterns,
    )


def _widened(model: str, params: Any) -> np.ndarray:  # [12]
    if model not in lens.MODELS:
        raise ValueError(f"the camera model {model} is not supported; {', '.join(lens.MODELS)} are")
    return lens.widened(model, np.array(params, np.float64))


def _of_nerfstudio(content: dict) -> list[KnownCamera]:
    """One camera for each frame that has its own intrinsics, else one for all."""
    frames = [frame for frame in content.get("frames", []) if "fl_x" in frame]
    cameras = []
    for entry in [{**content, **frame} for frame in frames] or [content]:
        width, height = int(entry["w"]), int(entry["h"])
        fx = float(entry["fl_x"])
        pinhole = [fx, float(entry.get("fl_y", fx)), entry.get("cx", width / 2), entry.get("cy", height / 2)]
        columns, fisheye = nerfstudio_columns(entry, pinhole)
        patterns = tuple([PurePosixPath(str(entry["file_path"])).name] if frames else [])
        cameras.append(
            KnownCamera(
                model=_richest(columns, fisheye), columns=columns, width=width, height=height, patterns=patterns
            )
        )
    return cameras


def _richest(columns: np.ndarray, fisheye: bool) -> str:
    """The model with the fewest parameters that has all that are not zero."""
    for model, names in (lens.FISHEYE if fisheye else lens.PERSPECTIVE).items():
        alike = columns[lens.FX] == columns[lens.FY] or not lens.has_one_focal(model)
        if alike and not np.delete(columns, [lens.FX, lens.FY, *names]).any():
            return model
    return "THIN_PRISM_FISHEYE" if fisheye else "FULL_OPENCV"


def _of_entry(entry: dict) -> KnownCamera:
    """An entry of our JSON, by `params` or by names."""
    if "camera_matrix" in entry or "K" in entry or "intrinsics" in entry:
        return _of_matrix(entry)
    shift = CENTER0 if entry.get("pixel_convention") == "center0" else 0.0
    if "params" in entry:
        model, columns = str(entry["model"]), _widened(str(entry["model"]), entry["params"])
    else:
        fx = float(entry["fx"] if "fx" in entry else entry["f"])
        columns = np.zeros(lens.WIDTH)
        columns[:4] = fx, float(entry.get("fy", fx)), float(entry["cx"]), float(entry["cy"])
        fisheye = "FISHEYE" in str(entry.get("model", ""))
        names = (*NAMES[4:10], "sx1", "sy1") if fisheye else NAMES[4:]
        columns[4:] = [float(entry.get(name, 0.0)) for name in names]
        model = str(entry.get("model") or _richest(columns, fisheye))
        _widened(model, columns[list(lens.MODELS.get(model, ()))])
    columns = columns + np.where(np.isin(np.arange(lens.WIDTH), (lens.CX, lens.CY)), shift, 0.0)
    sigma = entry.get("sigma")
    known = {*NAMES, "f", "k", "sx1", "sy1"}
    if sigma is not None and not (isinstance(sigma, dict) and set(sigma) <= known):
        raise ValueError(f"`sigma` must name parameters ({', '.join(NAMES)})")
    images = entry.get("images", [])
    return KnownCamera(
        model=model,
        columns=columns,
        width=int(entry["width"]) if "width" in entry else None,
        height=int(entry["height"]) if "height" in entry else None,
        patterns=tuple([images] if isinstance(images, str) else map(str, images)),
        sigma=sigma,
    )


def _of_yaml(text: str) -> list[KnownCamera]:
    import yaml  # type: ignore[import-untyped]  # only calibrations in YAML need it

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_constructor("tag:yaml.org,2002:opencv-matrix", lambda loader, node: loader.construct_mapping(node, True))
    lines = [line for line in text.splitlines() if not line.startswith("%YAML")]
    try:
        content = yaml.load("\n".join(lines), Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(content, dict):
        raise ValueError("it is no YAML mapping")
    several = [entry for key, entry in sorted(content.items()) if str(key).startswith("cam")]
    matrices = [entry for entry in several if isinstance(entry, dict) and "intrinsics" in entry]
    if matrices:
        return [_of_matrix(entry) for entry in matrices]
    if "cameras" in content:
        return [_of_entry(entry) for entry in content["cameras"]]
    return [_of_entry(content)]


def _of_matrix(entry: dict) -> KnownCamera:
    """OpenCV's and ROS's camera_matrix and distortion_coefficients, and Kalibr's intrinsics."""
    if "intrinsics" in entry:
        fx, fy, cx, cy = (float(value) for value in np.ravel(entry["intrinsics"]))
        if entry.get("camera_model", "pinhole") != "pinhole":
            raise ValueError(f"the camera model {entry['camera_model']} of Kalibr is not supported; pinhole is")
    else:
        matrix = np.array(_data(entry.get("camera_matrix", entry.get("K"))), np.float64).reshape(3, 3)
        fx, fy, cx, cy = matrix[[0, 1, 0, 1], [0, 1, 2, 2]].tolist()
    name = next(
        (key for key in ("distortion_coefficients", "distortion_coeffs", "dist_coeffs", "D") if key in entry), ""
    )
    bent = np.ravel(np.array(_data(entry.get(name, [])), np.float64))
    kind = str(entry.get("distortion_model", "plumb_bob"))
    fisheye = kind in ("equidistant", "fisheye")
    if kind not in ("equidistant", "fisheye", "plumb_bob", "radtan", "rational_polynomial", "none", ""):
        raise ValueError(
            f"the distortion model {kind} is not supported; plumb_bob, rational_polynomial and equidistant are"
        )
    if len(bent) > 8 and bent[8:].any():
        raise ValueError("more than eight distortion coefficients are not supported")
    columns = np.zeros(lens.WIDTH)
    columns[:4] = fx, fy, cx + CENTER0, cy + CENTER0
    places = [lens.K1, lens.K2, lens.K3, lens.K4] if fisheye else list(range(lens.K1, lens.WIDTH))
    columns[places[: len(bent[:8])]] = bent[: len(places)]
    size = entry.get("resolution", [entry.get("image_width"), entry.get("image_height")])
    return KnownCamera(
        model=_richest(columns, fisheye),
        columns=columns,
        width=None if size[0] is None else int(size[0]),
        height=None if size[1] is None else int(size[1]),
    )


def _data(value: Any) -> Any:
    return value["data"] if isinstance(value, dict) else value


def _lens_of(image: ImageInfo, cameras: Sequence[KnownCamera], options: CameraOptions) -> KnownLens | None:
    """The lens of an image in its own pixels; None where no camera is for it."""
    named = [camera for camera in cameras if any(_fits(image.name, pattern) for pattern in camera.patterns)]
    found = named or [camera for camera in cameras if not camera.patterns and _scale(image, camera) is not None]
    if len(found) > 1:
        alike = [camera for camera in found if (camera.width, camera.height) == (image.width, image.height)]
        found = alike or found
    if len(found) > 1:
        raise InputError(f"{options.intrinsics} has {len(found)} cameras for {image.name}. Name the photos of each.")
    if not found:
        sizes = {(camera.width, camera.height) for camera in cameras if not camera.patterns}
        if len(cameras) == 1 and sizes:
            width, height = sizes.pop()
            raise InputError(
                f"{image.name} has {image.width} x {image.height} pixels, the camera of {options.intrinsics} "
                f"{width} x {height}. Give the intrinsics of these photos."
            )
        return None
    scale = _scale(image, found[0])
    if scale is None:
        raise InputError(
            f"{image.name} has {image.width} x {image.height} pixels, its camera in {options.intrinsics} "
            f"{found[0].width} x {found[0].height}. Give the intrinsics of this photo."
        )
    return _known_lens(found[0], scale, image, options)


def _fits(name: str, pattern: str) -> bool:
    clean = pattern.strip("/")
    return fnmatchcase(name, clean) or name.startswith(f"{clean}/") or PurePosixPath(name).name == clean


def _scale(image: ImageInfo, camera: KnownCamera) -> float | None:
    """How much larger the image is than the one the camera was measured with; None where their shapes differ."""
    if camera.width is None or camera.height is None:
        return 1.0
    across, down = image.width / camera.width, image.height / camera.height
    return across if abs(across / down - 1) < ASPECT_TOLERANCE else None


def _known_lens(camera: KnownCamera, scale: float, image: ImageInfo, options: CameraOptions) -> KnownLens:
    pixels = np.where(np.arange(lens.WIDTH) <= lens.CY, scale, 1.0)
    columns = camera.columns * pixels
    sigma = _usual_sigma(columns, image, options)  # [12]
    names = {**{name: k for k, name in enumerate(NAMES)}, "f": 0, "k": lens.K1, "sx1": lens.SX, "sy1": lens.SY}
    for name, value in (camera.sigma or {}).items():
        k = names[name]
        sigma[k] = np.inf if value is None else float(value) * pixels[k]
    if not (sigma >= 0).all():
        raise InputError(f"a sigma in {options.intrinsics} is negative. 0 holds a parameter, null leaves it free.")
    return KnownLens(
        model=camera.model,
        params=tuple(lens.narrowed(camera.model, columns).tolist()),
        sigma=tuple(lens.narrowed(camera.model, sigma).tolist()),
    )


def _usual_sigma(columns: np.ndarray, image: ImageInfo, options: CameraOptions) -> np.ndarray:  # [12]
    if options.calibration != "init":
        return np.full(lens.WIDTH, 0.0 if options.calibration == "fixed" else np.inf)
    corner = float(np.linalg.norm(np.array([image.width, image.height]) / 2 / columns[:2]))
    power = np.array([0, 0, 0, 0, 2, 4, 1, 1, 6, 8, 10, 12])
    unit = 1 / corner**power
    unit[:2], unit[2:4] = columns[:2], max(image.width, image.height)
    return options.calibration_sigma * unit
