"""`proba merge`: one model of two."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba.cli.live import show_solve
from proba.cli.options import NO_PREFIX, OUT, RESULT
from proba.cli.progress import MatchBar
from proba.combine import merge_models
from proba.matching import MatchOptions
from proba.pipeline import SolveOptions
from proba.report import folder_summary

MATCH_DEFAULTS, SOLVE_DEFAULTS = MatchOptions(), SolveOptions()


def main(
    first: Annotated[Path, tyro.conf.Positional, RESULT],
    second: Annotated[Path, tyro.conf.Positional, RESULT],
    /,
    out: Annotated[Path, OUT],
    images: tuple[Path, Path] | None = None,
    threads: int | None = None,
    quiet: bool = False,
    match: MatchOptions = MATCH_DEFAULTS,
    options: Annotated[SolveOptions, NO_PREFIX] = SOLVE_DEFAULTS,
) -> None:
    """Make one model of two that have photos or scenery in common; it is in the frame of the first.

    Old pairs are not matched again, and nothing is searched from a cold start. Run the same command again to go on
    after an interruption.

    Args:
        first: Folder that `proba run` wrote.
        second: The other one.
        out: Folder for the model of both; made if it does not exist.
        images: Folders of the photos of both; by default those that the reports name.
        threads: Processor threads; all by default.
        quiet: No progress display.
        match: How photos are matched.
    """
    with show_solve(out, quiet=quiet, live=False) as show, MatchBar(quiet=quiet) as match_bar:
        merge_models(
            first, second, out=out, images=images, match=match, options=options, threads=threads,
            observer=show.observer, match_observer=match_bar,
        )  # fmt: skip
        print(folder_summary(out))
