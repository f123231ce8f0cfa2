"""`proba match`: a folder of photos in, a file of verified matches out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba import api
from proba.cli.options import OUT
from proba.cli.progress import MatchBar
from proba.errors import InputError
from proba.matching import MatchOptions, matchers

DEFAULTS = MatchOptions()


def main(
    images: Annotated[Path | None, tyro.conf.Positional] = None,
    /,
    out: Annotated[Path | None, OUT] = None,
    jobs: int | None = None,
    memory: float | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    quiet: bool = False,
    list: bool = False,
    match: MatchOptions = DEFAULTS,
) -> None:
    """Match a folder of photos pair by pair, and verify the matches.

    A run that was interrupted or killed goes on with --resume; so does a folder to which photos were added.

    Args:
        images: Folder of photos (JPEG, PNG, TIFF, WebP; HEIC with pillow-heif), with subfolders; or a video (with
            PyAV), whose frames are written to OUT.frames.
        out: Matches file to write, h5 in hloc's dense layout.
        jobs: Pairs at a time; by default as many as there are processors.
        memory: Gigabytes that the process may hold; by default four fifths of what the machine has left.
        workers: Processes on this machine that match; needs `pip install 'proba-sfm[cluster]'`.
        cluster: Address of a Dask scheduler whose workers do that instead, e.g. tcp://10.0.0.1:8786.
        resume: Keep the pairs that an earlier run has finished; changed photos or settings are matched again.
        quiet: No progress display.
        list: Show the matchers and what each of them needs, then stop.
        match: How photos are matched.
    """
    if list:
        print(matcher_list())
        return
    if images is None or out is None:
        raise InputError("give a folder of photos and --out FILE, e.g. `proba match photos --out matches.h5`")
    with MatchBar(quiet=quiet) as bar:
        api.match(
            images,
            out=out,
            options=match,
            jobs=jobs,
            memory=memory,
            workers=workers,
            cluster=cluster,
            resume=resume,
            observer=bar,
        )
    print(f"wrote {out}; next: proba solve {out} --images {images} --out DIR")


def matcher_list() -> str:
    """All matchers with what they need."""
    lines = ["auto              SIFT, and XFeat for photos that SIFT joins only weakly (default)"]
    for name, entry in matchers().items():
        missing = entry.missing()
        lines.append(f"{name:<17} {entry.summary}" + (f"\n{'':<17} NOT INSTALLED: {missing}" if missing else ""))
    return "\n".join(lines)
