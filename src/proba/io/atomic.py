"""Files appear whole or not at all: no interruption and no full disk leaves half a result under its final name.

Everything is written by Python itself, through `atomic_file`: libraries that open files on their own (HDF5, COLMAP,
Pillow's encoders) overlook failed writes. What a failed write leaves is removed, and what was there before stays.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, NamedTuple

from proba.errors import InputError, StorageError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
UNSYNCABLE = {errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM}
"""What file systems and operating systems say that cannot flush a file or a folder at all."""


TODO_FILE = ".proba-unfinished.json"
TEMPORARY_PREFIX = ".proba-tmp-"


class _Written(NamedTuple):
    temporary: Path
    path: Path


class _Waiting:
    """What happens at the end of `all_or_nothing`."""

    def __init__(self) -> None:
        self.written: list[_Written] = []
        self.stale: list[Path] = []

    def finish(self) -> None:
        for written in self.written:
            _name(written)
        named = {written.path for written in self.written}
        for path in self.stale:
            if path not in named:
                remove(path)


_waiting: ContextVar[_Waiting | None] = ContextVar("waiting", default=None)


@contextmanager
def atomic_file(path: str | Path, *, errors_at_end: bool = False) -> Iterator[IO[bytes]]:
    """Yield a binary file; it takes the name `path` when all of it is on disk, and vanishes if anything fails.

    `errors_at_end` hides failed writes from whoever writes until the block is over: HDF5 crashes on them.
    """
    path = Path(path)
    with _temporary_beside(path) as temporary, _File(temporary, errors_at_end=errors_at_end) as raw:
        file = io.BufferedRandom(raw)
        try:
            yield file
            file.flush()
            raw.sync()
        except Exception as error:
            raise storage_error(raw.failure or error, path) or error from error
        finally:
            with suppress(OSError):  # told already
                file.close()
        if raw.failure is not None:
            raise storage_error(raw.failure, path) or raw.failure
        _name(_Written(temporary, path))


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Like `atomic_file`, but yields a temporary path, for libraries that want one: check what they wrote."""
    path = Path(path)
    with _temporary_beside(path) as temporary:
        yield temporary
        if not _is_link(temporary):
            with _File(temporary) as raw:
                raw.sync()
        _name(_Written(temporary, path))


@contextmanager
def all_or_nothing(folder: str | Path | None = None) -> Iterator[None]:
    """All files written in the block get their names together at its end, or none does.

    With the `folder` that they are in, a process that is killed while it names them leaves a list of what is still to
    be done there, and `finish_naming` does the rest.
    """
    if _waiting.get() is not None:
        yield  # part of a larger whole
        return
    if folder is not None:
        finish_naming(folder)
    waiting = _Waiting()
    token = _waiting.set(waiting)
    try:
        try:
            yield
        finally:
            _waiting.reset(token)
        todo = None if folder is None else Path(folder) / TODO_FILE
        if todo is not None:
            _write_todo(todo, waiting)
        waiting.finish()
        if todo is not None:
            todo.unlink(missing_ok=True)
    finally:
        for written in waiting.written:
            written.temporary.unlink(missing_ok=True)


@contextmanager
def at_once() -> Iterator[None]:
    """Files written in the block get their names at once, within `all_or_nothing` too: work to go on from."""
    token = _waiting.set(None)
    try:
        yield
    finally:
        _waiting.reset(token)


def finish_naming(folder: str | Path) -> None:
    """Do what a process left undone that was killed at the end of `all_or_nothing`. Every reader calls this first."""
    todo = Path(folder) / TODO_FILE
    if not todo.is_file():
        return
    try:
        content = json.loads(todo.read_text(encoding="utf-8"))
        waiting = _Waiting()
        for temporary, path in content["written"]:
            if os.path.lexists(_inside(todo.parent, temporary)):  # else it has its name already
                waiting.written.append(_Written(_inside(todo.parent, temporary), _inside(todo.parent, path)))
        waiting.stale = [_inside(todo.parent, path) for path in content["stale"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{todo} is damaged ({error}), and with it the result. Run again.") from error
    waiting.finish()
    todo.unlink(missing_ok=True)


def remove_leftovers(folder: str | Path) -> None:
    """Remove what killed processes left in a folder and below. Nobody else may be writing there."""
    finish_naming(folder)
    for path in Path(folder).rglob(f"{TEMPORARY_PREFIX}*"):
        path.unlink(missing_ok=True)


def _write_todo(todo: Path, waiting: _Waiting) -> None:
    def relative(path: Path) -> str:  # a link itself is named, not what it leads to
        return os.path.relpath(path.absolute(), todo.parent.absolute())

    written = [[relative(path) for path in both] for both in waiting.written]
    stale = [relative(path) for path in waiting.stale]
    atomic_write_text(todo, json.dumps({"written": written, "stale": stale}))


def _inside(folder: Path, name: str) -> Path:
    """A path that a list of what is to be done names. It cannot lead out of its folder."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is not in the folder")
    return folder / path


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there, now or at the end of `all_or_nothing`."""
    waiting = _waiting.get()
    if waiting is not None:
        waiting.stale.append(path)
    elif path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def atomic_write_text(path: str | Path, text: str) -> None:
    """Write a whole text file, UTF-8."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


def storage_error(error: BaseException, path: object) -> StorageError | None:
    """What to tell a user whose disk is full or broken; None if it is neither."""
    if isinstance(error, StorageError) or not isinstance(error, OSError):
        return None
    if error.errno in FULL:
        return StorageError(
            f"{path} cannot be written: no space left on its disk ({error.strerror}). Free some and run again (with "
            "--resume, where the command has it); what was there before is unchanged."
        )
    if error.errno == errno.EIO:
        return StorageError(f"{path} cannot be read or written: the disk reports an error. Use another one.")
    return None


class _File(io.FileIO):
    """A file without a public descriptor: libraries have to write through Python, where no failure is overlooked."""

    def __init__(self, path: Path, *, errors_at_end: bool = False):
        super().__init__(path, "r+")
        self.failure: OSError | None = None
        self._errors_at_end = errors_at_end

    def fileno(self) -> int:
        raise io.UnsupportedOperation("this file is written through Python alone")

    def write(self, data) -> int:
        if self.failure is not None and self._errors_at_end:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self.failure = self.failure or error
            if not self._errors_at_end:
                raise
            return memoryview(data).nbytes

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.failure = self.failure or error
            if not self._errors_at_end:
                raise
            return self.tell() if size is None else size

    def sync(self) -> None:
        _sync(super().fileno())


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    """An empty file in the folder of `path`, which is made if need be; removed at the end unless it was renamed."""
    if path.is_dir():
        raise InputError(f"{path} is a folder. Give the name of a file to write.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The suffix is kept because some writers choose their behaviour by it.
        handle, name = tempfile.mkstemp(
            prefix=f"{TEMPORARY_PREFIX}{path.stem[:40]}-", suffix=path.suffix, dir=path.parent
        )
    except OSError as error:
        error.filename = str(path)  # a name that the user knows
        raise storage_error(error, path) or error from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
    finally:
        waiting = _waiting.get()
        if waiting is None or all(temporary != written.temporary for written in waiting.written):
            temporary.unlink(missing_ok=True)


def _name(written: _Written) -> None:
    """Give a finished file its name, now or at the end of `all_or_nothing`."""
    waiting = _waiting.get()
    if waiting is not None:
        waiting.written.append(written)
        return
    if not _is_link(written.temporary):  # else it would be somebody else's file
        written.temporary.chmod(0o666 & ~_umask())  # mkstemp makes private files
    os.replace(written.temporary, written.path)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(written.path.parent, os.O_RDONLY)
        try:
            _sync(folder)
        finally:
            os.close(folder)


def _is_link(path: Path) -> bool:
    """Whether a file has other names too."""
    return path.is_symlink() or path.stat().st_nlink > 1


def _sync(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSYNCABLE:
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
