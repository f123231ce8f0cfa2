"""`proba match`: a folder of photos in, a file of verified matches out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tqdm import tqdm

from proba.cli.options import OUT
from proba.errors import InputError
from proba.io.video import FRAMES, photos_of
from proba.matching import MatchOptions, MatchSummary, PairOptions, match_folder, matchers
from proba.matching.pairs import PairFilter, read_pairs_file

Pairs = Literal["auto", "exhaustive", "shortlist", "sequential"]


def main(
    images: Annotated[Path | None, tyro.conf.Positional] = None,
    /,
    out: Annotated[Path | None, OUT] = None,
    matcher: str = "auto",
    masks: Path | None = None,
    weights: Path | None = None,
    pairs: Pairs = "auto",
    pairs_file: Path | None = None,
    pair_filter: str | None = None,
    densify: bool = False,
    resume: bool = False,
    jobs: int | None = None,
    list: bool = False,
    quiet: bool = False,
) -> None:
    """Match a folder of photos pair by pair and verify the matches.

    A run that was interrupted or killed goes on with --resume; so does a folder to which photos were added.

    Args:
        images: Folder of photos (JPEG, PNG, TIFF, WebP; HEIC with pillow-heif), with subfolders; or a video (with
            PyAV), whose frames are written to OUT.frames.
        out: Matches file to write, h5 in hloc's dense layout.
        matcher: Name of a matcher, see --list. auto: SIFT, and XFeat for photos that SIFT joins only weakly.
        masks: Folder of masks named like the photos: white counts, black is ignored.
        weights: The matcher's own weights file, for machines without network.
        pairs: Which pairs: all of a small set, a shortlist of a large one (auto), or near ones of a video (sequential).
        pairs_file: Text file with the pairs to match, two image names a line, instead of --pairs.
        pair_filter: A Python function, given as package.module:function, that gets the images and the pairs about to be
            matched and returns those to match.
        densify: Add matches on a 64 x 64 grid, interpolated between the others and refined on the pixels.
        resume: Keep the pairs that an earlier run has finished; changed photos or settings are matched again.
        jobs: Pairs at a time; as many as there are processors by default.
        list: Show the matchers, and what each needs, and stop.
        quiet: No progress display.
    """
    if list:
        print(matcher_list())
        return
    if images is None or out is None:
        raise InputError("give a folder of photos and --out FILE, e.g. `proba match photos --out matches.h5`")
    images, video = photos_of(images, out.with_name(f"{out.name}.{FRAMES}"), resume=resume)
    choice = PairChoice("sequential" if video and pairs == "auto" else pairs, pairs_file, pair_filter)
    request = MatchRequest(
        images=images, out=out, matcher=matcher, masks=masks, weights=weights, pairs=choice, densify=densify,
        resume=resume, jobs=jobs,
    )  # fmt: skip
    summary = match_with_progress(request, quiet=quiet)
    print(describe(summary))
    print(f"wrote {out}; next: proba solve {out} --images {images} --out DIR")


@dataclass(frozen=True)
class PairChoice:
    """Which pairs a command line asks for."""

    mode: Pairs = "auto"
    file: Path | None = None
    filter: str | None = None


@dataclass(frozen=True, kw_only=True)
class MatchRequest:
    """The matching part of a command line."""

    images: Path
    out: Path
    matcher: str = "auto"
    masks: Path | None = None
    weights: Path | None = None
    pairs: PairChoice = PairChoice()
    densify: bool = False
    resume: bool = False
    jobs: int | None = None


def match_with_progress(request: MatchRequest, *, quiet: bool) -> MatchSummary:
    """Match as a command line asks for it."""
    if request.jobs is not None and request.jobs < 1:
        raise InputError(f"--jobs must be at least 1, not {request.jobs}")
    options = match_options(request)
    with PairBar(quiet=quiet) as bar:
        return match_folder(
            request.images,
            request.out,
            options,
            masks=request.masks,
            weights=request.weights,
            resume=request.resume,
            jobs=request.jobs,
            observer=bar,
        )


def match_options(request: MatchRequest) -> MatchOptions:
    """The settings that a command line asks for."""
    choice = request.pairs
    listed = read_pairs_file(choice.file) if choice.file else None
    return MatchOptions(
        matcher=request.matcher,
        densify=request.densify,
        pairs=PairOptions(mode=choice.mode, listed=listed),
        pair_filter=load_pair_filter(choice.filter) if choice.filter else None,
    )


def load_pair_filter(name: str) -> PairFilter:
    """The function that `package.module:function` names."""
    try:
        found = EntryPoint(name="pair-filter", value=name, group="proba").load()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(
            f"--pair-filter {name} cannot be loaded ({error}). Give package.module:function of an installed package."
        ) from error
    if not callable(found):
        raise InputError(f"--pair-filter {name} is no function but a {type(found).__name__}.")
    return found


def describe(summary: MatchSummary) -> str:
    """What was found, for the terminal."""
    text = (
        f"{summary.photos} images, {summary.pairs_kept} of {summary.pairs_tried} pairs kept, {summary.matches} matches"
    )
    if summary.contradicted:
        names = ", ".join(f"{one} {other}" for one, other in summary.contradicted[:3])
        text += f"\n{len(summary.contradicted)} pairs dropped because third images speak against them, e.g. {names}"
    if summary.alone:
        names = ", ".join(summary.alone[:5]) + (" ..." if len(summary.alone) > 5 else "")
        text += f"\nwarning: {len(summary.alone)} images match no other: {names}"
    return text


def matcher_list() -> str:
    """All matchers with what they need."""
    lines = ["auto              SIFT, and XFeat for photos that SIFT joins only weakly (default)"]
    for name, entry in matchers().items():
        missing = entry.missing()
        lines.append(f"{name:<17} {entry.summary}" + (f"\n{'':<17} NOT INSTALLED: {missing}" if missing else ""))
    return "\n".join(lines)


class PairBar:
    """A progress bar with units per second and time left."""

    def __init__(self, *, quiet: bool = False):
        self.quiet = quiet
        self.bar: tqdm | None = None

    def __enter__(self) -> PairBar:
        return self

    def __exit__(self, *_) -> None:
        self._close()

    def begin(self, what: str, total: int, unit: str) -> None:
        self._close()
        if total and not self.quiet:
            self.bar = tqdm(total=total, desc=what, unit=f" {unit}s", file=sys.stderr, disable=None)

    def advance(self) -> None:
        if self.bar is not None:
            self.bar.update()

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
