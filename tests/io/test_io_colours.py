import numpy as np
from PIL import Image

from proba.io.colours import colour_points
from proba.reconstruction import Camera, Points, Reconstruction


def test_a_point_gets_the_mean_colour_of_the_pixels_that_see_it(tmp_path):
    for k, value in enumerate((100, 200)):
        pixels = np.zeros((4, 6, 3), np.uint8)
        pixels[2, 3] = value
        Image.fromarray(pixels).save(tmp_path / f"{k}.png")
    rec = Reconstruction(
        image_names=["0.png", "1.png", "missing.png"],
        cameras=[Camera(model="SIMPLE_PINHOLE", width=6, height=4, params=np.array([5.0, 3.0, 2.0]))],
        camera_of_image=np.zeros(3, int),
        cam_from_world=np.tile(np.eye(4), (3, 1, 1)),
        pose_std=np.zeros((3, 6)),
        points=Points(
            xyz=np.zeros((2, 3)),
            rgb=np.full((2, 3), 128, np.uint8),
            sigma=np.zeros(2),
            error_px=np.zeros(2),
            obs_point=np.array([0, 0, 1]),
            obs_image=np.array([0, 1, 2]),
            obs_xy=np.array([[3.5, 2.5], [3.9, 2.1], [1.0, 1.0]], np.float32),
        ),
    )
    assert colour_points(rec, tmp_path) == ["missing.png"]
    assert rec.points.rgb.tolist() == [[150] * 3, [128] * 3]
