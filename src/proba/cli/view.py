"""`proba view`: a result in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro


def main(
    folder: Annotated[Path, tyro.conf.Positional],
    /,
    port: int = 8080,
    images: Path | None = None,
    gt: Path | None = None,
    save: Path | None = None,
    cloud: Path | None = None,
    sparse: bool = False,
    max_points: int = 1_000_000,
    browser: bool = True,
) -> None:
    """Look at a result in the browser: points, cameras, edges, uncertainties, every hypothesis, and how it came about.

    Serves on this machine only (127.0.0.1) until Ctrl-C. Click a camera for its photo and its numbers.

    Args:
        folder: Folder that `proba solve` or `proba run` wrote, or a folder of COLMAP models sparse/0, sparse/1, ...
        port: Port to serve on; the next free one if it is taken.
        images: Folder of the photos; by default where they were during the run.
        gt: Ground truth to show the true cameras: a gt.json, a COLMAP model, or a nerfstudio transforms.json.
        save: Write everything to this one HTML file instead, which opens without a server or a network.
        cloud: Points to show instead of the result's own (PLY).
        sparse: Show the refined points, even where `proba dense` has made dense ones.
        max_points: Points of a larger cloud that are kept, chosen at random. Far ones are thinned while you look.
        browser: Open the browser; --no-browser only prints the address.
    """
    from proba.viewer.scene import load_scene

    pieces = load_scene(folder, images=images, gt=gt, cloud=cloud, max_points=max_points, sparse=sparse)
    if save is not None:
        from proba.viewer.page import write_page

        size = write_page(save, pieces, title=folder.resolve().name)
        print(f"wrote {save} ({size / 1e6:.1f} MB); open it in any browser")
        return
    from proba.viewer.server import Viewer, wait

    viewer = Viewer(port=port)
    viewer.show(pieces)
    viewer.announce(browser=browser)
    wait()
