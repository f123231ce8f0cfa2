"""Files appear whole or not at all: an interrupted run never leaves half a result under its final name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proba.errors import InputError


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it takes that name at the end, and vanishes if the block raises."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path} is a folder. Give the name of a file to write.")
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix is kept because writers such as np.savez choose their behaviour by it.
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        error.filename = str(path)  # a name that the user knows
        raise
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush_to_disk(temporary)
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes private files
        os.replace(temporary, path)
        _flush_to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write_text(path: str | Path, text: str) -> None:
    """Write a whole text file, UTF-8."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _flush_to_disk(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        return  # Windows opens no folders; the rename itself is still atomic
    try:
        os.fsync(handle)
    except OSError:
        pass  # nor do some file systems flush them
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
