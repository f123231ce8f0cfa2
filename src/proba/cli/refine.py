"""`proba refine`: the refinement alone, from what a solve left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba import api
from proba.cli.options import OUT
from proba.cli.progress import ProgressBar
from proba.history.recorder import NewEnding
from proba.pipeline import Together
from proba.refine import RefineOptions
from proba.report import folder_summary

DEFAULTS = RefineOptions()


def main(
    folder: Annotated[Path, tyro.conf.Positional],
    /,
    out: Annotated[Path | None, OUT] = None,
    images: Path | None = None,
    matches: Path | None = None,
    threads: int | None = None,
    memory: float | None = None,
    quiet: bool = False,
    refine: RefineOptions = DEFAULTS,
) -> None:
    """Refine again from what the solver left in a result folder, without solving again.

    Writes what `proba solve` writes. With the same settings the result is the same, bit for bit; with others it shows
    what a stage is worth: --refine.rescue.rounds 0, --refine.growing.no-enabled, --refine.pixels.no-enabled, or
    --refine.no-enabled for the solver's own cameras and points. If it is killed, run it again.

    Args:
        folder: Result folder of `proba run` or `proba solve`; what the solver left is in FOLDER/solver.
        out: Folder for the results; FOLDER itself by default.
        images: Folder of the photos, if they are no longer where they were.
        matches: File of the matches that were solved; FOLDER/matches.h5 by default, or where it was.
        threads: Processor threads; all by default.
        memory: Gigabytes that the process may hold; by default four fifths of what the machine has left.
        quiet: No progress display.
        refine: Settings of the refinement.
    """
    with ProgressBar(quiet=quiet) as bar:
        api.refine_folder(
            folder,
            out=out,
            images=images,
            matches=matches,
            options=refine,
            threads=threads,
            memory=memory,
            observer=Together(bar, NewEnding(folder)),
        )
    print(folder_summary(folder if out is None else out))
