"""COLMAP models: our reconstructions out, anyone's in. Ids count from 1 in the order of our lists."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from proba.errors import InputError
from proba.geometry.camera import MODELS as LENSES
from proba.io.colmap_model import (
    KEYPOINT,
    MODEL_IDS,
    MODELS,
    NO_POINT,
    ColmapCamera,
    ColmapImage,
    ColmapModel,
    ColmapPoints,
    find_model,
    read_model,
)
from proba.io.colmap_writer import write_model
from proba.io.names import safe_relative_path
from proba.io.reading import reading
from proba.reconstruction import Camera, Points, Reconstruction


def write_colmap(reconstruction: Reconstruction, folder: str | Path, *, text: bool = False) -> None:
    """Write cameras, images, points3D (and COLMAP 3.12's rigs and frames) into a folder, as .bin or .txt files."""
    write_model(_to_model(reconstruction), Path(folder), text=text)


def _to_model(reconstruction: Reconstruction) -> ColmapModel:
    points = reconstruction.points
    by_image = np.argsort(points.obs_image, kind="stable")
    bounds = np.searchsorted(points.obs_image[by_image], np.arange(len(reconstruction) + 1))  # [N + 1]
    quaternion = Rotation.from_matrix(reconstruction.cam_from_world[:, :3, :3]).as_quat(canonical=True)  # [N, 4] xyzw
    images = {}
    for n, name in enumerate(reconstruction.image_names):
        seen = by_image[bounds[n] : bounds[n + 1]]
        keypoints = np.zeros(len(seen), KEYPOINT)
        keypoints["xy"], keypoints["point"] = points.obs_xy[seen], points.obs_point[seen] + 1
        images[n + 1] = ColmapImage(
            camera_id=int(reconstruction.camera_of_image[n]) + 1,
            name=str(safe_relative_path(name)),
            quaternion=quaternion[n, [3, 0, 1, 2]],
            translation=reconstruction.cam_from_world[n, :3, 3],
            keypoints=keypoints,
        )
    return ColmapModel(
        cameras={
            k + 1: ColmapCamera(MODELS[MODEL_IDS[c.model]], c.width, c.height, np.asarray(c.params, np.float64))
            for k, c in enumerate(reconstruction.cameras)
        },
        images=images,
        points=ColmapPoints(
            ids=np.arange(1, len(points.xyz) + 1, dtype=np.uint64),
            xyz=points.xyz,
            rgb=points.rgb,
            error=np.where(np.isfinite(points.error_px), points.error_px, -1.0),
        ),
    )


def read_colmap(folder: str | Path) -> Reconstruction:
    """Read a COLMAP model, binary or text. What COLMAP does not store (uncertainties, maps) is NaN or None."""
    folder = Path(folder)
    if find_model(folder) is None:
        raise InputError(f"{folder} holds no COLMAP model (images.bin or images.txt). Give e.g. DIR/sparse/0.")
    with reading(folder, "a COLMAP model that can be read", "It is damaged: make it again."):
        model = read_model(folder)
        camera_index = {key: k for k, key in enumerate(model.cameras)}
        images = list(model.images.values())
        if not images:
            raise ValueError("it has no image with a pose")
        return Reconstruction(
            image_names=[image.name for image in images],
            cameras=[_camera(camera) for camera in model.cameras.values()],
            camera_of_image=np.array([camera_index[image.camera_id] for image in images], np.int64),
            cam_from_world=np.array([image.cam_from_world for image in images]).reshape(-1, 4, 4),
            pose_std=np.full((len(images), 6), np.nan),
            points=_points(model, images),
        )


def _camera(camera: ColmapCamera) -> Camera:
    name, params = camera.model.name, camera.params
    if name not in LENSES:
        warnings.warn(f"Camera model {name} is read as PINHOLE, without its distortion.", stacklevel=3)
        name, params = "PINHOLE", camera.pinhole
    return Camera(model=name, width=camera.width, height=camera.height, params=np.array(params, np.float64))


def _points(model: ColmapModel, images: list[ColmapImage]) -> Points:
    points = model.points
    seen = [image.keypoints[image.keypoints["point"] != NO_POINT] for image in images]
    observed = np.concatenate(seen or [np.zeros(0, KEYPOINT)])  # [K]
    obs_point = np.searchsorted(points.ids, observed["point"])  # [K]
    if not np.isin(observed["point"], points.ids).all():
        raise ValueError("images see points that points3D does not have")
    return Points(
        xyz=points.xyz,
        rgb=points.rgb,
        sigma=np.full(len(points.ids), np.nan),
        error_px=points.error,
        obs_point=obs_point,
        obs_image=np.repeat(np.arange(len(images)), [len(keypoints) for keypoints in seen]),
        obs_xy=observed["xy"].astype(np.float32).reshape(-1, 2),
    )
