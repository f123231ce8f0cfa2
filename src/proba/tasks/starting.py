"""Which engine does the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from proba.tasks.engine import Engine, InProcess, WorkerOptions


@contextmanager
def open_engine(options: WorkerOptions | None = None) -> Iterator[Engine]:
    """The engine that the user asked for: this process, workers on this machine, or those of a scheduler."""
    if options is None or not options.elsewhere:
        yield InProcess()
        return
    from proba.tasks.dask_engine import dask_engine  # loads libraries that come with an extra

    with dask_engine(options) as engine:
        yield engine
