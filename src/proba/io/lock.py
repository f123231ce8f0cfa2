"""One process at a time writes to a folder."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from proba.errors import InputError

LOCK_FILE = ".proba-lock"


@contextmanager
def locked(folder: str | Path, name: str = LOCK_FILE) -> Iterator[None]:
    """Refuse a folder that another process writes to. The operating system lets go of it when the process ends.

    With another `name` something in the folder is locked alone.
    """
    path = Path(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with _opened(path) as file:
        if not _take(file):
            file.seek(0)
            raise InputError(f"{folder} is in use: {_holder(file.read())}. Wait for it, or give another --out.")
        _write_holder(file)
        try:
            yield
        finally:
            with suppress(OSError):  # Windows keeps open files
                path.unlink()


def _opened(path: Path) -> IO[str]:
    """The lock file, and not one that its holder has just removed."""
    while True:
        file = path.open("a+", encoding="utf-8")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
        file.close()


def _take(file: IO[str]) -> bool:
    """Whether the lock is ours now. Some network file systems have none, and then nobody is kept out."""
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            file.seek(_LOCKED_BYTE)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    except BlockingIOError:
        return False
    except OSError:
        return os.name == "posix"  # Windows says the same of a lock that is taken
    return True


_LOCKED_BYTE = 4096
"""Beyond the text: Windows lets nobody else read what is locked."""


def _write_holder(file: IO[str]) -> None:
    holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    with suppress(OSError):  # a full disk: only the message to others is poorer
        file.truncate(0)
        os.write(
            file.fileno(), json.dumps(holder).encode()
        )  # past the buffer, which would fail again when it is closed


def _holder(text: str) -> str:
    """Who holds a lock, from what it wrote."""
    try:
        holder = json.loads(text)
        return f"process {int(holder['pid'])} on {holder['host']} has written to it since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process writes to it"
