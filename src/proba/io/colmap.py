"""COLMAP models: our reconstructions out, anyone's in. Ids count from 1 in the order of our lists."""

from __future__ import annotations

import itertools
import os
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pycolmap

from proba.errors import InputError
from proba.reconstruction import Camera, Points, Reconstruction

pycolmap.logging.minloglevel = int(pycolmap.logging.ERROR)

MODELS = ("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL")


def write_colmap(reconstruction: Reconstruction, folder: str | Path, *, text: bool = False) -> None:
    """Write cameras, images, points3D (and COLMAP 3.12's rigs and frames) into a folder, as .bin or .txt files."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = to_pycolmap(reconstruction)
    with tempfile.TemporaryDirectory(prefix=".colmap-", dir=folder) as temporary:
        (model.write_text if text else model.write_binary)(temporary)
        for file in Path(temporary).iterdir():
            os.replace(file, folder / file.name)


def to_pycolmap(reconstruction: Reconstruction) -> pycolmap.Reconstruction:
    """The same reconstruction as a pycolmap object."""
    model = pycolmap.Reconstruction()
    for k, camera in enumerate(reconstruction.cameras):
        model.add_camera_with_trivial_rig(
            pycolmap.Camera(
                camera_id=k + 1,
                model=camera.model,
                width=camera.width,
                height=camera.height,
                params=np.asarray(camera.params, np.float64),
            )
        )
    points = reconstruction.points
    index_in_image = np.zeros(len(points.obs_image), np.int64)  # [K]
    by_image = np.argsort(points.obs_image, kind="stable")
    bounds = np.searchsorted(points.obs_image[by_image], np.arange(len(reconstruction.image_names) + 1))  # [N + 1]
    for n, name in enumerate(reconstruction.image_names):
        seen = by_image[bounds[n] : bounds[n + 1]]
        index_in_image[seen] = np.arange(len(seen))
        image = pycolmap.Image(
            name=name,
            keypoints=points.obs_xy[seen].astype(np.float64).reshape(-1, 2),
            camera_id=int(reconstruction.camera_of_image[n]) + 1,
            image_id=n + 1,
        )
        pose = reconstruction.cam_from_world[n]
        model.add_image_with_trivial_frame(image, pycolmap.Rigid3d(pycolmap.Rotation3d(pose[:3, :3]), pose[:3, 3]))
    _add_points(model, points, index_in_image)
    return model


def _add_points(model: pycolmap.Reconstruction, points: Points, index_in_image: np.ndarray) -> None:
    order = np.argsort(points.obs_point, kind="stable")
    bounds = np.searchsorted(points.obs_point[order], np.arange(len(points.xyz) + 1)).tolist()
    elements = [
        pycolmap.TrackElement(image + 1, index)
        for image, index in zip(points.obs_image[order].tolist(), index_in_image[order].tolist(), strict=True)
    ]
    for p, (begin, end) in enumerate(itertools.pairwise(bounds)):
        model.add_point3D(points.xyz[p], pycolmap.Track(elements[begin:end]), points.rgb[p])
    for point, error_px in zip(model.points3D.values(), _in_map_order(model, points.error_px), strict=True):
        if np.isfinite(error_px):
            point.error = error_px


def _in_map_order(model: pycolmap.Reconstruction, values: np.ndarray) -> np.ndarray:
    """Values by point, ids from 1, in the order in which the model lists its points; looking up each id is slow."""
    return values[np.fromiter(model.points3D.keys(), np.int64, len(values)) - 1]


def read_colmap(folder: str | Path) -> Reconstruction:
    """Read a COLMAP model, binary or text. What COLMAP does not store (uncertainties, maps) is NaN or None."""
    folder = Path(folder)
    if not any((folder / f"images.{kind}").is_file() for kind in ("bin", "txt")):
        raise InputError(f"{folder} holds no COLMAP model (images.bin or images.txt). Give e.g. DIR/sparse/0.")
    try:
        model = pycolmap.Reconstruction(str(folder))
    except Exception as error:  # pycolmap raises bare RuntimeError and ValueError with C++ traces
        reason = str(error).splitlines()[-1:]
        raise InputError(f"The COLMAP model {folder} is damaged ({reason}). Make it again.") from error
    images = [model.images[k] for k in sorted(model.images) if model.images[k].has_pose]
    camera_ids = sorted(model.cameras)
    rigid = np.array([image.cam_from_world().matrix() for image in images]).reshape(-1, 3, 4)  # [N, 3, 4]
    cam_from_world = np.tile(np.eye(4), (len(images), 1, 1))
    cam_from_world[:, :3] = rigid
    return Reconstruction(
        image_names=[image.name for image in images],
        cameras=[_camera(model.cameras[k]) for k in camera_ids],
        camera_of_image=np.array([camera_ids.index(image.camera_id) for image in images], np.int64),
        cam_from_world=cam_from_world,
        pose_std=np.full((len(images), 6), np.nan),
        points=_points(model, images),
    )


def _camera(camera: pycolmap.Camera) -> Camera:
    if camera.model.name in MODELS:
        model, params = camera.model.name, list(camera.params)
    else:
        warnings.warn(f"Camera model {camera.model.name} is read as PINHOLE, without its distortion.", stacklevel=3)
        model = "PINHOLE"
        params = [camera.focal_length_x, camera.focal_length_y, camera.principal_point_x, camera.principal_point_y]
    return Camera(model=model, width=camera.width, height=camera.height, params=np.array(params, np.float64))


def _points(model: pycolmap.Reconstruction, images: list[pycolmap.Image]) -> Points:
    listed = sorted(model.points3D.items(), key=lambda item: item[0])
    ids = np.array([point_id for point_id, _ in listed], np.int64)  # [P], ascending
    seen = [list(image.get_observation_points2D()) for image in images]
    obs_id = np.array([point.point3D_id for points in seen for point in points], np.int64)  # [K]
    return Points(
        xyz=np.array([point.xyz for _, point in listed], np.float64).reshape(-1, 3),
        rgb=np.array([point.color for _, point in listed], np.uint8).reshape(-1, 3),
        sigma=np.full(len(listed), np.nan),
        error_px=np.array([point.error for _, point in listed], np.float64),
        obs_point=np.searchsorted(ids, obs_id),
        obs_image=np.repeat(np.arange(len(images)), [len(points) for points in seen]),
        obs_xy=np.array([point.xy for points in seen for point in points], np.float32).reshape(-1, 2),
    )
