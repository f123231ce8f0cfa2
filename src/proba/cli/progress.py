"""Progress on a terminal."""

from __future__ import annotations

import sys

from tqdm import tqdm

from proba.graph import ViewGraph
from proba.pipeline import Observer
from proba.solver import Progress


class ProgressBar(Observer):
    """Shows the solver's loss, median pixel error, field of view and time left."""

    def __init__(self, *, quiet: bool = False):
        self.quiet = quiet
        self.bar: tqdm | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_) -> None:
        self._close()

    def piece(self, index: int, total: int, graph: ViewGraph) -> None:
        self._close()
        if not self.quiet:
            which = f" (piece {index + 1} of {total})" if total > 1 else ""
            print(f"{len(graph.images)} images, {len(graph.edges)} edges{which}", file=sys.stderr)

    def iteration(self, progress: Progress) -> None:
        if self.quiet:
            return
        if self.bar is None:
            self.bar = tqdm(
                total=progress.iterations,
                desc="solving",
                unit="it",
                disable=None,  # no bar where nobody watches a terminal
                bar_format="{desc} {percentage:3.0f}%|{bar:24}| {elapsed}<{remaining}{postfix}",
            )
        self.bar.update(progress.iteration - self.bar.n)
        self.bar.set_postfix_str(
            f"{len(progress.worlds.names)} worlds  loss {progress.loss:.2f}  "
            f"median {progress.median_px:.2f} px  fov {progress.fov_deg:.1f} deg"
        )

    def stage(self, text: str) -> None:
        self._close()
        if not self.quiet:
            print(f"{text} ...", file=sys.stderr)

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
