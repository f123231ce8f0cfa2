"""Reconstructions on disk: COLMAP's reading of our files is ours, and nothing is lost on the way."""

import json

import numpy as np
import pycolmap
import pytest
from scipy.spatial.transform import Rotation

from proba.errors import InputError
from proba.io.colmap import read_colmap, write_colmap
from proba.io.ply import read_ply, write_ply
from proba.io.reconstruction_folder import load_reconstruction, save_reconstruction
from proba.reconstruction import Camera, Edge, Note, Points, Reconstruction
from proba.synthetic import make_scene


@pytest.fixture
def reconstruction():
    """A synthetic scene, its points seen in every image that has them in frame."""
    scene = make_scene("object", n_images=6, seed=2, fov_deg=60)
    points = scene.sample_points(8, 6)
    rng = np.random.default_rng(0)
    obs = []
    for n in range(scene.n_images):
        pixels, _ = scene.project(n, points)
        inside = np.flatnonzero((pixels > 0).all(1) & (pixels < [640, 480]).all(1))
        obs += [(p, n, *pixels[p]) for p in inside]
    obs = np.array(obs)[rng.permutation(len(obs))]
    focal_px = scene.intrinsics[0, 0]
    return Reconstruction(
        image_names=[f"images/{name}" for name in scene.image_names],
        cameras=[
            Camera(
                model="PINHOLE",
                width=640,
                height=480,
                params=scene.intrinsics[0],
                focal_std_px=1.5,
                params_std=np.array([1.5, 1.6, 0.0, 0.2]),
            ),
            Camera(model="SIMPLE_RADIAL", width=640, height=480, params=np.array([focal_px, 320.0, 240.0, 0.0])),
        ],
        camera_of_image=np.array([0, 1, 0, 1, 0, 1]),
        cam_from_world=scene.cam_from_world,
        pose_std=rng.uniform(0, 1, (6, 6)),
        points=Points(
            xyz=points,
            rgb=rng.integers(0, 256, points.shape).astype(np.uint8),
            sigma=rng.uniform(0, 1, len(points)),
            error_px=rng.uniform(0, 1, len(points)),
            obs_point=obs[:, 0].astype(int),
            obs_image=obs[:, 1].astype(int),
            obs_xy=obs[:, 2:].astype(np.float32),
        ),
        log_depth=rng.normal(size=(6, 4, 4)).astype(np.float32),
        log_variance=rng.normal(size=(6, 4, 4)).astype(np.float32),
        edges=[Edge(i="a", j="b", matches=3, weight=0.5, explainable=0.9, explained=0.8)],
        notes=[Note(kind="rough poses", text="a note", advice="look", images=("a", "b"), numbers={"px": 1.5})],
    )


def test_colmap_projects_our_points_to_our_pixels(tmp_path, reconstruction):
    write_colmap(reconstruction, tmp_path)
    model = pycolmap.Reconstruction(str(tmp_path))
    assert sorted(model.images) == [1, 2, 3, 4, 5, 6] and sorted(model.cameras) == [1, 2]
    assert model.images[3].name == "images/002.png" and model.images[2].camera_id == 2
    checked = 0
    for point_id, point in model.points3D.items():
        np.testing.assert_allclose(point.xyz, reconstruction.points.xyz[point_id - 1])
        for element in point.track.elements:
            image = model.images[element.image_id]
            observed = image.points2D[element.point2D_idx].xy
            projected = image.project_point(point.xyz)
            np.testing.assert_allclose(projected, observed, atol=1e-3)
            checked += 1
    assert checked == len(reconstruction.points.obs_point) > 500


def test_a_known_point_lands_on_a_known_pixel(tmp_path, reconstruction):
    """Independent of the synthetic camera code: by hand, in the corner0.5 convention."""
    reconstruction.cam_from_world[0] = np.eye(4)
    reconstruction.cam_from_world[0, :3, :3] = Rotation.from_euler("z", 90, degrees=True).as_matrix()
    reconstruction.cam_from_world[0, :3, 3] = [0.0, 0.0, 1.0]
    reconstruction.cameras[0].params = np.array([100.0, 200.0, 320.0, 240.0])
    write_colmap(reconstruction, tmp_path)
    image = pycolmap.Reconstruction(str(tmp_path)).images[1]
    # (1, 0, 3) turns to (0, 1, 3), shifts to (0, 1, 4): v = 240 + 200 / 4.
    np.testing.assert_allclose(image.project_point(np.array([1.0, 0.0, 3.0])), [320.0, 290.0], atol=1e-9)


def assert_same(one, other):
    assert one.image_names == other.image_names
    np.testing.assert_array_equal(one.camera_of_image, other.camera_of_image)
    np.testing.assert_allclose(one.cam_from_world, other.cam_from_world, atol=1e-12)
    for a, b in zip(one.cameras, other.cameras, strict=True):
        assert (a.model, a.width, a.height) == (b.model, b.width, b.height)
        np.testing.assert_allclose(a.params, b.params)
    for name in ("xyz", "rgb", "error_px"):
        np.testing.assert_allclose(getattr(one.points, name), getattr(other.points, name))

    def observations(points):
        return sorted(zip(points.obs_point.tolist(), points.obs_image.tolist(), points.obs_xy.tolist(), strict=True))

    assert observations(one.points) == observations(other.points)


def test_colmap_round_trip(tmp_path, reconstruction):
    write_colmap(reconstruction, tmp_path)
    assert_same(reconstruction, read_colmap(tmp_path))
    pycolmap.Reconstruction(str(tmp_path)).write_text(str(tmp_path))
    for file in tmp_path.glob("*.bin"):
        file.unlink()
    assert_same(reconstruction, read_colmap(tmp_path))


def test_folder_round_trip(tmp_path, reconstruction):
    save_reconstruction([reconstruction, reconstruction, reconstruction], tmp_path)
    save_reconstruction([reconstruction, reconstruction], tmp_path)
    loaded = load_reconstruction(tmp_path)
    assert len(loaded) == 2
    for other in loaded:
        assert_same(reconstruction, other)
        for name in ("pose_std", "log_depth", "log_variance"):
            np.testing.assert_array_equal(getattr(reconstruction, name), getattr(other, name))
        np.testing.assert_array_equal(reconstruction.points.sigma, other.points.sigma)
        assert other.cameras[0].focal_std_px == 1.5 and np.isnan(other.cameras[1].focal_std_px)
        assert other.cameras[0].params_std.tolist() == [1.5, 1.6, 0.0, 0.2] and other.cameras[1].params_std is None
        assert other.edges == reconstruction.edges and other.notes == reconstruction.notes
    cloud = read_ply(tmp_path / "points.ply")
    np.testing.assert_allclose(cloud["xyz"], reconstruction.points.xyz, rtol=1e-6)
    np.testing.assert_array_equal(cloud["rgb"], reconstruction.points.rgb)
    (tmp_path / "maps.npz").write_bytes(b"PK half")
    with pytest.raises(InputError, match="damaged"):
        load_reconstruction(tmp_path)


def test_maps_of_a_world_that_fell_apart_can_be_read_back(tmp_path, reconstruction):
    reconstruction.log_depth = np.full((len(reconstruction), 4, 4), 2.0, np.float32)
    reconstruction.log_variance = np.zeros((len(reconstruction), 4, 4), np.float32)
    reconstruction.log_depth[0], reconstruction.log_variance[0] = 115.0, 230.0
    save_reconstruction([reconstruction], tmp_path)
    (again,) = load_reconstruction(tmp_path)
    assert again.log_depth[0].min() == again.log_variance[0].min() == 80
    assert (again.log_depth[1:] == 2).all()


def test_edges_and_notes_of_older_files_are_read(tmp_path, reconstruction):
    save_reconstruction([reconstruction], tmp_path)
    with np.load(tmp_path / "maps.npz") as file:
        arrays = dict(file)
    arrays["edges_0"] = np.array(json.dumps([{"i": "a", "j": "b", "matches": 3, "weight": 0.5}]))
    arrays["notes_0"] = np.array(json.dumps(["poses of a are rough; leave them out", "careful"]))
    np.savez(tmp_path / "maps.npz", **arrays)
    (loaded,) = load_reconstruction(tmp_path)
    (edge,) = loaded.edges
    assert (edge.i, edge.j, edge.matches, edge.weight) == ("a", "b", 3, 0.5)
    assert np.isnan(edge.explainable) and np.isnan(edge.explained)
    assert loaded.notes == [
        Note(kind="other", text="poses of a are rough", advice="leave them out"),
        Note(kind="other", text="careful"),
    ]
    arrays["edges_0"] = np.array(json.dumps([{"i": "a"}]))
    np.savez(tmp_path / "maps.npz", **arrays)
    with pytest.raises(InputError, match="damaged"):
        load_reconstruction(tmp_path)


def test_folders_without_a_model_are_refused(tmp_path):
    with pytest.raises(InputError, match="sparse/0"):
        load_reconstruction(tmp_path)
    with pytest.raises(InputError, match="COLMAP"):
        read_colmap(tmp_path)
    for name in ("cameras.bin", "images.bin", "points3D.bin"):
        (tmp_path / name).write_bytes(b"half")
    with pytest.raises(InputError, match="again"):
        read_colmap(tmp_path)


def test_ply_round_trip_and_refusals(tmp_path):
    rng = np.random.default_rng(0)
    xyz, normals = rng.normal(size=(2, 20, 3)).astype(np.float32)
    rgb, sigma = rng.integers(0, 256, (20, 3)).astype(np.uint8), rng.uniform(size=20).astype(np.float32)
    write_ply(tmp_path / "full.ply", xyz, rgb, sigma, normals)
    cloud = read_ply(tmp_path / "full.ply")
    for key, value in (("xyz", xyz), ("rgb", rgb), ("sigma", sigma), ("normals", normals)):
        np.testing.assert_array_equal(cloud[key], value)
    write_ply(tmp_path / "bare.ply", xyz)
    assert set(read_ply(tmp_path / "bare.ply")) == {"xyz"}
    (tmp_path / "cut.ply").write_bytes((tmp_path / "full.ply").read_bytes()[:-5])
    (tmp_path / "other.ply").write_bytes(b"ply\nformat ascii 1.0\nelement vertex 0\nend_header\n")
    with pytest.raises(InputError, match="half-written"):
        read_ply(tmp_path / "cut.ply")
    with pytest.raises(InputError, match="little-endian"):
        read_ply(tmp_path / "other.ply")
