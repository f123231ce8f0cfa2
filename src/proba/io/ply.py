"""Point clouds as binary little-endian PLY: position, and colour, sigma and normal where known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proba.errors import InputError
from proba.io.atomic import atomic_file

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "<i2", "int16": "<i2", "ushort": "<u2",
    "uint16": "<u2", "int": "<i4", "int32": "<i4", "uint": "<u4", "uint32": "<u4", "float": "<f4",
    "float32": "<f4", "double": "<f8", "float64": "<f8",
}  # fmt: skip
_NAMES = {"<f4": "float", "<f8": "double", "|u1": "uchar"}
_MAX_HEADER_LINES = 200


def write_ply(
    path: str | Path,
    xyz: np.ndarray,  # [P, 3]
    rgb: np.ndarray | None = None,  # [P, 3] uint8
    sigma: np.ndarray | None = None,  # [P]
    normals: np.ndarray | None = None,  # [P, 3]
) -> None:
    """Write one vertex a point: x y z, nx ny nz, red green blue, sigma; float32."""
    columns: list[tuple[str, str, np.ndarray]] = []
    for names, values, kind in (
        (("x", "y", "z"), xyz, "<f4"),
        (("nx", "ny", "nz"), normals, "<f4"),
        (("red", "green", "blue"), rgb, "|u1"),
        (("sigma",), sigma, "<f4"),
    ):
        if values is not None:
            table = np.asarray(values).reshape(len(xyz), len(names))
            columns += [(name, kind, table[:, k]) for k, name in enumerate(names)]
    write_vertices(path, columns)


def write_vertices(path: str | Path, columns: Sequence[tuple[str, str, np.ndarray]]) -> None:
    """Write any vertex properties: name, numpy type and values [P] of each."""
    count = len(columns[0][2])
    vertices = np.empty(count, np.dtype([(name, kind) for name, kind, _ in columns]))
    for name, _, values in columns:
        vertices[name] = values
    properties = "".join(f"property {_NAMES[kind]} {name}\n" for name, kind, _ in columns)
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {count}\n{properties}end_header\n"
    with atomic_file(path) as file:
        file.write(header.encode("ascii"))
        file.write(vertices.tobytes())


def read_ply(path: str | Path) -> dict[str, np.ndarray]:
    """The vertices: `xyz` [P, 3] float64, and where present `rgb` [P, 3], `sigma` [P], `normals` [P, 3]."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no point cloud {path}. Check the path.")
    with open(path, "rb") as file:
        count, dtype = _read_header(file, path)
        if not 0 <= count * dtype.itemsize <= path.stat().st_size - file.tell():
            raise InputError(f"{path} ends too early: it is half-written. Make it again.")
        data = file.read(count * dtype.itemsize)
    vertices = np.frombuffer(data, dtype, count)
    cloud = {}
    for key, names, kind in (
        ("xyz", ("x", "y", "z"), np.float64),
        ("rgb", ("red", "green", "blue"), np.uint8),
        ("normals", ("nx", "ny", "nz"), np.float64),
    ):
        if all(name in (dtype.names or ()) for name in names):
            cloud[key] = np.stack([vertices[name] for name in names], axis=1).astype(kind)
    if "xyz" not in cloud:
        raise InputError(f"{path} has no x, y, z. Give a point cloud.")
    if "sigma" in (dtype.names or ()):
        cloud["sigma"] = vertices["sigma"].astype(np.float64)
    return cloud


def _read_header(file, path: Path) -> tuple[int, np.dtype]:
    """Number of vertices and their layout; the file is left at the first vertex."""
    lines = []
    for _ in range(_MAX_HEADER_LINES):
        line = file.readline(4096).decode("ascii", "replace").split()
        if not line or line[0] == "end_header":
            break
        lines.append(line)
    if not lines or lines[0] != ["ply"] or ["format", "binary_little_endian", "1.0"] not in lines:
        raise InputError(f"{path} is no binary little-endian PLY file. Convert it, e.g. with meshlab or open3d.")
    elements = [k for k, line in enumerate(lines) if line[0] == "element"]
    if not elements or lines[elements[0]][1] != "vertex":
        raise InputError(f"{path} does not begin with its vertices. Save it as a plain point cloud.")
    end = elements[1] if len(elements) > 1 else len(lines)
    try:
        fields = [(line[2], _TYPES[line[1]]) for line in lines[elements[0] + 1 : end] if line[0] == "property"]
        dtype = np.dtype(fields)
        if not dtype.itemsize:
            raise ValueError("there are none")
        return int(lines[elements[0]][2]), dtype
    except (KeyError, IndexError, ValueError) as error:
        raise InputError(f"{path} has vertex properties that cannot be read ({error}).") from error
