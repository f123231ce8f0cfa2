"""What goes to a worker and comes back, or waits on disk: plain values and arrays as bytes, without pickles."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from proba.io.npz import read_npz, write_npz_to
from proba.io.reading import parse_json

_HEADER = "header"


def pack(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> bytes:
    """Plain values (as in JSON) and arrays as bytes; the same ones give the same bytes."""
    file = io.BytesIO()
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_npz_to(file, {**(arrays or {}), _HEADER: text})
    return file.getvalue()


def unpack(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The values and arrays; any exception means that the bytes are damaged."""
    arrays = read_npz(io.BytesIO(content))
    return parse_json(arrays.pop(_HEADER).tobytes()), arrays
