"""The few kinds of pictures that experiments draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from proba.io.atomic import atomic_file

DPI = 90  # pictures are part of the documentation, so they stay small
LONG_LABEL = 6  # letters that fit beneath a cell


@contextmanager
def figure(path: Path, columns: int = 1, rows: int = 1, *, size: tuple[float, float] = (4.2, 3.2)) -> Iterator[Any]:
    """Axes [rows, columns] of a picture of `size` inches a panel, which is written at the end."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    drawing, axes = plt.subplots(rows, columns, figsize=(size[0] * columns, size[1] * rows), squeeze=False)
    try:
        yield axes
        drawing.tight_layout()
        with atomic_file(path) as file:
            drawing.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    finally:
        plt.close(drawing)


def bars(path: Path, groups: Sequence[str], series: Mapping[str, Sequence[float]], *, ylabel: str) -> None:
    """Bars in groups, one colour for each series."""
    with figure(path, size=(max(4.5, 1.3 * len(groups) + 1.5), 3.2)) as axes:
        axis, width = axes[0, 0], 0.8 / max(1, len(series))
        for k, (label, values) in enumerate(series.items()):
            axis.bar(np.arange(len(groups)) + (k - (len(series) - 1) / 2) * width, values, width, label=label)
        axis.set_xticks(np.arange(len(groups)), groups, rotation=20, ha="right", fontsize=8)
        axis.set_ylabel(ylabel)
        axis.legend(fontsize=8, loc="lower right")


def lines(
    path: Path,
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    *,
    xlabel: str,
    ylabel: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> None:
    """A panel for each title, with a line (x and y) for each label."""
    with figure(path, columns=len(panels)) as axes:
        for axis, (title, curves) in zip(axes[0], panels.items(), strict=True):
            for label, (x, y) in curves.items():
                axis.plot(x, y, "o-", markersize=3, label=label)
            if log_x:
                axis.set_xscale("log")
            if log_y:
                axis.set_yscale("log")
            axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
            if ylabel.endswith(("%", "(%)")):
                axis.set_ylim(-3, 103)
            axis.grid(alpha=0.3)
            axis.legend(fontsize=7)


def heat_maps(
    path: Path,
    panels: Mapping[str, np.ndarray],
    *,
    x: Sequence[str],
    y: Sequence[str],
    xlabel: str,
    ylabel: str,
) -> None:
    """A panel for each title: percentages [len(y), len(x)] as colours and numbers."""
    size = (0.62 * len(x) + 1.8, 0.42 * len(y) + 1.4)
    with figure(path, columns=len(panels), size=size) as axes:
        for axis, (title, values) in zip(axes[0], panels.items(), strict=True):
            axis.imshow(values, vmin=0, vmax=100, cmap="RdYlGn", aspect="auto")
            for (row, column), value in np.ndenumerate(values):
                if np.isfinite(value):
                    axis.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=8)
            slanted = {"rotation": 30, "ha": "right"} if max(map(len, x)) > LONG_LABEL else {}
            axis.set_xticks(range(len(x)), x, fontsize=8, **slanted)
            axis.set_yticks(range(len(y)), y, fontsize=8)
            axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
