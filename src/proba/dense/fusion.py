"""Dense clouds: samples of all depth maps that agree with each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from proba.dense.maps import depth_at, pixel_grid
from proba.errors import InputError
from proba.io.colours import photo_colours
from proba.point_cloud import Cloud
from proba.reconstruction import Reconstruction


@dataclass(frozen=True, kw_only=True)
class CloudOptions:
    """Which samples of the depth maps become points."""

    step_px: float = 4.0
    """Distance of the samples in each image, original pixels."""
    max_relative_sigma: float = 0.05
    """Largest standard deviation of the depth, as a share of the depth."""
    agreement: float = 0.03
    """Largest relative difference to the depth that a neighbouring image sees at the same place."""
    min_agreeing: int = 1
    """Neighbours that must agree; those that look through the point must be fewer than those that agree."""
    max_neighbours: int = 8
    """Neighbours that are asked, those with most matches first."""


def dense_cloud(reconstruction: Reconstruction, photos: Path, options: CloudOptions | None = None) -> Cloud:
    """Samples of every depth map that are sure and that neighbouring images confirm, coloured from the photos."""
    options = options or CloudOptions()
    neighbours = nearest_images(reconstruction, options.max_neighbours)
    parts = []
    for n, name in enumerate(reconstruction.image_names):
        xy, xyz, sigma, normals = _lift(reconstruction, n, options)
        good = _confirmed(reconstruction, xyz, neighbours[n], options)  # [K]
        try:
            rgb = photo_colours(photos / name, reconstruction.camera(n), xy[good])
        except OSError as error:
            raise InputError(
                f"The photo {photos / name} cannot be read ({error.strerror or error}). "
                "Give the folder of the photos with --images."
            ) from error
        parts.append((xyz[good], rgb, sigma[good], normals[good]))
    xyz, rgb, sigma, normals = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not len(xyz):
        raise InputError("No depth is sure enough for a dense cloud. Add photos that overlap more.")
    return Cloud(xyz=xyz, rgb=rgb, sigma=sigma, normals=normals)


def _lift(
    reconstruction: Reconstruction, n: int, options: CloudOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pixels [K, 2], world points [K, 3], sigmas [K] and normals [K, 3] of the sure samples of one image."""
    camera, pose = reconstruction.camera(n), reconstruction.cam_from_world[n]
    xy, rows, columns = pixel_grid(camera, options.step_px)  # [K, 2]
    depth, sigma = depth_at(reconstruction, n, xy)
    in_camera = camera.rays(xy) * depth[:, None]  # [K, 3]
    normals = _grid_normals(in_camera.reshape(rows, columns, 3)).reshape(-1, 3)
    sure = sigma < options.max_relative_sigma * depth
    world = (in_camera[sure] - pose[:3, 3]) @ pose[:3, :3]
    return xy[sure], world, sigma[sure], normals[sure] @ pose[:3, :3]


def _grid_normals(surface: np.ndarray) -> np.ndarray:
    """Unit normals [rows, columns, 3] of a surface given on a grid in its camera's frame, towards the camera."""
    if min(surface.shape[:2]) < 2:
        return np.zeros_like(surface)
    down, right = np.gradient(surface, axis=(0, 1))
    normals = np.cross(down, right)  # right is +x and down is +y, so that this looks to -z, at the camera
    return normals / np.maximum(np.linalg.norm(normals, axis=-1, keepdims=True), 1e-12)


def _confirmed(
    reconstruction: Reconstruction, xyz: np.ndarray, neighbours: list[int], options: CloudOptions
) -> np.ndarray:
    """Which world points [K, 3] lie on the surface that neighbouring images see."""
    agreeing, seen_through = np.zeros(len(xyz), int), np.zeros(len(xyz), int)
    for j in neighbours:
        camera, pose = reconstruction.camera(j), reconstruction.cam_from_world[j]
        in_camera = xyz @ pose[:3, :3].T + pose[:3, 3]  # [K, 3]
        xy = camera.project(in_camera)  # [K, 2]
        inside = np.flatnonzero(((xy > 0) & (xy < [camera.width, camera.height])).all(axis=1))  # NaN is outside
        ratio = camera.depths(in_camera[inside]) / depth_at(reconstruction, j, xy[inside])[0]
        agreeing[inside] += np.abs(ratio - 1) < options.agreement
        seen_through[inside] += ratio < 1 - options.agreement
    return (agreeing >= options.min_agreeing) & (agreeing > seen_through)


def nearest_images(reconstruction: Reconstruction, limit: int) -> list[list[int]]:
    """Images that share matches with each, most first; from shared points where the edges are not known."""
    n_images, points = len(reconstruction), reconstruction.points
    index = {name: n for n, name in enumerate(reconstruction.image_names)}
    known = [
        (index[edge.i], index[edge.j], edge.matches)
        for edge in reconstruction.edges
        if edge.i in index and edge.j in index and edge.matches
    ]
    if known:
        i, j, matches = np.array(known).T  # [E] each
        shared = csr_matrix((np.tile(matches, 2), (np.append(i, j), np.append(j, i))), (n_images, n_images))
    else:
        ones = np.ones(len(points.obs_image))
        sees = csr_matrix((ones, (points.obs_image, points.obs_point)), (n_images, len(points.xyz)))
        shared = csr_matrix(sees @ sees.T)
    found = []
    for n in range(n_images):
        row = slice(shared.indptr[n], shared.indptr[n + 1])
        others, counts = shared.indices[row], shared.data[row]
        ranked = others[np.lexsort((others, -counts))]
        found.append(ranked[ranked != n][:limit].tolist())
    return found
