"""Exports of dense depth: what a result with a small made-up dense folder becomes."""

import json

import numpy as np
import pytest
from exact_reconstruction import exact_reconstruction

from proba.errors import InputError
from proba.export import ExportOptions, export
from proba.io.dense_folder import DensePiece, DepthMap
from proba.io.pinhole import pinhole, resized
from proba.io.ply import read_ply, write_ply


@pytest.fixture
def dense(tmp_path):
    """A reconstruction, and a piece whose depth is 2 in the left half of every photo."""
    _, reconstruction = exact_reconstruction("object", 2)
    piece = DensePiece(tmp_path / "result", 0)
    depth = np.zeros((60, 80), np.float32)
    depth[:, :40] = 2.0
    normal = np.zeros((60, 80, 3), np.int8)
    normal[:, :40, 2] = -127
    for n, name in enumerate(reconstruction.image_names):
        camera = resized(pinhole(reconstruction.camera(n)), 80, 60)
        piece.write_depth(name, DepthMap(camera=camera, depth=depth, sigma=0.01 * depth, normal=normal))
    rng = np.random.default_rng(0)
    ball = rng.normal(size=(4000, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    write_ply(piece.cloud, ball, np.full(ball.shape, 90, np.uint8), np.full(len(ball), 0.01), ball)
    return reconstruction, piece


def test_points_and_gaussians_are_the_dense_ones(dense, tmp_path):
    reconstruction, piece = dense
    export(reconstruction, to="ply", out=tmp_path / "ply", dense=[piece])
    assert len(read_ply(tmp_path / "ply" / "points.ply")["xyz"]) == 4000
    export(
        reconstruction, to="ply", out=tmp_path / "few", dense=[piece], options=ExportOptions(max_points=100)
    )  # fmt: skip
    assert len(read_ply(tmp_path / "few" / "points.ply")["xyz"]) == 100
    export(reconstruction, to="ply", out=tmp_path / "own", dense=[piece], options=ExportOptions(sparse=True))
    assert len(read_ply(tmp_path / "own" / "points.ply")["xyz"]) == len(reconstruction.points.xyz)
    assert export(reconstruction, to="splat", out=tmp_path / "splat", dense=[piece]) == ["4000 Gaussians"]


def test_depth_is_zero_where_nothing_is_known_and_has_normals(dense, tmp_path):
    reconstruction, piece = dense
    export(reconstruction, to="depth", out=tmp_path / "out", dense=[piece], options=ExportOptions(density_px=8))
    entry = json.loads((tmp_path / "out" / "depth.json").read_text())["images"][reconstruction.image_names[0]]
    depth, sigma, normal = (np.load(tmp_path / "out" / entry[kind]) for kind in ("depth", "sigma", "normal"))
    assert depth.shape == (60, 80) and np.allclose(depth[:, 3:37], 2.0) and (depth[:, 43:] == 0).all()
    assert np.allclose(sigma[:, 3:37], 0.02) and np.allclose(normal[30, 20], [0, 0, -1])


def test_a_mesh_has_colours_and_no_triangles_far_from_points(dense, tmp_path):
    pytest.importorskip("pycolmap")
    trimesh = pytest.importorskip("trimesh")
    from proba.export.mesh import write_mesh

    _, piece = dense
    cloud = piece.read_cloud()
    kept = cloud.xyz[:, 2] > -0.3  # an open bowl: Poisson would close it
    cloud.xyz, cloud.rgb, cloud.normals, cloud.sigma = (
        values[kept] for values in (cloud.xyz, cloud.rgb, cloud.normals, cloud.sigma)
    )
    corners, triangles = write_mesh(cloud, tmp_path, octree_depth=5)
    for name in ("mesh.ply", "mesh.glb"):
        mesh = trimesh.load(tmp_path / name, force="mesh")
        assert len(mesh.vertices) == corners and len(mesh.faces) == triangles
        assert mesh.vertices[:, 2].min() > -0.7  # the opening stays open
        assert np.abs(np.linalg.norm(mesh.vertices, axis=1) - 1).max() < 0.2
        assert (mesh.visual.vertex_colors[:, :3] == 90).all()
    with pytest.raises(InputError, match="too few points"):
        cloud.normals[:] = 0
        write_mesh(cloud, tmp_path)
