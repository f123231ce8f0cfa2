"""How much memory this process has needed, and how much it may hold."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proba.errors import InputError

GB = 10**9
PROGRAM_BYTES = GB // 2  # Python with its libraries and the compiled kernels
DEFAULT_SHARE = 0.8  # of what the machine has left: other programs need some as well
_chosen: float | None = None  # gigabytes, as the user gave it


def set_memory(gigabytes: float | None) -> None:
    """What this process may hold; None: a share of what the machine has left."""
    global _chosen
    if gigabytes is not None and not 0 < gigabytes < float("inf"):
        raise InputError(f"--memory must be a positive number of gigabytes, not {gigabytes:g}.")
    _chosen = gigabytes


def allowed_bytes() -> int:
    """What the data of a run may hold, beside the program itself."""
    return max(0, int(_total_bytes()) - PROGRAM_BYTES)


def _total_bytes() -> float:
    return DEFAULT_SHARE * available_bytes() if _chosen is None else _chosen * GB


def require(need_bytes: float, work: str, advice: str) -> None:
    """Refuse work that cannot fit, before it begins."""
    need, have = need_bytes + PROGRAM_BYTES, _total_bytes()
    if need > have:
        raise InputError(f"{work} needs {need / GB:.2f} GB of memory, {have / GB:.2f} GB are allowed. {advice}")


def available_bytes() -> int:
    """What the machine, or the container that this runs in, has left."""
    left = [_machine_bytes()]
    with suppress(OSError, ValueError):  # no limit, or no container
        limit, used = (int(Path("/sys/fs/cgroup", name).read_text()) for name in ("memory.max", "memory.current"))
        left.append(limit - used)
    return max(0, min(left))


def _machine_bytes() -> int:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    if sys.platform == "win32":
        import psutil

        return psutil.virtual_memory().available
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Budget:
    """Lets work begin as long as all that is under way fits; what is larger than everything runs alone."""

    def __init__(self, total_bytes: float):
        self.total = total_bytes
        self._held = 0.0
        self._freed = threading.Condition()

    @contextmanager
    def take(self, need_bytes: float) -> Iterator[None]:
        """Wait until there is room."""
        with self._freed:
            self._freed.wait_for(lambda: not self._held or self._held + need_bytes <= self.total)
            self._held += need_bytes
        try:
            yield
        finally:
            with self._freed:
                self._held -= need_bytes
                self._freed.notify_all()


def peak_rss_mb() -> float:
    """Largest resident memory of this process so far."""
    if sys.platform == "win32":  # which has no `resource`
        import psutil

        return psutil.Process().memory_info().peak_wset / 1024**2
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024**2
