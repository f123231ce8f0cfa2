"""A Dask scheduler and its workers as processes of their own, as a user would start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from proba.tasks import WorkerOptions

SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
WORKER = "from distributed.cli.dask_worker import main; main()"
OLDER = f"import proba._version; proba._version.__version__ = '0.0.1'; {WORKER}"
SECONDS = 120


class Cluster:
    """Ends with the block that it is made for."""

    def __init__(self, folder: Path, workers: int, *, code: str = WORKER):
        self.folder = folder
        self.file = folder / "scheduler.json"
        options = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file)]
        self.scheduler = self._start(SCHEDULER, options)
        until = time.monotonic() + SECONDS
        while not self.file.exists() or not self.file.read_text().endswith("}"):  # it is written bit by bit
            assert time.monotonic() < until and self.scheduler.poll() is None
            time.sleep(0.1)
        self.address = json.loads(self.file.read_text())["address"]
        self.workers = [self.add(code) for _ in range(workers)]

    def add(self, code: str = WORKER) -> subprocess.Popen:
        options = [self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"]
        return self._start(code, [*options, "--local-directory", str(self.folder)])

    @property
    def options(self) -> WorkerOptions:
        return WorkerOptions(cluster=self.address, threads=1)

    def _start(self, code: str, options: list[str]) -> subprocess.Popen:
        quiet = subprocess.DEVNULL
        return subprocess.Popen(
            [sys.executable, "-c", code, *options], stdout=quiet, stderr=quiet, env=os.environ, cwd=self.folder
        )

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
