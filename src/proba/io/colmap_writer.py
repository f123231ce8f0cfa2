"""Writes COLMAP's model files, binary and text: pycolmap overlooks failed writes.

Rigs and frames (COLMAP 3.12 and later) are written too, one of each for a camera and an image.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from proba.io.atomic import all_or_nothing, atomic_file
from proba.io.colmap_model import IMAGE, MODEL_IDS, NO_POINT, POINT, ColmapModel


def write_model(model: ColmapModel, folder: Path, *, text: bool = False) -> None:
    """Write cameras, images, points3D, rigs and frames, as .bin or .txt files, all of them or none."""
    tracks = _tracks(model)
    kind = "txt" if text else "bin"
    cameras, images, points = (_text_cameras, _text_images, _text_points) if text else (_cameras, _images, _points3D)
    with all_or_nothing():
        for name, content in (
            ("cameras", cameras(model)),
            ("images", images(model)),
            ("points3D", points(model, tracks)),
            ("rigs", _text_rigs(model) if text else _rigs(model)),
            ("frames", _text_frames(model) if text else _frames(model)),
        ):
            with atomic_file(folder / f"{name}.{kind}") as file:
                for part in content:
                    file.write(part)


def _tracks(model: ColmapModel) -> list[np.ndarray]:
    """For each point the images and keypoints that see it, [T, 2] uint32."""
    point = np.concatenate([image.keypoints["point"] for image in model.images.values()] or [np.zeros(0, np.uint64)])
    counts = [len(image.keypoints) for image in model.images.values()]
    places = np.stack(
        [
            np.repeat(np.fromiter(model.images, np.uint32, len(counts)), counts),
            np.concatenate([np.arange(count) for count in counts] or [np.zeros(0, int)]),
        ],
        axis=1,
    ).astype("<u4")  # [K, 2]
    order = np.argsort(point, kind="stable")
    begin = np.searchsorted(point[order], model.points.ids, side="left")
    end = np.searchsorted(point[order], model.points.ids, side="right")
    return [places[order[one:other]] for one, other in zip(begin.tolist(), end.tolist(), strict=True)]


def _cameras(model: ColmapModel) -> Iterator[bytes]:
    yield struct.pack("<Q", len(model.cameras))
    for key, camera in model.cameras.items():
        yield struct.pack("<IiQQ", key, MODEL_IDS[camera.model.name], camera.width, camera.height)
        yield camera.params.astype("<f8").tobytes()


def _images(model: ColmapModel) -> Iterator[bytes]:
    yield struct.pack("<Q", len(model.images))
    for key, image in model.images.items():
        yield IMAGE.pack(key, *image.quaternion, *image.translation, image.camera_id)
        yield image.name.encode("utf-8") + b"\0"
        yield struct.pack("<Q", len(image.keypoints)) + image.keypoints.tobytes()


def _points3D(model: ColmapModel, tracks: list[np.ndarray]) -> Iterator[bytes]:
    points = model.points
    yield struct.pack("<Q", len(points.ids))
    columns = (points.ids.tolist(), points.xyz.tolist(), points.rgb.tolist(), points.error.tolist(), tracks)
    for key, xyz, rgb, error, track in zip(*columns, strict=True):
        yield POINT.pack(key, *xyz, *rgb, error, len(track)) + track.tobytes()


def _rigs(model: ColmapModel) -> Iterator[bytes]:
    yield struct.pack("<Q", len(model.cameras))
    for key in model.cameras:
        yield struct.pack("<IIiI", key, 1, 0, key)  # one sensor: the camera (kind 0) itself


def _frames(model: ColmapModel) -> Iterator[bytes]:
    yield struct.pack("<Q", len(model.images))
    for key, image in model.images.items():
        yield struct.pack("<II7d", key, image.camera_id, *image.quaternion, *image.translation)
        yield struct.pack("<IiIQ", 1, 0, image.camera_id, key)


def _line(*parts: object) -> bytes:
    return (" ".join(repr(part) if isinstance(part, float) else str(part) for part in parts) + "\n").encode("utf-8")


def _text_cameras(model: ColmapModel) -> Iterator[bytes]:
    yield b"# Camera list with one line of data per camera:\n#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]\n"
    for key, camera in model.cameras.items():
        yield _line(key, camera.model.name, camera.width, camera.height, *camera.params.tolist())


def _text_images(model: ColmapModel) -> Iterator[bytes]:
    yield b"# Image list with two lines of data per image:\n"
    yield b"#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME\n#   POINTS2D[] as (X, Y, POINT3D_ID)\n"
    for key, image in model.images.items():
        yield _line(key, *image.quaternion.tolist(), *image.translation.tolist(), image.camera_id, image.name)
        points = [-1 if point == NO_POINT else point for point in image.keypoints["point"].tolist()]
        xy = image.keypoints["xy"].tolist()
        yield _line(*(value for (x, y), point in zip(xy, points, strict=True) for value in (x, y, point)))


def _text_points(model: ColmapModel, tracks: list[np.ndarray]) -> Iterator[bytes]:
    yield b"# 3D point list with one line of data per point:\n"
    yield b"#   POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, POINT2D_IDX)\n"
    points = model.points
    columns = (points.ids.tolist(), points.xyz.tolist(), points.rgb.tolist(), points.error.tolist(), tracks)
    for key, xyz, rgb, error, track in zip(*columns, strict=True):
        yield _line(key, *xyz, *rgb, error, *track.ravel().tolist())


def _text_rigs(model: ColmapModel) -> Iterator[bytes]:
    yield b"# Rig calib list with one line of data per calib:\n"
    yield b"#   RIG_ID, NUM_SENSORS, REF_SENSOR_TYPE, REF_SENSOR_ID, SENSORS[]\n"
    for key in model.cameras:
        yield _line(key, 1, "CAMERA", key)


def _text_frames(model: ColmapModel) -> Iterator[bytes]:
    yield b"# Frame list with one line of data per frame:\n"
    yield b"#   FRAME_ID, RIG_ID, RIG_FROM_WORLD[QW, QX, QY, QZ, TX, TY, TZ], NUM_DATA_IDS, DATA_IDS[]\n"
    for key, image in model.images.items():
        pose = [*image.quaternion.tolist(), *image.translation.tolist()]
        yield _line(key, image.camera_id, *pose, 1, "CAMERA", image.camera_id, key)
