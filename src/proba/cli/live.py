"""What a person sees of a solve: progress, the live viewer, a summary, and the result at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from proba.cli.progress import ProgressBar
from proba.history.recorder import Recorder
from proba.pipeline import Observer, Together

if TYPE_CHECKING:
    from proba.viewer.server import Viewer


class Show:
    """Watches a solve whose results go to a folder."""

    def __init__(self, out: Path, bar: ProgressBar, viewer: Viewer | None):
        self.out, self.viewer = out, viewer
        self.observer = Together(bar, Recorder(), _live_view(viewer))

    def linger(self, *, stay: bool) -> None:
        """Show the result until Ctrl-C, if that was asked for."""
        if self.viewer is None or not stay:
            return
        from proba.viewer.scene import load_scene
        from proba.viewer.server import wait

        self.viewer.show(load_scene(self.out))
        print(f"the result is at {self.viewer.url} until Ctrl-C", flush=True)
        wait()


@contextmanager
def show_solve(out: Path, *, quiet: bool, live: bool) -> Iterator[Show]:
    """Progress on the terminal for the time of a solve, and with `live` in the browser too."""
    with _viewer(live) as viewer, ProgressBar(quiet=quiet) as bar:
        yield Show(out, bar, viewer)


@contextmanager
def _viewer(wanted: bool) -> Iterator[Viewer | None]:
    if not wanted:
        yield None
        return
    from proba.viewer.server import Viewer

    viewer = Viewer()
    viewer.announce(browser=True)
    try:
        yield viewer
    finally:
        viewer.stop()


def _live_view(viewer: Viewer | None) -> Observer | None:
    if viewer is None:
        return None
    from proba.viewer.live import LiveView

    return LiveView(viewer)
