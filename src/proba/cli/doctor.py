"""`proba doctor`: what works on this machine, and how fast."""

from __future__ import annotations

from proba.bench.doctor import as_markdown, examine
from proba.threads import set_threads


def main(
    threads: int | None = None,
) -> None:
    """Say what works on this machine and how fast: versions, matchers, kernel and solver, the GPU.

    Prints a block that can be pasted into an issue. Nothing on it names files, folders or the machine.

    Args:
        threads: Processor threads; all by default.
    """
    set_threads(threads)
    print(as_markdown(examine()))
