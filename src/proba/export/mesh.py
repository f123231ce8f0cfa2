"""A surface of triangles with colours, by Poisson reconstruction (COLMAP's, in pycolmap) of a cloud with normals.

OUT/mesh.ply, OUT/mesh.glb

Poisson's surface is closed: it also spans what no photo shows. Triangles far from any point are taken away again.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from proba.errors import InputError, StorageError
from proba.export.glb import write_triangles
from proba.io.atomic import at_once, atomic_file
from proba.io.ply import write_ply
from proba.point_cloud import Cloud

DEPTH = 10
"""Of the octree: the longest side of the cloud is divided into 2^10 cells."""
FARTHEST = 4.0
"""Times the typical distance of neighbouring points: a corner of a triangle that is farther from every point goes."""
_FACE = np.dtype([("count", "<i4"), ("corners", "<i4", 3)])


def write_mesh(
    cloud: Cloud, folder: Path, *, turn: np.ndarray | None = None, octree_depth: int = DEPTH
) -> tuple[int, int]:
    """Write the mesh of a cloud; returns how many corners and triangles it has. `turn`: see `write_triangles`."""
    if importlib.util.find_spec("pycolmap") is None:
        raise InputError("A mesh needs pycolmap: `pip install 'proba-sfm[mesh]'`.")
    known = (np.linalg.norm(cloud.normals, axis=1) > 0.5) & np.isfinite(cloud.xyz).all(axis=1)
    if known.sum() < 100:
        raise InputError("The cloud has too few points with normals for a mesh. Run `proba dense` first.")
    xyz, rgb = cloud.xyz[known], cloud.rgb[known]
    corners, triangles = _poisson(xyz, rgb, cloud.normals[known], octree_depth)
    distance, nearest = cKDTree(xyz).query(corners)
    limit = FARTHEST * _spacing(xyz)
    triangles = triangles[(distance[triangles] < limit).all(axis=1)]
    used, triangles = np.unique(triangles, return_inverse=True)
    triangles = triangles.reshape(-1, 3).astype(np.int32)
    corners, colours = corners[used], rgb[nearest[used]]
    if not len(triangles):
        raise InputError("The cloud is too thin for a mesh. Run `proba dense` first.")
    _write_ply_mesh(folder / "mesh.ply", corners, colours, triangles)
    write_triangles(folder / "mesh.glb", corners, colours, triangles, turn)
    return len(corners), len(triangles)


def _spacing(xyz: np.ndarray) -> float:
    """Typical distance of neighbouring points."""
    some = xyz[:: max(1, len(xyz) // 20_000)]
    return float(np.median(cKDTree(xyz).query(some, k=4)[0][:, 3]))


def _poisson(xyz: np.ndarray, rgb: np.ndarray, normals: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Corners [V, 3] and triangles [T, 3] of the closed surface."""
    import pycolmap  # optional

    options = pycolmap.PoissonMeshingOptions()
    options.depth, options.trim = depth, 0.0
    with tempfile.TemporaryDirectory(prefix="proba-") as name:
        source, target = Path(name) / "cloud.ply", Path(name) / "mesh.ply"
        with at_once():  # COLMAP reads it now, not at the end of the export
            write_ply(source, xyz, rgb, None, normals)
        pycolmap.poisson_meshing(str(source), str(target), options)
        try:
            return _read_mesh(target)
        except (OSError, ValueError, StopIteration) as error:  # COLMAP overlooks failed writes
            raise StorageError(
                f"COLMAP's mesh in {name} is not whole: there is no space left on its disk. Free some and run again, "
                "or name another folder for temporary files with TMPDIR."
            ) from error


def _read_mesh(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Corners and triangles of a file that COLMAP's Poisson wrote."""
    data = path.read_bytes()
    header, _, body = data.partition(b"end_header\n")
    lines = [line.split() for line in header.decode("ascii").splitlines()]
    counts = [int(line[2]) for line in lines if line[0] == "element"]
    kinds = {"float": "<f4", "uchar": "u1", "int": "<i4"}
    first_face = next(k for k, line in enumerate(lines) if line[:2] == ["element", "face"])
    fields = [(line[2], kinds[line[1]]) for line in lines[:first_face] if line[0] == "property"]
    vertices = np.frombuffer(body, np.dtype(fields), counts[0])
    faces = np.frombuffer(body, _FACE, counts[1], offset=vertices.nbytes)
    return np.stack([vertices[axis] for axis in "xyz"], axis=1).astype(np.float64), faces["corners"].astype(np.int64)


def _write_ply_mesh(path: Path, corners: np.ndarray, rgb: np.ndarray, triangles: np.ndarray) -> None:
    vertex = np.empty(len(corners), np.dtype([("xyz", "<f4", 3), ("rgb", "u1", 3)]))
    vertex["xyz"], vertex["rgb"] = corners, rgb
    face = np.empty(len(triangles), np.dtype([("count", "u1"), ("corners", "<i4", 3)]))
    face["count"], face["corners"] = 3, triangles
    places = "".join(f"property float {axis}\n" for axis in "xyz")
    colours = "".join(f"property uchar {colour}\n" for colour in ("red", "green", "blue"))
    header = (
        f"ply\nformat binary_little_endian 1.0\nelement vertex {len(vertex)}\n{places}{colours}"
        f"element face {len(face)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    with atomic_file(path) as file:
        file.write(header.encode("ascii") + vertex.tobytes() + face.tobytes())
