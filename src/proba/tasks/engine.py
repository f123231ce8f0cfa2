"""What runs the parts of a large job. A part is a function of this package and bytes; its result is bytes as well.

So a part means the same wherever it runs, and a worker is handed neither objects nor code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from proba.errors import InputError, ProbaError

Work = Callable[[bytes], bytes]
"""A function at the top of a module of this package."""


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """Who does the work."""

    workers: int | None = None
    """Processes on this machine; None: the work is done in this one."""
    cluster: str | None = None
    """Address of a Dask scheduler, e.g. tcp://10.0.0.1:8786, whose workers do the work."""
    threads: int | None = None
    """Processor threads of each worker; None: those of this machine divided among local ones, all of the machine of
    each other one."""
    memory: float | None = None
    """Gigabytes that each worker may hold; None: four fifths of what its machine has left, divided among local ones."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.cluster is not None:
            raise InputError("Give --workers or --cluster, not both.")
        if self.workers is not None and self.workers < 1:
            raise InputError(f"--workers must be at least 1, not {self.workers}.")

    @property
    def elsewhere(self) -> bool:
        """Whether the work leaves this process."""
        return self.workers is not None or self.cluster is not None


class TaskError(ProbaError):
    """The workers or their scheduler cannot go on; what is finished is on disk."""


class Part(NamedTuple):
    """A part that is done."""

    number: int
    """Which of the payloads it belongs to."""
    result: bytes


class Engine(Protocol):
    """Runs parts of a job."""

    @property
    def at_a_time(self) -> int:
        """Parts that run at the same time now."""

    def each(self, work: Work, payloads: Iterable[bytes]) -> Iterator[Part]:
        """The results as they come. Of the payloads only a few more than can run at a time are asked for ahead."""

    def see(self, folder: Path) -> bool:
        """Whether everyone who works for this engine sees this folder under this path."""

    def give(self, name: str, files: Iterable[tuple[str, Path]]) -> None:
        """Hand files, by their names, to everyone once; `proba.tasks.worker.given(name)` is where they are."""


class InProcess:
    """One part after the other, here."""

    at_a_time = 1

    def each(self, work: Work, payloads: Iterable[bytes]) -> Iterator[Part]:
        for number, payload in enumerate(payloads):
            yield Part(number, work(payload))

    def see(self, folder: Path) -> bool:
        return folder.is_dir()

    def give(self, name: str, files: Iterable[tuple[str, Path]]) -> None:
        raise NotImplementedError("whoever works in this process sees all its files")
