"""What other programs read in our files: parsers written from the formats' documentation project known points."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import trimesh
from exact_reconstruction import exact_reconstruction
from PIL import Image

from proba.errors import InputError
from proba.evaluation import evaluate
from proba.export.depth import write_depth
from proba.export.glb import write_glb
from proba.export.nerfstudio import write_nerfstudio
from proba.export.photo_files import PhotoSource
from proba.export.splat import write_splat
from proba.export.tum import write_tum
from proba.io.colmap import write_colmap
from proba.io.ground_truth import load_ground_truth
from proba.io.pinhole import pinhole, warped
from proba.io.ply import read_ply
from proba.point_cloud import Cloud, point_cloud
from proba.reconstruction import Camera

MODEL_PARAMETERS = {0: ("SIMPLE_PINHOLE", 3), 1: ("PINHOLE", 4), 2: ("SIMPLE_RADIAL", 4), 3: ("RADIAL", 5)}


@pytest.fixture(scope="module")
def exact():
    return exact_reconstruction(models=("PINHOLE", "SIMPLE_RADIAL", "RADIAL"))[1]


def rotation_of(w, x, y, z):
    """Rotation matrix of a unit quaternion."""
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def colmap_pixel(model, params, point_cam):
    x, y = point_cam[:2] / point_cam[2]
    r2 = x * x + y * y
    if model == "PINHOLE":
        fx, fy, cx, cy = params
        return np.array([fx * x + cx, fy * y + cy])
    f, cx, cy, k1, k2 = [*params, 0.0][:5]
    radial = 1 + k1 * r2 + k2 * r2 * r2
    return np.array([f * x * radial + cx, f * y * radial + cy])


def classic_binary(folder):
    """The three files as splatting code reads them, with struct."""

    def unpack(file, layout):
        return struct.unpack("<" + layout, file.read(struct.calcsize("<" + layout)))

    cameras, images, points = {}, {}, {}
    with open(folder / "cameras.bin", "rb") as file:
        for _ in range(unpack(file, "Q")[0]):
            camera_id, model_id, width, height = unpack(file, "iiQQ")
            model, count = MODEL_PARAMETERS[model_id]
            cameras[camera_id] = model, width, height, unpack(file, f"{count}d")
        assert not file.read()
    with open(folder / "images.bin", "rb") as file:
        for _ in range(unpack(file, "Q")[0]):
            image_id, *pose, camera_id = unpack(file, "i7di")
            name = b""
            while (character := file.read(1)) != b"\0":
                name += character
            observations = [unpack(file, "ddq") for _ in range(unpack(file, "Q")[0])]
            images[image_id] = pose, camera_id, name.decode(), observations
        assert not file.read()
    with open(folder / "points3D.bin", "rb") as file:
        for _ in range(unpack(file, "Q")[0]):
            point_id, x, y, z, red, green, blue, _ = unpack(file, "Q3d3Bd")
            track = [unpack(file, "ii") for _ in range(unpack(file, "Q")[0])]
            points[point_id] = (x, y, z), (red, green, blue), track
        assert not file.read()
    return cameras, images, points


def classic_text(folder):
    def lines(name):
        return [line for line in (folder / name).read_text().splitlines() if not line.startswith("#")]

    cameras, images, points = {}, {}, {}
    for line in lines("cameras.txt"):
        camera_id, model, width, height, *params = line.split()
        cameras[int(camera_id)] = model, int(width), int(height), tuple(map(float, params))
    listed = lines("images.txt")
    for head, tail in zip(listed[::2], listed[1::2], strict=True):
        image_id, *pose, camera_id, name = head.split()
        numbers = np.array(tail.split(), float).reshape(-1, 3)
        images[int(image_id)] = list(map(float, pose)), int(camera_id), name, [(x, y, int(p)) for x, y, p in numbers]
    for line in lines("points3D.txt"):
        point_id, x, y, z, red, green, blue, _, *track = line.split()
        pairs = np.array(track, int).reshape(-1, 2).tolist()
        points[int(point_id)] = (float(x), float(y), float(z)), (int(red), int(green), int(blue)), pairs
    return cameras, images, points


@pytest.mark.parametrize("text", [False, True])
def test_classic_readers_project_our_points_to_our_pixels(tmp_path, exact, text):
    write_colmap(exact, tmp_path, text=text)
    cameras, images, points = classic_text(tmp_path) if text else classic_binary(tmp_path)
    assert [cameras[k][0] for k in (1, 2, 3)] == ["PINHOLE", "SIMPLE_RADIAL", "RADIAL"]
    assert len(points) == len(exact.points.xyz) and points[1][1] == tuple(exact.points.rgb[0].tolist())
    checked = 0
    for image_id, (pose, camera_id, name, observations) in images.items():
        assert name == exact.image_names[image_id - 1]
        rotation, translation = rotation_of(*pose[:4]), np.array(pose[4:])
        model, width, height, params = cameras[camera_id]
        assert (width, height) == (640, 480)
        for index, (x, y, point_id) in enumerate(observations[:50]):
            assert any(tuple(element) == (image_id, index) for element in points[point_id][2])
            pixel = colmap_pixel(model, params, rotation @ points[point_id][0] + translation)
            np.testing.assert_allclose(pixel, [x, y], atol=1e-3)
            checked += 1
    assert checked == 300


def nerfstudio_pixel(content, frame, point):
    """As nerfstudio has it: OpenGL camera axes, OpenCV distortion, pixel (0, 0) has its centre at (0.5, 0.5)."""
    lens = {**content, **frame}
    world_from_cam = np.array(frame["transform_matrix"])
    x, y, z = world_from_cam[:3, :3].T @ (point - world_from_cam[:3, 3])
    x, y = x / -z, -y / -z
    r2 = x * x + y * y
    radial = 1 + r2 * (lens["k1"] + r2 * lens["k2"])
    assert lens["p1"] == lens["p2"] == 0
    return np.array([lens["fl_x"] * x * radial + lens["cx"], lens["fl_y"] * y * radial + lens["cy"]])


def source(folder, names, size=(640, 480), orientation=1):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.new("RGB", size, (200, 30, 30)).save(folder / name, exif=exif)
    return PhotoSource(photos=folder)


@pytest.mark.parametrize("models", [("RADIAL",), ("PINHOLE", "SIMPLE_RADIAL")])
def test_nerfstudio_projects_its_own_cloud_to_our_pixels(tmp_path, models):
    _, exact = exact_reconstruction(n_images=4, models=models)
    folder = tmp_path / "out" / "deep"
    write_nerfstudio(exact, folder, source(tmp_path / "set", exact.image_names))
    content = json.loads((folder / "transforms.json").read_text())
    assert content["camera_model"] == "OPENCV" and content["applied_transform"] == np.eye(4)[:3].tolist()
    keys = {"fl_x", "fl_y", "cx", "cy", "w", "h", "k1", "k2"}
    # nerfstudio takes a value either from the top for all frames or from each frame, never mixed.
    assert (keys <= content.keys()) == (len(models) == 1) and not (len(models) > 1 and keys & content.keys())
    cloud = read_ply(folder / content["ply_file_path"])["xyz"]
    assert len(content["frames"]) == 4
    for n, frame in enumerate(content["frames"]):
        assert (folder / frame["file_path"]).read_bytes() == (tmp_path / "set" / exact.image_names[n]).read_bytes()
        seen = np.flatnonzero(exact.points.obs_image == n)[:40]
        for k in seen:
            pixel = nerfstudio_pixel(content, frame, cloud[exact.points.obs_point[k]])
            np.testing.assert_allclose(pixel, exact.points.obs_xy[k], atol=2e-3)


def test_nerfstudio_gets_turned_photos_upright(tmp_path):
    """The camera is that of the photo as shown; nerfstudio does not look at EXIF."""
    _, exact = exact_reconstruction(n_images=2)
    exact.image_names = [name.replace(".png", ".jpg") for name in exact.image_names]
    write_nerfstudio(exact, tmp_path / "out", source(tmp_path / "set", exact.image_names, (480, 640), orientation=6))
    content = json.loads((tmp_path / "out" / "transforms.json").read_text())
    for frame in content["frames"]:
        with Image.open(tmp_path / "out" / frame["file_path"]) as image:
            assert image.size == (content["w"], content["h"]) == (640, 480)
            assert image.getexif().get(0x0112, 1) == 1


def test_nerfstudio_asks_for_photos_that_are_missing(tmp_path, exact):
    with pytest.raises(InputError, match=r"is missing.*--images"):
        write_nerfstudio(exact, tmp_path / "out", PhotoSource(photos=tmp_path))


@pytest.mark.parametrize("kind", ["nerfstudio", "colmap", "colmap-txt"])
def test_eval_reads_exports_back_as_truth(tmp_path, exact, kind):
    if kind == "nerfstudio":
        write_nerfstudio(exact, tmp_path / "out", source(tmp_path / "set", exact.image_names))
    else:
        write_colmap(exact, tmp_path / "out" / "sparse" / "0", text=kind == "colmap-txt")
    truth = load_ground_truth(tmp_path / "out")
    assert truth.names == exact.image_names
    np.testing.assert_allclose(truth.cam_from_world, exact.cam_from_world, atol=1e-6)
    for n in range(len(exact)):
        camera = exact.camera(n)
        expected = [*camera.focal_px, *camera.principal_point_px]
        np.testing.assert_allclose(truth.intrinsics[n], expected, atol=1e-6)
    scores = evaluate([exact], truth)
    assert scores["registered"] == len(exact) and scores["auc@1"] > 99.99 and scores["focal_error_pct"] < 1e-6


@pytest.mark.parametrize(("form", "step_px"), [("npy", None), ("png", 2.5), ("exr", 4.0)])
def test_depth_files_lift_pixels_to_the_points(tmp_path, form, step_px):
    if form == "exr":
        pytest.importorskip("OpenEXR")
    _, exact = exact_reconstruction("room", n_images=3)
    write_depth(exact, tmp_path, form=form, step_px=step_px)
    images = json.loads((tmp_path / "depth.json").read_text())["images"]
    for n, name in enumerate(exact.image_names):
        entry = images[name]
        assert (entry["width"], entry["height"]) == {None: (640, 480), 2.5: (256, 192), 4.0: (160, 120)}[step_px]
        depth, sigma = (read_map(tmp_path, entry, kind, form) for kind in ("depth", "sigma"))
        assert depth.shape == sigma.shape == (entry["height"], entry["width"]) and (sigma > 0).mean() > 0.99
        mine = exact.points.obs_image == n
        xyz = exact.points.xyz[exact.points.obs_point[mine]]
        pose = exact.cam_from_world[n]
        in_camera = xyz @ pose[:3, :3].T + pose[:3, 3]
        x, y = in_camera[:, 0] / in_camera[:, 2], in_camera[:, 1] / in_camera[:, 2]
        column = np.floor(entry["fx"] * x + entry["cx"]).astype(int)  # corner0.5: pixel k covers [k, k + 1)
        row = np.floor(entry["fy"] * y + entry["cy"]).astype(int)
        lifted = depth[row, column] * np.stack(
            [(column + 0.5 - entry["cx"]) / entry["fx"], (row + 0.5 - entry["cy"]) / entry["fy"], np.ones(len(row))]
        )
        off = np.linalg.norm(lifted.T - in_camera, axis=1) / in_camera[:, 2]
        assert np.median(off) < 0.01
        assert np.median(np.abs(depth[row, column] - in_camera[:, 2]) / sigma[row, column]) < 1


def read_map(folder, entry, kind, form):
    path = folder / entry[kind]
    if form == "npy":
        values = np.load(path)
        assert values.dtype == np.float32
        return values
    if form == "png":
        counts = np.asarray(Image.open(path))
        assert counts.dtype == np.uint16 and counts.max() == 65535
        return counts * entry[f"{kind}_units_per_count"]
    import OpenEXR

    return OpenEXR.File(str(path)).channels()["Z"].pixels


def test_tum_trajectory(tmp_path, exact):
    write_tum(exact, tmp_path / "t.txt")
    table = np.loadtxt(tmp_path / "t.txt")
    np.testing.assert_array_equal(table[:, 0], np.arange(6))  # 000.png, 001.png, ... are numbers too
    for row, pose in zip(table, exact.cam_from_world, strict=True):
        np.testing.assert_allclose(pose[:3, :3] @ row[1:4] + pose[:3, 3], 0, atol=1e-8)
        qx, qy, qz, qw = row[4:]
        np.testing.assert_allclose(rotation_of(qw, qx, qy, qz), pose[:3, :3].T, atol=1e-8)


def test_tum_times_are_file_names_where_these_are_times(tmp_path, exact):
    times = ["1305031102.175304", "1305031101.075304", "1305031103.5", "7", "8", "9"]
    exact_names, exact.image_names = exact.image_names, [f"rgb/{time}.png" for time in times]
    try:
        write_tum(exact, tmp_path / "t.txt")
        exact.image_names = ["left.png", *exact_names[1:]]
        write_tum(exact, tmp_path / "i.txt")
    finally:
        exact.image_names = exact_names
    lines = [line.split() for line in (tmp_path / "t.txt").read_text().splitlines()[1:]]
    assert [line[0] for line in lines] == sorted(times, key=float)
    np.testing.assert_allclose(
        [float(v) for v in lines[3][1:4]], exact.centres[1], rtol=1e-8
    )  # ...01.07, after 7, 8, 9
    assert np.loadtxt(tmp_path / "i.txt")[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_splat_is_what_viewers_expect(tmp_path, exact):
    cloud = point_cloud(exact)
    write_splat(tmp_path / "s.ply", cloud)
    header, _, data = (tmp_path / "s.ply").read_bytes().partition(b"end_header\n")
    names = [line.split()[2] for line in header.decode().splitlines() if line.startswith("property float")]
    assert names == [
        *("x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2"),
        *(f"f_rest_{k}" for k in range(45)),
        *("opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"),
    ]
    table = np.frombuffer(data, "<f4").reshape(-1, len(names)).astype(float)
    column = {name: table[:, k] for k, name in enumerate(names)}
    np.testing.assert_allclose(table[:, :3], exact.points.xyz, rtol=1e-6)
    rgb = 255 * (0.5 + 0.28209479 * table[:, 6:9])
    np.testing.assert_allclose(rgb, exact.points.rgb, atol=1e-3)
    np.testing.assert_allclose(1 / (1 + np.exp(-column["opacity"])), 0.9, atol=1e-6)
    quaternion = table[:, -4:]
    np.testing.assert_allclose(np.linalg.norm(quaternion, axis=1), 1, atol=1e-6)
    known = np.linalg.norm(cloud.normals, axis=1) > 0
    assert known.any()
    for k in np.flatnonzero(known)[:100]:  # the thin axis of the Gaussian is the normal
        np.testing.assert_allclose(rotation_of(*quaternion[k])[:, 2], cloud.normals[k], atol=1e-5)
    assert (column["scale_2"] <= column["scale_0"] + 1e-6).all() and (column["scale_0"] == column["scale_1"]).all()


def test_splats_of_any_normal_and_of_one_point(tmp_path):
    normals = np.array([[0, 0, -1.0], [0, 0, 1.0], [1.0, 0, 0], [0, 0, 0]])
    cloud = Cloud(xyz=np.eye(4)[:, :3], rgb=np.zeros((4, 3), np.uint8), sigma=np.full(4, np.nan), normals=normals)
    write_splat(tmp_path / "s.ply", cloud)
    data = (tmp_path / "s.ply").read_bytes().partition(b"end_header\n")[2]
    table = np.frombuffer(data, "<f4").reshape(4, -1)
    assert np.isfinite(table).all()
    for quaternion, normal in zip(table[:3, -4:], normals, strict=False):
        np.testing.assert_allclose(rotation_of(*quaternion.astype(float))[:, 2], normal, atol=1e-6)
    one = Cloud(xyz=np.zeros((1, 3)), rgb=np.zeros((1, 3), np.uint8), sigma=np.ones(1), normals=np.zeros((1, 3)))
    write_splat(tmp_path / "one.ply", one)
    assert len(read_ply(tmp_path / "one.ply")["xyz"]) == 1


def test_glb_opens_with_points_colours_and_cameras(tmp_path, exact):
    write_glb(exact, tmp_path / "scene.glb")
    scene = trimesh.load(tmp_path / "scene.glb", force="scene")
    assert set(exact.image_names) <= set(scene.graph.nodes)
    turn, _ = scene.graph.get("points")
    clouds = [g for g in scene.geometry.values() if isinstance(g, trimesh.PointCloud)]
    assert len(clouds) == 1
    np.testing.assert_allclose(clouds[0].vertices, exact.points.xyz, atol=1e-5)
    np.testing.assert_array_equal(clouds[0].colors[:, :3], exact.points.rgb)
    np.testing.assert_allclose(turn[:3, :3], np.diag([1, -1, -1]), atol=1e-12)  # our y is down, glTF's is up
    for n, name in enumerate(exact.image_names):  # a point in front of the camera, through the file's own matrices
        world_from_cam, _ = scene.graph.get(name)
        seen = np.flatnonzero(exact.points.obs_image == n)[5]
        point = turn @ [*exact.points.xyz[exact.points.obs_point[seen]], 1]
        x, y, z, _ = np.linalg.inv(world_from_cam) @ point
        pixel = exact.camera(n).project(np.array([x, -y, -z]))
        np.testing.assert_allclose(pixel, exact.points.obs_xy[seen], atol=1e-3)


def test_glb_turns_a_known_up_to_y(tmp_path, exact):
    write_glb(replace(exact, up="z"), tmp_path / "scene.glb")
    turn, _ = trimesh.load(tmp_path / "scene.glb", force="scene").graph.get("points")
    np.testing.assert_allclose(turn[:3, :3] @ [0, 0, 1], [0, 1, 0], atol=1e-12)
    assert np.linalg.det(turn[:3, :3]) > 0


def test_glb_pyramids_and_lenses_are_those_of_the_cameras(tmp_path, exact):
    write_glb(exact, tmp_path / "scene.glb")
    content = (tmp_path / "scene.glb").read_bytes()
    magic, version, length, json_length, kind = struct.unpack("<4sIIII", content[:20])
    assert (magic, version, length, kind) == (b"glTF", 2, len(content), 0x4E4F534A) and json_length % 4 == 0
    gltf = json.loads(content[20 : 20 + json_length])
    data = content[28 + json_length :]
    assert len(data) == gltf["buffers"][0]["byteLength"]
    camera = exact.cameras[2]
    lens = next(k for k, node in enumerate(gltf["nodes"]) if node.get("camera") == 2)
    mesh = next(node["mesh"] for node in gltf["nodes"][1:] if lens in node.get("children", []))
    accessor = gltf["accessors"][gltf["meshes"][mesh]["primitives"][0]["attributes"]["POSITION"]]
    view = gltf["bufferViews"][accessor["bufferView"]]
    corners = np.frombuffer(data, "<f4", 15, view["byteOffset"]).reshape(5, 3) * [1, -1, -1]
    expected = [[0, 0], [640, 0], [640, 480], [0, 480]]
    np.testing.assert_allclose(camera.project(corners[1:]), expected, atol=0.01)
    perspective = gltf["cameras"][2]["perspective"]
    np.testing.assert_allclose(np.tan(perspective["yfov"] / 2), 240 / camera.focal_px[1])


def test_undistorted_cameras_see_the_same_rays_and_only_the_photo():
    camera = Camera(model="RADIAL", width=640, height=480, params=np.array([500.0, 331.0, 236.0, -0.12, 0.03]))
    plain = pinhole(camera)
    assert plain.model == "PINHOLE" and (plain.width, plain.height) == (640, 480)
    np.testing.assert_array_equal(plain.params[2:], [320, 240])
    assert 1 <= plain.params[0] / 500 < 1.2
    grid = np.stack(np.meshgrid(np.arange(641), np.arange(481)), axis=-1)
    seen = camera.project(plain.rays(grid))
    assert (seen > -1).all() and (seen < [641, 481]).all()
    assert min(seen.min(), (np.array([640, 480]) - seen).min()) < 5  # no more is cut off than necessary
    ramp = np.broadcast_to(np.arange(640) / 4, (480, 640))
    photo = np.repeat(ramp[..., None], 3, axis=2).round().astype(np.uint8)
    seen = warped(photo, camera, plain)  # the grey of a pixel tells its column
    wanted = (camera.project(plain.rays(grid[:-1, :-1] + 0.5))[..., 0] - 0.5) / 4
    assert np.abs(seen[..., 0] - wanted)[:, 2:-2].max() < 1.1
