"""Progress on a terminal."""

from __future__ import annotations

import sys
from typing import Any, Self

from tqdm import tqdm

from proba.graph import ViewGraph
from proba.matching import MatchSummary
from proba.pipeline import Observer
from proba.solver import Progress


class Bar:
    """One bar at a time, and none where nobody watches a terminal."""

    def __init__(self, *, quiet: bool = False):
        self.quiet = quiet
        self.bar: tqdm | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def open(self, **settings: Any) -> None:
        self.close()
        if not self.quiet:
            self.bar = tqdm(file=sys.stderr, disable=None, **settings)

    def say(self, text: str) -> None:
        self.close()
        if not self.quiet:
            print(text, file=sys.stderr)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class MatchBar(Bar):
    """Shows how many images or pairs are done, how fast, and the time left; at the end what was found."""

    def begin(self, what: str, total: int, unit: str) -> None:
        self.close()
        if total:
            self.open(total=total, desc=what, unit=f" {unit}s")

    def advance(self) -> None:
        if self.bar is not None:
            self.bar.update()

    def done(self, summary: MatchSummary) -> None:
        self.close()
        print(describe(summary), flush=True)


class ProgressBar(Bar, Observer):
    """Shows the solver's loss, median pixel error, field of view and time left."""

    def piece(self, index: int, total: int, graph: ViewGraph) -> None:
        which = f" (piece {index + 1} of {total})" if total > 1 else ""
        self.say(f"{len(graph.images)} images, {len(graph.edges)} edges{which}")

    def iteration(self, progress: Progress) -> None:
        if self.quiet:
            return
        if self.bar is None:
            form = "{desc} {percentage:3.0f}%|{bar:24}| {elapsed}<{remaining}{postfix}"
            self.open(total=progress.iterations, desc="solving", unit="it", bar_format=form)
        assert self.bar is not None
        self.bar.update(progress.iteration - self.bar.n)
        self.bar.set_postfix_str(
            f"{len(progress.worlds.names)} worlds  loss {progress.loss:.2f}  "
            f"median {progress.median_px:.2f} px  fov {progress.fov_deg:.1f} deg"
        )

    def stage(self, text: str) -> None:
        self.say(f"{text} ...")


def describe(summary: MatchSummary) -> str:
    """What the matching has found, for the terminal."""
    text = (
        f"{summary.photos} images, {summary.pairs_kept} of {summary.pairs_tried} pairs kept, {summary.matches} matches"
    )
    if summary.subject_alone:
        text += "\nthe camera stood still: a background that does not move was left out"
    if summary.graph_pairs:
        text += f" (edges of a view graph from {summary.graph_pairs} pairs)"
    if summary.contradicted:
        names = ", ".join(f"{one} {other}" for one, other in summary.contradicted[:3])
        text += f"\n{len(summary.contradicted)} pairs dropped because third images contradict them, e.g. {names}"
    if summary.alone:
        names = ", ".join(summary.alone[:5]) + (" ..." if len(summary.alone) > 5 else "")
        text += f"\nwarning: {len(summary.alone)} images match no other: {names}"
    return text
