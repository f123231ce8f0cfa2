"""Arrays in one file (npz), without pickles and without trust in what the file says of its own size."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from proba.io.atomic import atomic_file
from proba.io.reading import Allowance


def write_npz(path: str | Path, arrays: Mapping[str, np.ndarray], *, compress: bool = False) -> None:
    """Write arrays by name; the file appears whole or not at all."""
    with atomic_file(path) as file:
        write_npz_to(file, arrays, compress=compress)


def write_npz_to(file: IO[bytes], arrays: Mapping[str, np.ndarray], *, compress: bool = False) -> None:
    """Write arrays by name to an open file; numpy gives its entries a fixed date, so the bytes repeat."""
    (np.savez_compressed if compress else np.savez)(file, **arrays)  # type: ignore[arg-type]


def read_npz(source: str | Path | io.BytesIO) -> dict[str, np.ndarray]:
    """All arrays by name. Any exception means that the file is damaged or hostile."""
    size = len(source.getbuffer()) if isinstance(source, io.BytesIO) else Path(source).stat().st_size
    with zipfile.ZipFile(source) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        Allowance(size).take(sum(member.file_size for member in members))
        return {member.filename.removesuffix(".npy"): _read_array(archive, member) for member in members}


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        version = np.lib.format.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{member.filename} has the unknown version {version}")
        headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, columns_first, dtype = headers[version](file)
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds Python objects")
        size = math.prod(shape) * dtype.itemsize
        if not 0 <= size <= member.file_size or min(shape, default=0) < 0:
            raise ValueError(f"{member.filename} promises more than it holds")
        content = bytearray(file.read(size))  # writable, unlike bytes
        if len(content) < size or file.read(1):  # the end is also where the checksum is compared
            raise ValueError(f"{member.filename} is longer or shorter than it says")
    if dtype.itemsize == 0:
        return np.zeros(shape, dtype)
    return np.frombuffer(content, dtype).reshape(shape, order="F" if columns_first else "C")
