"""Cameras and points as one binary glTF (.glb), for Blender, browsers and presentations.

Every camera is a glTF camera and, because many viewers do not draw those, a pyramid of lines. glTF is y up: a turn
of the root brings up the world's z, where that is known to be up, or else the axis that the cameras hold up.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

from proba.geometry.axes import OPENGL_FROM_OPENCV, camera_up
from proba.io.atomic import atomic_file
from proba.reconstruction import Camera, Reconstruction

FLOAT, UBYTE, USHORT, UINT = 5126, 5121, 5123, 5125
POINTS, LINES, TRIANGLES = 0, 1, 4
_JSON, _BIN = 0x4E4F534A, 0x004E4942
_PYRAMID = np.array([[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [2, 3], [3, 4], [4, 1]], np.uint16)


class _Buffer:
    """Collects arrays as glTF accessors."""

    def __init__(self) -> None:
        self.data = b""
        self.views: list[dict] = []
        self.accessors: list[dict] = []

    def add(self, values: np.ndarray, component: int, kind: str, **more: object) -> int:
        """Index of the accessor."""
        content = values.tobytes()
        self.views.append({"buffer": 0, "byteOffset": len(self.data), "byteLength": len(content)})
        self.data += content + b"\0" * (-len(content) % 4)
        count = len(values) if kind != "SCALAR" else values.size
        view = len(self.views) - 1
        self.accessors.append({"bufferView": view, "componentType": component, "count": count, "type": kind, **more})
        return len(self.accessors) - 1

    def positions(self, xyz: np.ndarray) -> int:
        values = np.ascontiguousarray(xyz, "<f4")
        return self.add(values, FLOAT, "VEC3", min=values.min(axis=0).tolist(), max=values.max(axis=0).tolist())

    def coloured(self, xyz: np.ndarray, rgb: np.ndarray) -> dict[str, int]:
        """Attributes of places [P, 3] with colours [P, 3] uint8."""
        rgba = np.column_stack([rgb, np.full(len(rgb), 255, np.uint8)]).astype(np.uint8)
        return {"POSITION": self.positions(xyz), "COLOR_0": self.add(rgba, UBYTE, "VEC4", normalized=True)}

    def described(self) -> dict:
        """What a glTF says of the data."""
        return {
            "accessors": self.accessors,
            "bufferViews": self.views,
            "buffers": [{"byteLength": len(self.data)}],
        }


def write_glb(reconstruction: Reconstruction, path: str | Path) -> None:
    """Write the points with their colours, and the cameras by name."""
    buffer = _Buffer()
    meshes: list[dict] = []
    nodes: list[dict] = [{"name": "reconstruction", "matrix": _column_major(y_up(reconstruction)), "children": []}]
    points = reconstruction.points
    if len(points.xyz):
        attributes = buffer.coloured(points.xyz, points.rgb)
        meshes.append({"name": "points", "primitives": [{"attributes": attributes, "mode": POINTS}]})
        nodes.append({"name": "points", "mesh": 0})
    lines = buffer.add(_PYRAMID, USHORT, "SCALAR")
    size = _frustum_depth(reconstruction)
    first_frustum = len(meshes)
    for camera in reconstruction.cameras:
        primitive = {"attributes": {"POSITION": buffer.positions(_frustum(camera, size))}, "indices": lines}
        meshes.append({"name": "camera", "primitives": [{**primitive, "mode": LINES}]})
    world_from_cam = reconstruction.world_from_cam @ OPENGL_FROM_OPENCV  # [N, 4, 4]
    nodes[0]["children"] = list(range(1, len(nodes))) + [len(nodes) + 2 * n for n in range(len(reconstruction))]
    for n, name in enumerate(reconstruction.image_names):
        index = int(reconstruction.camera_of_image[n])
        node = {"name": name, "mesh": first_frustum + index, "matrix": _column_major(world_from_cam[n])}
        nodes.append({**node, "children": [len(nodes) + 1]})  # some programs keep one of mesh and camera of a node
        nodes.append({"name": f"{name} camera", "camera": index})
    _write(
        Path(path),
        {
            "asset": {"version": "2.0", "generator": "proba"},
            "scene": 0,
            "scenes": [{"nodes": [0]}],
            "nodes": nodes,
            "meshes": meshes,
            "cameras": [_lens(camera, size) for camera in reconstruction.cameras],
            **buffer.described(),
        },
        buffer.data,
    )


def write_triangles(
    path: str | Path, corners: np.ndarray, rgb: np.ndarray, triangles: np.ndarray, turn: np.ndarray | None = None
) -> None:
    """Write a mesh of corners [V, 3] with colours [V, 3] uint8 and triangles [T, 3]; `turn` [4, 4] brings up to y."""
    buffer = _Buffer()
    primitive = {
        "attributes": buffer.coloured(corners, rgb),
        "indices": buffer.add(np.ascontiguousarray(triangles, "<u4"), UINT, "SCALAR"),
        "mode": TRIANGLES,
    }
    node = {"name": "surface", "mesh": 0, "matrix": _column_major(np.eye(4) if turn is None else turn)}
    content = {"scene": 0, "scenes": [{"nodes": [0]}], "nodes": [node], "meshes": [{"primitives": [primitive]}]}
    _write(
        Path(path), {"asset": {"version": "2.0", "generator": "proba"}, **content, **buffer.described()}, buffer.data
    )


def _write(path: Path, content: dict, data: bytes) -> None:
    """Header, JSON chunk, binary chunk; each chunk padded to four bytes."""
    text = json.dumps(content, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    with atomic_file(path) as file:
        file.write(struct.pack("<4sII", b"glTF", 2, 12 + 8 + len(text) + 8 + len(data)))
        file.write(struct.pack("<II", len(text), _JSON) + text)
        file.write(struct.pack("<II", len(data), _BIN) + data)


def _lens(camera: Camera, size: float) -> dict:
    """glTF knows no principal point and no distortion; the pyramids have the true shape."""
    yfov = 2 * float(np.arctan(camera.height / 2 / camera.focal_px[1]))
    perspective = {"yfov": yfov, "aspectRatio": camera.width / camera.height, "znear": size / 100}
    return {"type": "perspective", "perspective": perspective}


def _frustum(camera: Camera, size: float) -> np.ndarray:
    """Apex and the four image corners [5, 3] at depth `size`, OpenGL axes."""
    corners = np.array([[0, 0], [camera.width, 0], [camera.width, camera.height], [0, camera.height]], np.float64)
    return np.concatenate([np.zeros((1, 3)), size * camera.rays(corners) * [1, -1, -1]])


def _frustum_depth(reconstruction: Reconstruction) -> float:
    """Four tenths of the way from camera to nearest camera, typically; without a way a tenth of the cloud's extent."""
    centres = reconstruction.centres
    distance = np.linalg.norm(centres[:, None] - centres, axis=-1) + np.diag(np.full(len(centres), np.inf))  # [N, N]
    nearest = distance.min(axis=1)
    near = nearest[np.isfinite(nearest) & (nearest > 0)]
    if len(near):
        return 0.4 * float(np.median(near))
    xyz = reconstruction.points.xyz
    return 0.1 * float(np.ptp(xyz, axis=0).max()) if len(xyz) > 1 else 1.0


def y_up(reconstruction: Reconstruction) -> np.ndarray:
    """Turn [4, 4] that brings z, where that is up, or else the world axis nearest to the cameras' up to glTF's y."""
    up = np.array([0.0, 0.0, 1.0]) if reconstruction.up == "z" else camera_up(reconstruction.cam_from_world)
    axis = int(np.argmax(np.abs(up)))
    rows = np.zeros((3, 3))
    rows[1, axis] = np.sign(up[axis])
    rows[0, 1 if axis == 0 else 0] = 1.0
    rows[2] = np.cross(rows[0], rows[1])
    turn = np.eye(4)
    turn[:3, :3] = rows
    return turn


def _column_major(matrix: np.ndarray) -> list[float]:
    return matrix.T.ravel().tolist()
