"""An exact reconstruction of a synthetic scene: its points are the scene's, seen where nothing stands before them."""

from __future__ import annotations

import numpy as np

from proba.reconstruction import Camera, Points, Reconstruction
from proba.synthetic import Scene, make_scene


def exact_reconstruction(
    layout: str = "object", n_images: int = 6, *, models: tuple[str, ...] = ("PINHOLE",), seed: int = 2
) -> tuple[Scene, Reconstruction]:
    """Images take the camera models in turn; the distorted ones see the scene through k1 (and k2)."""
    scene = make_scene(layout, n_images=n_images, seed=seed, fov_deg=60)
    focal = scene.intrinsics[0, 0]
    params = {
        "PINHOLE": [focal, 1.02 * focal, 322.5, 238.0],
        "SIMPLE_RADIAL": [focal, 322.5, 238.0, -0.08],
        "RADIAL": [focal, 322.5, 238.0, -0.08, 0.02],
        "OPENCV": [focal, 1.02 * focal, 322.5, 238.0, -0.08, 0.02, 0.001, -0.002],
        "FULL_OPENCV": [focal, 1.02 * focal, 322.5, 238.0, 0.2, -0.1, 0.001, -0.002, 0.03, 0.3, -0.05, 0.02],
        "OPENCV_FISHEYE": [0.6 * focal, 0.61 * focal, 322.5, 238.0, 0.02, -0.01, 0.003, -0.0005],
        "THIN_PRISM_FISHEYE": [
            *(0.6 * focal, 0.61 * focal, 322.5, 238.0, 0.02, -0.01),
            *(0.001, -0.002, 0.003, -0.0005, 0.001, 0.002),
        ],
    }
    cameras = [Camera(model=model, width=640, height=480, params=np.array(params[model])) for model in models]
    xyz = scene.sample_points(24, 18)
    rng = np.random.default_rng(0)
    reconstruction = Reconstruction(
        image_names=[f"photos/{name}" for name in scene.image_names],
        cameras=cameras,
        camera_of_image=np.arange(n_images) % len(cameras),
        cam_from_world=scene.cam_from_world,
        pose_std=rng.uniform(0.001, 0.01, (n_images, 6)),
        points=Points(
            xyz=xyz,
            rgb=rng.integers(0, 256, xyz.shape).astype(np.uint8),
            sigma=rng.uniform(0.001, 0.01, len(xyz)),
            error_px=np.full(len(xyz), 0.5),
            obs_point=np.zeros(0, int),
            obs_image=np.zeros(0, int),
            obs_xy=np.zeros((0, 2), np.float32),
        ),
    )
    point, image, pixels = [], [], []
    for n in range(n_images):
        xy = reconstruction.project(n, xyz)
        inside = ((xy > 0) & (xy < [640, 480])).all(axis=1)
        seen = np.flatnonzero(inside & scene.visible(n, xyz))
        point.append(seen)
        image.append(np.full(len(seen), n))
        pixels.append(xy[seen])
    points = reconstruction.points
    points.obs_point, points.obs_image = np.concatenate(point), np.concatenate(image)
    points.obs_xy = np.concatenate(pixels).astype(np.float32)
    return scene, reconstruction
