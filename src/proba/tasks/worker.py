"""The worker's side: checks that it is of the same version, and keeps the files that were handed to it."""

from __future__ import annotations

import os
import tarfile
import threading
from importlib import import_module
from pathlib import Path

from proba._version import __version__
from proba.tasks.engine import Work

OTHER_VERSION = "other version:"
"""What the answer of a worker begins with that has another version; no result does."""
_lock = threading.Lock()


def name_of(work: Work) -> str:
    """A function of this package as workers find it."""
    assert work.__module__.startswith("proba."), "only functions of this package are known to all workers"
    return f"{work.__module__}:{work.__qualname__}"


def perform(version: str, name: str, payload: bytes, threads: int | None, memory: float | None) -> bytes | str:
    """Do one part of a job on a worker. The answer is text where the worker has another version than the job."""
    if version != __version__:
        return f"{OTHER_VERSION} {__version__}"
    from proba.memory import set_memory  # these two load libraries that the first answer can do without
    from proba.threads import set_threads

    set_threads(threads)
    set_memory(memory)
    module, _, function = name.partition(":")
    if not module.startswith("proba."):
        raise ValueError(f"{name} is no function of this package")
    return getattr(import_module(module), function)(payload)


def version() -> str:
    """Of this worker."""
    return __version__


def sees(folder: str, token: str) -> bool:
    """Whether this worker sees a folder with a certain file, however the folder is called elsewhere."""
    return (Path(folder) / token).is_file()


def scratch() -> Path:
    """A folder of this worker alone, which goes when the worker goes."""
    from distributed import get_worker

    return Path(get_worker().local_directory)


def given(name: str) -> Path:
    """The folder of files that was handed to all workers under this name; unpacked once."""
    folder = scratch() / f"given-{name}"
    with _lock:
        if not folder.is_dir():
            unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
            for archive in sorted(scratch().glob(f"{name}-*.tar")):
                with tarfile.open(archive) as content:
                    content.extractall(unfinished, filter="data")
                archive.unlink()
            unfinished.rename(folder)
    return folder
