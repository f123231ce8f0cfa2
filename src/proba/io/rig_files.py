"""Rigs: from folders, or from files in the form of COLMAP's rig_config.json; and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from proba.errors import InputError
from proba.geometry.camera import MODELS
from proba.io.atomic import atomic_write_text
from proba.io.ground_truth import rigid
from proba.io.reading import MAX_COORDINATE, read_json, reading
from proba.matches import ImageInfo, KnownLens
from proba.reconstruction import CameraRig
from proba.rigs import FOLDERS, RigOptions, Rigs, Sensor, check_rigs

ADVICE = "It is a list of rigs, each with `cameras` that have an `image_prefix`, as COLMAP's rig_config.json."
RIGS_FILE = "rigs.json"


def load_rigs(options: RigOptions, images: Sequence[ImageInfo]) -> Rigs | None:
    """The rigs that took these images, in their order; None where the options name none."""
    if options.cameras is None:
        return None
    names = [image.name for image in images]
    if options.cameras == FOLDERS:
        sensors, source = _of_folders(names), "the names of folders and files"
    else:
        sensors, source = read_rigs(Path(options.cameras)), options.cameras
    rigs = _assigned(sensors, names, options)
    check_rigs(rigs, source, names)
    if options.cameras != FOLDERS:
        idle = sorted(
            {sensor.name for sensor in sensors} - {sensors[s].name for s in set(rigs.sensor_of_image) if s >= 0}
        )
        if idle:
            raise InputError(
                f"{source} has a camera {idle[0]} of which there is no photo; a photo is {names[0]}. "
                "Names of photos must begin with the prefix of their camera."
            )
    return rigs


def _of_folders(names: Sequence[str]) -> list[Sensor]:
    """A sensor for each folder that has photos."""
    folders = sorted({str(PurePosixPath(name).parent) for name in names})
    if len(folders) < 2:
        raise InputError("--rig folders needs a folder for each camera; all photos are in one.")
    return [Sensor(name="" if folder == "." else f"{folder}/", rig=0) for folder in folders]


def _assigned(sensors: Sequence[Sensor], names: Sequence[str], options: RigOptions) -> Rigs:
    """The sensor whose prefix fits a name best, and what is left of the name as its moment."""
    longest = sorted(range(len(sensors)), key=lambda s: -len(sensors[s].name))
    sensor_of, frame_of, frames = [], [], dict[tuple[int, str], int]()
    for name in names:
        fits = (s for s in longest if name.startswith(sensors[s].name) and _direct(name, sensors[s], options))
        s = next(fits, -1)
        sensor_of.append(s)
        if s < 0:
            frame_of.append(-1)
            continue
        moment = str(PurePosixPath(name[len(sensors[s].name) :]).with_suffix(""))
        frame_of.append(frames.setdefault((sensors[s].rig, moment), len(frames)))
    return Rigs(
        sensors=tuple(sensors),
        frames=tuple(moment for _, moment in frames),
        sensor_of_image=np.array(sensor_of, np.int64),
        frame_of_image=np.array(frame_of, np.int64),
        options=options,
    )


def _direct(name: str, sensor: Sensor, options: RigOptions) -> bool:
    """Whether a photo lies in the folder itself; prefixes of a file may have folders below."""
    return options.cameras != FOLDERS or "/" not in name[len(sensor.name) :]


def read_rigs(path: Path) -> list[Sensor]:
    """The cameras of all rigs of a file."""
    if not path.is_file():
        raise InputError(f"There is no rig file {path}. Check the path, or say --rig folders.")
    with reading(path, "a rig file", ADVICE):
        content = read_json(path)
        content = [content] if isinstance(content, dict) else content
        sensors = [_sensor(entry, k) for k, rig in enumerate(content) for entry in rig["cameras"]]
        _check(sensors)
        return sensors


def _sensor(entry: dict[str, Any], rig: int) -> Sensor:
    prefix = entry["image_prefix"]
    if not isinstance(prefix, str):
        raise ValueError("an image_prefix is no text")
    pose = None
    if "cam_from_rig_rotation" in entry or "cam_from_rig_translation" in entry:
        w, x, y, z = (float(value) for value in entry.get("cam_from_rig_rotation", (1, 0, 0, 0)))
        shift = np.array([float(value) for value in entry.get("cam_from_rig_translation", (0, 0, 0))])
        if not 0.5 < np.linalg.norm([w, x, y, z]) < 2 or shift.shape != (3,) or not (abs(shift) < MAX_COORDINATE).all():
            raise ValueError(f"the pose of {prefix} is none")
        pose = rigid(Rotation.from_quat([x, y, z, w]).as_matrix()[None], shift[None])[0]
    reference = bool(entry.get("ref_sensor", False))
    if reference:
        if pose is not None and not np.allclose(pose, np.eye(4)):
            raise ValueError(f"{prefix} is the reference and has a pose on the rig")
        pose = np.eye(4)
    return Sensor(name=prefix, rig=rig, reference=reference, cam_from_rig=pose, lens=_lens(entry))


def _lens(entry: dict[str, Any]) -> KnownLens | None:
    """The lens that a camera of the file has, held."""
    if "camera_model_name" not in entry or "camera_params" not in entry:
        return None
    model, params = str(entry["camera_model_name"]), entry["camera_params"]
    if isinstance(params, str):
        params = params.split(",")
    values = tuple(float(value) for value in params)
    if model not in MODELS or len(values) != len(MODELS[model]):
        raise ValueError(f"{model} with {len(values)} parameters is no camera model; {', '.join(MODELS)} are")
    if not np.isfinite(values).all() or not values[0] > 0:
        raise ValueError("a camera parameter is not finite, or a focal length not positive")
    return KnownLens(model=model, params=values, sigma=(0.0,) * len(values))


def _check(sensors: Sequence[Sensor]) -> None:
    for rig in {sensor.rig for sensor in sensors}:
        mine = [sensor for sensor in sensors if sensor.rig == rig]
        if sum(sensor.reference for sensor in mine) != 1:
            raise ValueError("each rig needs one camera with `ref_sensor`: true")
    prefixes = [sensor.name for sensor in sensors]
    if len(set(prefixes)) < len(prefixes):
        raise ValueError("two cameras have one image_prefix")
    if len(sensors) < 2:
        raise ValueError("it has fewer than two cameras")


def write_rigs(path: Path, rigs: Sequence[tuple[int, CameraRig]]) -> None:
    """Rigs with the number of the model that each is of. `--rig` and COLMAP read the file again."""
    content = [
        {
            "model": f"sparse/{model}",
            "metric": rig.metric,
            "cameras": [
                {
                    "image_prefix": camera.name,
                    **({"ref_sensor": True} if camera.reference else pose_entry(camera.cam_from_rig)),
                    "known": camera.known,
                    "rotation_std_deg": np.degrees(camera.std[:3]).tolist(),
                    "centre_std": camera.std[3:].tolist(),
                }
                for camera in rig.cameras
            ],
            "frames": [{"name": name, "rig_from_world": pose.tolist()} for name, pose in rig.frames.items()],
        }
        for model, rig in rigs
    ]
    atomic_write_text(path, json.dumps(content, indent=1, allow_nan=False))


def pose_entry(cam_from_rig: np.ndarray) -> dict[str, list[float]]:
    """A pose [4, 4] as COLMAP's file has it."""
    x, y, z, w = Rotation.from_matrix(cam_from_rig[:3, :3]).as_quat().tolist()
    return {"cam_from_rig_rotation": [w, x, y, z], "cam_from_rig_translation": cam_from_rig[:3, 3].tolist()}
