"""How much memory this process has needed."""

from __future__ import annotations

import sys


def peak_rss_mb() -> float:
    """Largest resident memory of this process so far."""
    if sys.platform == "win32":  # which has no `resource`
        import psutil

        return psutil.Process().memory_info().peak_wset / 1024**2
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1024 if sys.platform != "darwin" else peak / 1024**2
