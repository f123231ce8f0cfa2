"""`proba solve`: matches in, reconstruction out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba import api
from proba.cli.live import show_solve
from proba.cli.options import NO_PREFIX, OUT
from proba.pipeline import SolveOptions
from proba.report import folder_summary

DEFAULTS = SolveOptions()


def main(
    matches: Annotated[Path, tyro.conf.Positional],
    /,
    out: Annotated[Path, OUT],
    images: Path | None = None,
    threads: int | None = None,
    memory: float | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    quiet: bool = False,
    live: bool = False,
    stay: bool = False,
    options: Annotated[SolveOptions, NO_PREFIX] = DEFAULTS,
) -> None:
    """Reconstruct cameras and points from a file of pairwise matches.

    Writes OUT/sparse/0 (COLMAP format; further connected pieces sparse/1 ...), OUT/points.ply, OUT/report.json and
    OUT/report.html. Ctrl-C once ends the search early and refines what is there.

    Args:
        matches: Matches file: h5 in hloc's dense layout (as `proba` writes it) or npz.
        out: Folder for the results; made if it does not exist.
        images: Folder of the photos. Their pixels refine coarse matches, colour the points and illustrate the report;
            and they tell image sizes where the matches file does not.
        threads: Processor threads; all by default.
        memory: Gigabytes that the process may hold; by default four fifths of what the machine has left.
        workers: Processes on this machine that solve clusters; needs `pip install 'proba-sfm[cluster]'`.
        cluster: Address of a Dask scheduler whose workers do that instead, e.g. tcp://10.0.0.1:8786.
        resume: Continue a run that was interrupted or killed.
        quiet: No progress display.
        live: Show the solve in the browser while it runs.
        stay: With --live: show the result at the end, until Ctrl-C.
    """
    with show_solve(out, quiet=quiet, live=live) as show:
        api.solve(
            matches,
            out=out,
            images=images,
            options=options,
            threads=threads,
            memory=memory,
            workers=workers,
            cluster=cluster,
            resume=resume,
            observer=show.observer,
        )
        print(folder_summary(out))
        show.linger(stay=stay)
