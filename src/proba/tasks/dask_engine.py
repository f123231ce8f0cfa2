"""Parts of a job on the workers of a Dask scheduler. The library stays unloaded until somebody asks for workers."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import tarfile
import tempfile
import uuid
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from proba._version import __version__
from proba.errors import InputError, ProbaError
from proba.io.atomic import atomic_write_text
from proba.tasks.engine import Part, TaskError, Work, WorkerOptions
from proba.tasks.worker import OTHER_VERSION, name_of, perform, sees, version

AHEAD = 2
"""Parts that wait at each worker beside the one that it works on, so that it never waits for the next."""
SECONDS_TO_CONNECT = 30
ARCHIVE_BYTES = 64 << 20
"""Files are handed over in archives of about this size."""
LOCAL = "127.0.0.1"
SAVED = "what is finished is on disk: run the same command with --resume to go on"


class DaskEngine:
    """Runs parts on Dask workers. A part whose worker dies runs again on another one."""

    def __init__(self, client: Any, options: WorkerOptions, threads: int | None):
        self.client, self.options, self.threads = client, options, threads
        self._given: list[str] = []
        self._same_version()

    @property
    def at_a_time(self) -> int:
        return max(1, sum(self.client.nthreads().values()))

    def each(self, work: Work, payloads: Iterable[bytes]) -> Iterator[Part]:
        from distributed import as_completed

        name = name_of(work)
        number_of: dict[str, int] = {}  # of the parts that are under way
        waiting, numbered = as_completed(loop=self.client.loop), enumerate(payloads)
        try:
            while True:
                with self._explained():
                    while len(number_of) < (1 + AHEAD) * self.at_a_time and (entry := next(numbered, None)):
                        number, payload = entry
                        future = self.client.submit(
                            perform, __version__, name, payload, self.threads, self.options.memory,
                            key=f"proba-{work.__name__}-{number}-{uuid.uuid4().hex}", pure=False,
                        )  # fmt: skip
                        number_of[future.key] = number
                        waiting.add(future)
                    if not number_of:
                        return
                    future = next(waiting)
                    failure = future.exception()
                if failure is not None:
                    raise self._told(failure) from failure
                yield Part(number_of.pop(future.key), _same(future.result(), "a worker"))
                future.release()
        finally:
            with suppress(Exception):  # the scheduler may be gone
                self.client.cancel(list(waiting.futures), force=True)

    def see(self, folder: Path) -> bool:
        """Tried with a file of an unlikely name: another machine may have a folder of the same path."""
        token = f".proba-seen-{secrets.token_hex(8)}"
        try:
            atomic_write_text(folder / token, "")
        except (ProbaError, OSError):  # photos may lie where nothing can be written; then a photo has to do
            token = next((path.name for path in sorted(folder.iterdir()) if path.is_file()), "")
            return bool(token) and all(self._asked(sees, str(folder), token).values())
        try:
            return all(self._asked(sees, str(folder), token).values())
        finally:
            (folder / token).unlink(missing_ok=True)

    def give(self, name: str, files: Iterable[tuple[str, Path]]) -> None:
        from distributed.diagnostics.plugin import UploadFile

        with tempfile.TemporaryDirectory(prefix="proba-") as folder, self._explained():
            for archive in _archives(Path(folder), name, files):
                plugin = f"proba-{uuid.uuid4().hex}"  # a worker that joins later gets it too
                self.client.register_plugin(UploadFile(str(archive), load=False), name=plugin)
                self._given.append(plugin)
                archive.unlink()

    def forget(self) -> None:
        """Take back from the scheduler what it keeps for new workers."""
        for plugin in self._given:
            with suppress(Exception):  # it may be gone
                self.client.unregister_worker_plugin(plugin)

    def _same_version(self) -> None:
        for address, found in self._asked(version).items():
            _same(found if found == __version__ else f"{OTHER_VERSION} {found}", f"the worker {address}")

    def _asked(self, function: Any, *arguments: Any) -> dict[str, Any]:
        """The answer of every worker that there is now, by its address."""
        try:
            with self._explained():
                self.client.wait_for_workers(1, timeout=SECONDS_TO_CONNECT)
                return self.client.run(function, *arguments)
        except (ImportError, AttributeError) as error:  # it has no ProBA, or an old one
            raise self._told(error) from error

    def _told(self, failure: BaseException) -> BaseException:
        """What a part has failed with, in one line where a user can mend it."""
        from distributed import KilledWorker

        if isinstance(failure, (ImportError, AttributeError)):
            return InputError(
                f"a worker cannot run ProBA {__version__} ({failure}); install that version where it runs"
            )
        if isinstance(failure, KilledWorker):
            return TaskError(
                f"{failure.allowed_failures + 1} workers died on one part of the work, perhaps for lack of memory; "
                f"give each more, or run fewer on a machine. {SAVED[0].upper()}{SAVED[1:]}"
            )
        return failure

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Dask's own errors as one line each."""
        from distributed import CancelledError
        from distributed.comm.core import CommClosedError

        try:
            yield
        except (CancelledError, CommClosedError, TimeoutError, OSError) as error:
            raise TaskError(f"the scheduler or all its workers are gone ({type(error).__name__}); {SAVED}") from error


def _same(result: Any, who: str) -> Any:
    """The result, unless it is the answer of a worker with another version."""
    if isinstance(result, str) and result.startswith(OTHER_VERSION):
        other = result.removeprefix(OTHER_VERSION).strip()
        raise InputError(
            f"{who} has ProBA {other}, but this is ProBA {__version__}; install the same version on all machines"
        )
    return result


def _archives(folder: Path, name: str, files: Iterable[tuple[str, Path]]) -> Iterator[Path]:
    """The files in uncompressed archives of a bounded size."""
    count, content, size = 0, None, 0
    for inner, path in files:
        if content is None:
            content = tarfile.open(folder / f"{name}-{count:06d}.tar", "w")  # noqa: SIM115
        content.add(path, arcname=inner, recursive=False)
        size += path.stat().st_size
        if size >= ARCHIVE_BYTES:
            content.close()
            yield folder / f"{name}-{count:06d}.tar"
            count, content, size = count + 1, None, 0
    if content is not None:
        content.close()
        yield folder / f"{name}-{count:06d}.tar"


@contextmanager
def dask_engine(options: WorkerOptions) -> Iterator[DaskEngine]:
    """An engine on local processes, or on the scheduler that the user has."""
    try:
        import distributed
    except ImportError:
        raise InputError("Workers need Dask: `pip install 'proba-sfm[cluster]'`.") from None
    logger = logging.getLogger("distributed")  # it would print pages about every lost connection
    before, logger.level = logger.level, logging.CRITICAL + 1
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="distributed")
            if options.cluster is not None:
                with _connected(distributed, options.cluster) as client:
                    engine = DaskEngine(client, options, options.threads)
                    try:
                        yield engine
                    finally:
                        engine.forget()
            else:
                with _local(distributed, options) as client:
                    yield DaskEngine(client, options, options.threads or _share(options.workers or 1))
    finally:
        logger.level = before


def _share(workers: int) -> int:
    """Processor threads of each of so many workers on this machine."""
    every = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, every // workers)


@contextmanager
def _connected(distributed: Any, address: str) -> Iterator[Any]:
    try:
        client = distributed.Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise InputError(
            f"there is no Dask scheduler at {address} ({type(error).__name__}); start one with `dask scheduler` and "
            "give the address that it prints"
        ) from error
    try:
        yield client
    finally:
        with suppress(Exception):
            client.close(timeout=5)


@contextmanager
def _local(distributed: Any, options: WorkerOptions) -> Iterator[Any]:
    """Processes on this machine, which nobody outside of it can reach. They end with this process."""
    scratch = tempfile.mkdtemp(prefix="proba-workers-")
    settings = {"distributed.worker.memory.terminate": False, "distributed.worker.memory.pause": False}
    try:
        import dask

        with dask.config.set(settings):
            cluster = distributed.LocalCluster(
                n_workers=options.workers,
                threads_per_worker=1,
                processes=True,
                host=LOCAL,
                dashboard_address=None,
                worker_dashboard_address=None,
                memory_limit=0,
                local_directory=scratch,
                silence_logs=logging.CRITICAL + 1,
            )
            with cluster, distributed.Client(cluster, set_as_default=False) as client:
                yield client
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
