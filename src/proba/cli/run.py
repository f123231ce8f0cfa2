"""`proba run`: a folder of photos in, a reconstruction out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba import api
from proba.cli.dense import describe
from proba.cli.live import show_solve
from proba.cli.options import NO_PREFIX, OUT
from proba.cli.progress import MatchBar
from proba.matching import MatchOptions
from proba.pipeline import SolveOptions
from proba.report import folder_summary

MATCH_DEFAULTS, SOLVE_DEFAULTS = MatchOptions(), SolveOptions()


def main(
    images: Annotated[Path, tyro.conf.Positional],
    /,
    out: Annotated[Path, OUT],
    threads: int | None = None,
    memory: float | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    quiet: bool = False,
    live: bool = False,
    stay: bool = False,
    dense: bool = False,
    match: MatchOptions = MATCH_DEFAULTS,
    options: Annotated[SolveOptions, NO_PREFIX] = SOLVE_DEFAULTS,
) -> None:
    """Reconstruct cameras and points from a folder of photos: match, solve, refine, write.

    Writes OUT/matches.h5 and all that `proba solve` writes: OUT/sparse/0 (COLMAP format), OUT/points.ply,
    OUT/report.json and OUT/report.html.

    Args:
        images: Folder of photos (JPEG, PNG, TIFF, WebP; HEIC with pillow-heif), with subfolders; or a video (with
            PyAV), whose frames are written to OUT/frames.
        out: Folder for the results; made if it does not exist.
        threads: Processor threads; all by default.
        memory: Gigabytes that the process may hold; by default four fifths of what the machine has left.
        workers: Processes on this machine that match and solve clusters; needs `pip install 'proba-sfm[cluster]'`.
        cluster: Address of a Dask scheduler whose workers do that instead, e.g. tcp://10.0.0.1:8786.
        resume: Continue a run that was interrupted or killed.
        quiet: No progress display.
        live: Show the solve in the browser while it runs.
        dense: At the end find depth at every pixel (`proba dense`).
        stay: With --live: show the result at the end, until Ctrl-C.
        match: How photos are matched.
    """
    with show_solve(out, quiet=quiet, live=live) as show, MatchBar(quiet=quiet) as match_bar:
        api.reconstruct(
            images, out=out, match=match, options=options, threads=threads, memory=memory, workers=workers,
            cluster=cluster, resume=resume, observer=show.observer, match_observer=match_bar,
        )  # fmt: skip
        print(folder_summary(out))
        if dense:
            found = api.dense_folder(
                out, masks=match.masks, threads=threads, memory=memory, resume=resume, observer=match_bar
            )
            print("\n".join(describe(found)))
        show.linger(stay=stay)
