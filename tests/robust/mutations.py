"""Damage, by a seed: what disks, networks, other programs and ill-meaning people do to files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HOSTILE_NAMES = [
    "../../../escaped.jpg", "/tmp/escaped.jpg", "C:\\escaped.jpg", "\\\\server\\escaped.jpg", "..\\..\\escaped.jpg", "",
    ".", "..", "two\nlines.jpg", "nul\0.jpg", "a" * 5000 + ".jpg", "\x1b[31mred.jpg", "bad\udcff.jpg",
]  # fmt: skip
"""Names that a file from elsewhere may give to its images."""
NUMBERS = [0, -1, 1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63, 2**64 - 1, 10**400, 1e-320, 1e38, 1e308, float("nan"),
           float("inf"), -float("inf"), 0.5, -0.0]  # fmt: skip
OTHERS = [None, True, "text", "", [], {}, [[]], {"a": 1}, "9" * 50]


def damaged_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three accidents to a file whose format is not known."""
    for _ in range(rng.integers(1, 4)):
        data = _BYTES[rng.integers(len(_BYTES))](data, rng)
    return data


def _place(data: bytes, rng: np.random.Generator, size: int = 1) -> int:
    """Headers are hit as often as the rest."""
    end = min(len(data), 256) if rng.random() < 0.5 else len(data)
    return int(rng.integers(0, max(1, end - size + 1)))


def _flip_bits(data: bytes, rng: np.random.Generator) -> bytes:
    out = bytearray(data)
    for _ in range(rng.integers(1, 9)):
        if out:
            out[_place(data, rng)] ^= 1 << rng.integers(8)
    return bytes(out)


def _overwrite(data: bytes, rng: np.random.Generator) -> bytes:
    values = [b"\0" * 8, b"\xff" * 8, b"\xff" * 4, b"\0\0\0\x80", struct.pack("<Q", 2**62), struct.pack("<d", np.nan),
              struct.pack("<I", 2**31), struct.pack("<d", 1e308), struct.pack("<d", -1.0), rng.bytes(4)]  # fmt: skip
    value = values[rng.integers(len(values))]
    at = _place(data, rng, len(value))
    return data[:at] + value + data[at + len(value) :]


def _truncate(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: _place(data, rng)]


def _remove(data: bytes, rng: np.random.Generator) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + int(rng.integers(1, 64)) :]


def _repeat(data: bytes, rng: np.random.Generator) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at : at + int(rng.integers(1, 64))] + data[at:]


def _append(data: bytes, rng: np.random.Generator) -> bytes:
    return data + rng.bytes(int(rng.integers(1, 64)))


_BYTES: list[Callable[[bytes, np.random.Generator], bytes]] = [
    _flip_bits, _flip_bits, _overwrite, _overwrite, _truncate, _remove, _repeat, _append,
]  # fmt: skip


def damaged_value(value: Any, rng: np.random.Generator) -> Any:
    """Another value in its place: an extreme, another type, a hostile name."""
    choices = [NUMBERS, OTHERS, HOSTILE_NAMES] if isinstance(value, str) else [NUMBERS, NUMBERS, OTHERS]
    chosen = choices[rng.integers(len(choices))]
    return chosen[rng.integers(len(chosen))]


def damaged_json(content: Any, rng: np.random.Generator) -> str:
    """The text of a JSON file of which something is another value, missing, doubled, or nested very deep."""
    content = json.loads(json.dumps(content))
    if rng.random() < 0.04:
        return "[" * 100_000 if rng.random() < 0.5 else '{"cameras":' + "[" * 5000 + "]" * 5000 + "}"
    for _ in range(rng.integers(1, 4)):
        _damage_somewhere(content, rng)
    return json.dumps(content)


def _damage_somewhere(content: Any, rng: np.random.Generator) -> None:
    node = content
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = keys[rng.integers(len(keys))]
        if isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.85:
            node = node[key]
            continue
        kind = rng.random()
        if kind < 0.15:
            del node[key]
        elif kind < 0.25 and isinstance(node, list):
            node.append(node[key])
        else:
            node[key] = damaged_value(node[key], rng)
        return


def damaged_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An array of another type, shape or with other values."""
    kind = rng.integers(7)
    with np.errstate(all="ignore"):
        if array.dtype.kind in "US":
            values = array.reshape(-1).astype(object)
            if len(values):
                values[rng.integers(len(values))] = HOSTILE_NAMES[rng.integers(len(HOSTILE_NAMES))].replace(
                    "\udcff", ""
                )
            text = np.array([str(value) for value in values]).reshape(array.shape)
            return text if kind else np.zeros(array.shape)
        if kind == 0:
            types = ["u1", "u8", "f2", "f8", "i1", "c8", "?", "U3", "S2", "M8[s]"]
            return array.astype(types[rng.integers(len(types))])
        if kind == 1:
            return array.reshape(-1)
        if kind == 2:
            return (
                array[..., None]
                if rng.random() < 0.5
                else np.concatenate([array, array], axis=-1)
                if array.ndim
                else array
            )
        if kind == 3:
            return array[: rng.integers(0, len(array) + 1)] if array.ndim else array
        if kind == 4:
            return np.zeros((0,) * max(1, array.ndim), array.dtype)
        values = array.copy().reshape(-1)
        for _ in range(rng.integers(1, 4)):
            if len(values):
                number = NUMBERS[rng.integers(len(NUMBERS))]
                try:
                    values[rng.integers(len(values))] = number
                except (OverflowError, ValueError):
                    values[rng.integers(len(values))] = -1 if array.dtype.kind != "u" else 0
        return values.reshape(array.shape)


def damaged_table(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Arrays by name of which one is damaged, missing, or under another's name."""
    arrays = dict(arrays)
    names = sorted(arrays)
    for _ in range(rng.integers(1, 3)):
        name = names[rng.integers(len(names))]
        kind = rng.random()
        if kind < 0.1:
            arrays.pop(name, None)
        elif kind < 0.2:
            arrays[name] = arrays.get(names[rng.integers(len(names))], np.zeros(3))
        elif name in arrays:
            arrays[name] = damaged_array(arrays[name], rng)
    return arrays


def snapshot(folder: Path, *, without: Path | None = None) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder with its content, except below `without`."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and (without is None or not path.is_relative_to(without))
    }
