"""`proba add`: photos added to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba.cli.live import show_solve
from proba.cli.options import NO_PREFIX, OUT, PHOTOS, RESULT
from proba.cli.progress import MatchBar
from proba.combine import add_photos
from proba.matching import MatchOptions
from proba.pipeline import SolveOptions
from proba.report import folder_summary

MATCH_DEFAULTS, SOLVE_DEFAULTS = MatchOptions(), SolveOptions()


def main(
    folder: Annotated[Path, tyro.conf.Positional, RESULT],
    photos: Annotated[Path, tyro.conf.Positional, PHOTOS],
    /,
    out: Annotated[Path, OUT],
    keep_cameras: bool = False,
    images: Path | None = None,
    threads: int | None = None,
    quiet: bool = False,
    match: MatchOptions = MATCH_DEFAULTS,
    options: Annotated[SolveOptions, NO_PREFIX] = SOLVE_DEFAULTS,
) -> None:
    """Add photos to a model: the result is in the frame of the old one.

    Old pairs are not matched again, and nothing is searched from a cold start. Run the same command again to go on
    after an interruption.

    Args:
        folder: Folder that `proba run` wrote.
        photos: Folder of the new photos; it may hold the old ones too.
        out: Folder for the larger model; made if it does not exist.
        keep_cameras: The old poses stay as they are.
        images: Folder of the old photos; by default the one that report.json names.
        threads: Processor threads; all by default.
        quiet: No progress display.
        match: How photos are matched.
    """
    with show_solve(out, quiet=quiet, live=False) as show, MatchBar(quiet=quiet) as match_bar:
        add_photos(
            folder, photos, out=out, keep_cameras=keep_cameras, images=images, match=match, options=options,
            threads=threads, observer=show.observer, match_observer=match_bar,
        )  # fmt: skip
        print(folder_summary(out))
