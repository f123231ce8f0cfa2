"""Work in processes of their own that can be killed.

They are forked from a server that has loaded the libraries, so that a moment at random falls into the work and not into
the seconds before it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time

from proba.cli import main

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["killing", *(f"proba.cli.{name}" for name in ("run", "match", "align", "export", "dense"))]
)


def command(*argv: str, kill_after: float | None = None) -> float:
    """Run a command; it must work if it is left alone. Returns its seconds."""
    begin = time.monotonic()
    with tempfile.NamedTemporaryFile() as output:
        process = SERVER.Process(target=_work, args=(argv, output.name))
        process.start()
        process.join(kill_after)
        if process.is_alive():
            process.kill()
            process.join()
        elif process.exitcode:
            raise AssertionError(output.read().decode())
    return time.monotonic() - begin


def _work(argv: tuple[str, ...], output: str) -> None:
    """All that libraries print goes to the file, too."""
    file = os.open(output, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(file, stream.fileno())
    main(list(argv))
