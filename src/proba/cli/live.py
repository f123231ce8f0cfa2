"""The `--live` and `--stay` of commands that solve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from proba.pipeline import Observer

if TYPE_CHECKING:
    from proba.viewer.server import Viewer


@contextmanager
def live_viewer(wanted: bool) -> Iterator[Viewer | None]:
    """A viewer for the time of a solve, if one is wanted."""
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


def watch(viewer: Viewer | None) -> Observer | None:
    """The observer that shows a solve in a viewer, if there is one."""
    if viewer is None:
        return None
    from proba.viewer.live import LiveView

    return LiveView(viewer)


def linger(viewer: Viewer | None, folder: Path, *, stay: bool) -> None:
    """Show the result until Ctrl-C, if that was asked for."""
    if viewer is None or not stay:
        return
    from proba.viewer.scene import load_scene
    from proba.viewer.server import wait

    viewer.show(load_scene(folder))
    print(f"the result is at {viewer.url} until Ctrl-C", flush=True)
    wait()
