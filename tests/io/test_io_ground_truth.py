"""Ground truth from every format it may come in."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from proba.errors import InputError
from proba.io import load_ground_truth, save_ground_truth, true_points
from proba.synthetic import make_scene


@pytest.fixture(scope="module")
def scene():
    return make_scene("room", n_images=5, seed=0, fov_deg=60)


def gt_json(scene, **more):
    cameras = []
    for n, name in enumerate(scene.image_names):
        fx, fy, cx, cy = scene.intrinsics[n]
        entry = {"image": name, "width": 640, "height": 480, "fx": fx, "fy": fy, "cx": cx, "cy": cy}
        cameras.append(entry | {"R": scene.rotation[n].tolist(), "t": scene.translation[n].tolist()})
    return {"pixel_convention": "corner0.5", "units": "metres", "cameras": cameras} | more


def assert_cameras(truth, scene):
    assert truth.names == scene.image_names
    np.testing.assert_allclose(truth.cam_from_world, scene.cam_from_world, atol=1e-9)
    np.testing.assert_allclose(truth.intrinsics, scene.intrinsics)
    assert (truth.width == 640).all() and (truth.height == 480).all()


def test_gt_json(tmp_path, scene):
    (tmp_path / "gt.json").write_text(json.dumps(gt_json(scene)))
    truth = load_ground_truth(tmp_path)  # the folder is enough
    assert_cameras(truth, scene)
    assert truth.metres_per_unit == 1.0 and true_points(truth) is None
    np.testing.assert_allclose(truth.centres, scene.centres)


def test_pixel_centres_at_integers_are_shifted(tmp_path, scene):
    (tmp_path / "gt.json").write_text(json.dumps(gt_json(scene, pixel_convention="center0", units="mm (robot)")))
    truth = load_ground_truth(tmp_path / "gt.json")
    np.testing.assert_allclose(truth.intrinsics[:, 2:] - scene.intrinsics[:, 2:], 0.5)
    np.testing.assert_allclose(truth.intrinsics[:, :2], scene.intrinsics[:, :2])
    assert truth.metres_per_unit == 0.001


def test_depth_images_become_the_true_surface(tmp_path, scene):
    from PIL import Image

    content = gt_json(scene, units="metres; depth png uint16 /5000")
    depth = scene.depth_map(2, 640, 480)
    Image.fromarray(np.round(depth * 5000).astype(np.uint16)).save(tmp_path / "2.png")
    content["cameras"][2]["depth"] = "2.png"
    content["cameras"][2]["dist"] = [0.0, 0.0]
    (tmp_path / "gt.json").write_text(json.dumps(content))
    points = true_points(load_ground_truth(tmp_path))
    pixels, z = scene.project(2, points)
    exact, _ = scene.cast(2, pixels)
    assert len(points) == 640 * 480
    assert np.abs(z - exact).max() < 2e-4  # half a count


def test_distortion_is_undone(tmp_path, scene):
    from PIL import Image

    k = [0.2, -0.1, 0.003, -0.002, 0.05]
    content = gt_json(scene, units="metres; depth png uint16 /1000")
    Image.fromarray(np.full((480, 640), 2000, np.uint16)).save(tmp_path / "0.png")
    content["cameras"][0] |= {"depth": "0.png", "dist": k}
    (tmp_path / "gt.json").write_text(json.dumps(content))
    points = true_points(load_ground_truth(tmp_path))
    x, y, z = (points @ scene.rotation[0].T + scene.translation[0]).T
    x, y = x / z, y / z
    r2 = x * x + y * y
    radial = 1 + k[0] * r2 + k[1] * r2**2 + k[4] * r2**3
    u = x * radial + 2 * k[2] * x * y + k[3] * (r2 + 2 * x * x)
    expected = (np.tile(np.arange(640) + 0.5, 480) - 320) / scene.intrinsics[0, 0]
    np.testing.assert_allclose(z, 2.0)
    np.testing.assert_allclose(u, expected, atol=1e-5)


def test_nerfstudio(tmp_path, scene):
    frames = []
    for n, name in enumerate(scene.image_names):
        matrix = np.linalg.inv(scene.cam_from_world[n]) @ np.diag([1.0, -1.0, -1.0, 1.0])
        frames.append({"file_path": f"./{name}", "transform_matrix": matrix.tolist()})
    fx, fy, cx, cy = scene.intrinsics[0]
    lens = {"fl_x": fx, "fl_y": fy, "cx": cx, "cy": cy, "w": 640, "h": 480}
    (tmp_path / "transforms.json").write_text(json.dumps(lens | {"frames": frames}))
    assert_cameras(load_ground_truth(tmp_path), scene)
    blender = {"camera_angle_x": 2 * np.arctan(320 / fx), "w": 640, "h": 480, "frames": frames}
    (tmp_path / "transforms.json").write_text(json.dumps(blender))
    assert_cameras(load_ground_truth(tmp_path / "transforms.json"), scene)


def write_colmap_text(folder, scene, observations):
    from scipy.spatial.transform import Rotation

    folder.mkdir(parents=True)
    fx, fy, cx, cy = scene.intrinsics[0]
    (folder / "cameras.txt").write_text(f"# cameras\n7 PINHOLE 640 480 {fx} {fy} {cx} {cy}\n")
    lines = []
    for n, name in enumerate(scene.image_names):
        x, y, z, w = Rotation.from_matrix(scene.rotation[n]).as_quat().tolist()
        lines.append(" ".join(map(str, [n + 1, w, x, y, z, *scene.translation[n].tolist(), 7, name])))
        lines += observations
    (folder / "images.txt").write_text("# images\n" + "\n".join(lines) + "\n")
    (folder / "points3D.txt").write_text("1 0.5 1.5 2.5 0 0 0 0.1 99 0\n")  # seen by an image that was removed


@pytest.mark.parametrize("observations", [[], [""], ["1.0 2.0 1 3.0 4.0 -1 5.0 6.0 -1 7.0 8.0 -1"]])
def test_colmap_text(tmp_path, scene, observations):
    write_colmap_text(tmp_path / "sparse" / "0", scene, observations)
    truth = load_ground_truth(tmp_path)
    assert_cameras(truth, scene)
    assert truth.metres_per_unit is None  # COLMAP's scale means nothing
    np.testing.assert_allclose(truth.points, [[0.5, 1.5, 2.5]])


def test_own_round_trip(tmp_path, scene):
    truth = scene.ground_truth()
    save_ground_truth(truth, tmp_path / "gt.json")
    again = load_ground_truth(tmp_path / "gt.json")
    assert_cameras(again, scene)
    np.testing.assert_allclose(again.points, truth.points, atol=1e-5)
    assert again.metres_per_unit == 1.0


def test_refusals_say_what_to_give(tmp_path):
    for path, text in (
        ("empty", None),
        ("a.json", "{}"),
        ("b.json", "{"),
        ("c.json", '{"cameras": [{}]}'),
        ("d.txt", "x"),
    ):
        if text is None:
            (tmp_path / path).mkdir()
        else:
            (tmp_path / path).write_text(text)
        with pytest.raises(InputError, match=r"transforms\.json"):
            load_ground_truth(tmp_path / path)
    with pytest.raises(InputError, match="Check the path"):
        load_ground_truth(tmp_path / "nothing")


@pytest.mark.real
@pytest.mark.skipif("PROBA_DATA" not in os.environ, reason="PROBA_DATA does not name the folder of image sets")
def test_the_two_files_of_a_real_set_agree():
    folder = Path(os.environ["PROBA_DATA"]) / "eth3d_pipes"
    ours, theirs = load_ground_truth(folder / "gt.json"), load_ground_truth(folder / "dslr_calibration_undistorted")
    assert [Path(name).stem for name in ours.names] == [Path(name).stem for name in theirs.names]
    np.testing.assert_allclose(ours.cam_from_world, theirs.cam_from_world, atol=1e-5)
    scale = ours.width / theirs.width  # their images are full size
    np.testing.assert_allclose(ours.intrinsics, theirs.intrinsics * scale[:, None], rtol=2e-3)
