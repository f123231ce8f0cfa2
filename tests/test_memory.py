"""Memory, and what only some systems have."""

import subprocess
import sys
from types import SimpleNamespace

from proba.memory import peak_rss_mb

WITHOUT_POSIX = """
import builtins, importlib, pkgutil, sys
whole = builtins.__import__

def on_windows(name, globals=None, *rest, **more):
    if name in ("resource", "fcntl", "termios", "pwd") and (globals or {}).get("__name__", "").startswith("proba"):
        raise ImportError(f"no module named {name} on this system")
    return whole(name, globals, *rest, **more)

builtins.__import__ = on_windows
import proba
names = [module.name for module in pkgutil.walk_packages(proba.__path__, "proba.") if "__main__" not in module.name]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def test_peak_memory_holds_what_was_freed():
    lines = "import numpy; from proba.memory import peak_rss_mb; numpy.ones(75_000_000); print(peak_rss_mb())"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True)
    assert 600e6 / 1024**2 < float(done.stdout) < 2000


def test_peak_memory_on_windows(monkeypatch):
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(peak_wset=3 * 1024**2))
    monkeypatch.setitem(sys.modules, "psutil", SimpleNamespace(Process=lambda: process))
    monkeypatch.setattr(sys, "platform", "win32")
    assert peak_rss_mb() == 3.0


def test_every_module_can_be_imported_where_posix_is_not():
    done = subprocess.run([sys.executable, "-c", WITHOUT_POSIX], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100
