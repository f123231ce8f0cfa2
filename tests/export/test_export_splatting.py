"""The way to a splat: a reader with the assumptions of the original 3D Gaussian splatting code on our export."""

import struct

import numpy as np
import pytest
from exact_reconstruction import exact_reconstruction
from PIL import Image
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from proba.export import export

SPOT_PX = 4  # half the side of the coloured square that stands for a point


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Photos through distorted lenses with spots at the points, stored turned by EXIF, and their masks, exported."""
    root = tmp_path_factory.mktemp("splat")
    _, exact = exact_reconstruction(n_images=4, models=("SIMPLE_RADIAL", "RADIAL"))
    for n, name in enumerate(exact.image_names):
        picture = np.full((480, 640, 3), 128, np.uint8)
        mine = exact.points.obs_image == n
        for (x, y), p in zip(exact.points.obs_xy[mine].astype(int), exact.points.obs_point[mine], strict=True):
            picture[max(y - SPOT_PX, 0) : y + SPOT_PX + 1, max(x - SPOT_PX, 0) : x + SPOT_PX + 1] = exact.points.rgb[p]
        exif = Image.Exif()
        exif[0x0112] = 6 if n % 2 else 1  # 6: shown after a quarter turn to the right
        stored = np.rot90(picture, 1 if n % 2 else 0)
        (root / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(stored)).save(root / "set" / name, exif=exif)
        mask = np.full((480, 640), 255, np.uint8)
        mask[:, 400:] = 0
        (root / "masks" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(root / "masks" / name)
    export(exact, to="colmap-undistorted", out=root / "out", photos=root / "set", masks=root / "masks")
    return root / "out", exact


def classic_scene(folder):
    """What the original code makes of a folder: pinhole cameras alone, and of these only focal length and size."""

    def unpack(file, layout):
        return struct.unpack("<" + layout, file.read(struct.calcsize("<" + layout)))

    cameras, views, points = {}, [], {}
    with open(folder / "sparse/0/cameras.bin", "rb") as file:
        for _ in range(unpack(file, "Q")[0]):
            camera_id, model, width, height = unpack(file, "iiQQ")
            assert model in (0, 1), "SIMPLE_PINHOLE or PINHOLE"
            params = unpack(file, "3d" if model == 0 else "4d")
            cameras[camera_id] = width, height, params[0], params[0 if model == 0 else 1], params[-2:]
    with open(folder / "sparse/0/points3D.bin", "rb") as file:
        for _ in range(unpack(file, "Q")[0]):
            point_id, x, y, z, red, green, blue, _ = unpack(file, "Q3d3Bd")
            file.read(8 * unpack(file, "Q")[0])
            points[point_id] = np.array([x, y, z]), (red, green, blue)
    with open(folder / "sparse/0/images.bin", "rb") as file:
        for _ in range(unpack(file, "Q")[0]):
            _, *pose, camera_id = unpack(file, "i7di")
            name = b""
            while (character := file.read(1)) != b"\0":
                name += character
            seen = [unpack(file, "ddq") for _ in range(unpack(file, "Q")[0])]
            path = folder / "images" / name.decode().rpartition("/")[2]  # the original looks at the last part alone
            with Image.open(path) as image:
                pixels = np.asarray(image.convert("RGB"))  # EXIF is not looked at
            views.append((pose, cameras[camera_id], pixels, seen, name.decode()))
    return views, points


def test_points_are_where_a_trainer_looks_for_them(exported):
    folder, exact = exported
    views, points = classic_scene(folder)
    assert len(views) == len(exact) and len(points) == len(exact.points.xyz)
    compared = 0
    for pose, (width, height, fx, fy, centre), pixels, seen, _ in views:
        assert pixels.shape == (height, width, 3)
        assert centre == (width / 2, height / 2)
        rotation = Rotation.from_quat([*pose[1:4], pose[0]]).as_matrix()
        places = np.array([(x, y) for x, y, _ in seen])
        alone = cKDTree(places).query(places, k=2)[0][:, 1] > 4 * SPOT_PX
        for (x, y, point_id), is_alone in zip(seen, alone, strict=True):
            xyz, rgb = points[point_id]
            a, b, c = rotation @ xyz + pose[4:]
            pixel = np.array([fx * a / c + width / 2, fy * b / c + height / 2])  # from the field of view alone
            np.testing.assert_allclose(pixel, [x, y], atol=0.01)
            column, row = pixel.astype(int)
            if is_alone and 8 < column < width - 8 and 8 < row < height - 8:
                assert np.abs(pixels[row, column].astype(int) - rgb).max() <= 2
                compared += 1
    assert compared > 100


def test_masks_follow_their_photos(exported):
    folder, exact = exported
    for n, (_, (width, height, *_), _, _, name) in enumerate(classic_scene(folder)[0]):
        with Image.open(folder / "masks" / f"{name}.png") as image:
            mask = np.asarray(image)
        assert mask.shape == (height, width) and set(np.unique(mask)) == {0, 255}
        edge = exact.camera(n).rays(np.array([400.0, 240.0]))  # where the mask begins, as a ray
        x = (classic_scene(folder)[0][n][1][2] * edge[0]) + width / 2
        assert abs(int(mask[height // 2].argmin()) - x) < 1.5
