"""Reading files that others wrote: whatever is wrong with one becomes one line that says what to do."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from proba.errors import InputError, ProbaError

LARGEST_RATIO = 100
"""A file may ask for this many times its own size; real maps and matches compress by less than ten."""
SMALL_BYTES = 64 << 20
"""What every file may ask for."""
MAX_SIDE_PX = 1 << 20
MAX_COORDINATE = 1e12
"""Of a place in a world or an image: squares of its distances stay exact enough to compare."""
LARGEST_NUMBER = 1e300  # JSON has whole numbers without end
LONGEST_REASON = 200
DEEPEST_JSON = 100
"""Levels of lists and objects in a JSON file; ours have fewer than ten."""


@contextmanager
def reading(path: object, what: str, advice: str) -> Iterator[None]:
    """Turn any failure in the block into an InputError: "PATH is not WHAT (reason). ADVICE".

    Libraries answer damaged files with every kind of exception there is, so all of them are caught, and the original
    one is kept as the cause. Only parsing and checking belong into the block.
    """
    try:
        yield
    except ProbaError:
        raise
    except Exception as error:
        raise InputError(f"{path} is not {what} ({_reason(error)}). {advice}") from error


def _reason(error: Exception) -> str:
    told = f"{error.strerror or error}" if isinstance(error, OSError) else str(error)
    if isinstance(error, KeyError):
        told = f"{error.args[0] if error.args else error} is missing"
    if isinstance(error, MemoryError):
        told = "it asks for more memory than there is"
    return " ".join(told.split())[:LONGEST_REASON] or type(error).__name__


def parse_json(text: str | bytes) -> Any:
    """The content of a JSON text; ValueError also for text that is nested absurdly deep."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    _check_depth(content)
    return content


def read_json(path: Path) -> Any:
    """The content of a JSON file; OSError or ValueError says what is wrong with it."""
    return parse_json(path.read_text(encoding="utf-8"))


def _check_depth(content: Any) -> None:
    """Whoever writes such content again, or walks through it, would run out of stack."""
    level = [content]
    for _ in range(DEEPEST_JSON):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise ValueError("it is nested too deep")


class Allowance:
    """How many bytes a file may still ask for: a bounded multiple of its own size."""

    def __init__(self, source: Path | int):
        size = source if isinstance(source, int) else source.stat().st_size  # bytes
        self.left = SMALL_BYTES + LARGEST_RATIO * size

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise ValueError("it asks for far more memory than its size")


def whole_numbers(values: np.ndarray, what: str, low: int, high: int) -> np.ndarray:  # int64
    """Whole numbers within bounds, whatever type they are stored as."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all() or (array != np.floor(array)).any():
        raise ValueError(f"{what} should be whole numbers")
    if array.size and not (low <= array.min() and array.max() <= high):
        raise ValueError(f"{what} should be between {low} and {high}")
    return array.astype(np.int64)


def whole_number(value: object, what: str, low: int, high: int) -> int:
    """One whole number within bounds."""
    number = real_number(value, what)
    if number != math.floor(number) or not low <= number <= high:
        raise ValueError(f"{what} is {number:g}, not a whole number between {low} and {high}")
    return int(number)


def real_number(value: object, what: str) -> float:
    """One finite number."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"{what} is {value!r}, not a number"[:200])
    number = float(np.clip(value, -LARGEST_NUMBER, LARGEST_NUMBER)) if isinstance(value, int) else float(value)
    if not abs(number) < LARGEST_NUMBER:
        raise ValueError(f"{what} is not finite")
    return number
