"""What an experiment is: rows to compute, figures of others to stand beside them, a table and a picture.

An experiment is a module in `bench/experiments` with an `EXPERIMENT`; `bench/runner.py` runs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proba.bench.photo_sets import PhotoSet, find_sets
from proba.errors import InputError

Setting = str | int | float | bool | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One computation. It runs in another process, so that a crash is its own; see `Experiment.fresh`."""

    settings: Mapping[str, Setting]
    """What tells this row from all others, the seed among it; a file that holds these settings has the row."""
    work: Callable[..., dict]
    """A function at the top of a module; its result (numbers, text, lists) joins the settings in the row."""
    arguments: tuple = ()
    """What it is called with; they travel to another process."""


@dataclass(frozen=True, kw_only=True)
class Quoted:
    """Figures that somebody else has printed. They were not measured here, and the page says so."""

    source: str
    """Where they are printed, e.g. "the paper, Table 1"."""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str | float | None]] = ()
    claim: str = ""
    """What its text says, where a figure has no numbers to quote."""

    def markdown(self) -> str:
        told = f" {self.claim}" if self.claim else ""
        lines = [f"*Quoted, not measured here* ({self.source}).{told}"]
        if self.rows:
            lines += ["", table(self.header, self.rows)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What every experiment is told."""

    quick: bool = False
    """The small version, of which all together fit into the time of `make results`."""
    data: Path | None = None
    """Folder of photo sets with ground truth; without it only synthetic scenes are used."""
    sets: Sequence[str] = ()
    """Only sets whose name holds one of these, instead of the experiment's own choice."""
    seeds: Sequence[int] = ()
    """Seeds instead of the experiment's own."""
    large: bool = True
    """Also the sets that take many minutes; `make results` does them last."""
    cache: Path = Path("bench-out/cache")
    """Matches and databases are kept here."""
    threads: int = 1
    """Processor threads of every row."""

    def seeds_or(self, quick: Sequence[int], full: Sequence[int] = (0, 1, 2)) -> Sequence[int]:
        """The seeds that were asked for, or the experiment's own."""
        return self.seeds or (quick if self.quick else full)

    def photo_sets(self, names: Sequence[str] = ()) -> list[PhotoSet]:
        """Sets of the data folder whose name holds one of `names` (or of `sets`, if given); none without a folder."""
        if self.data is None:
            return []
        if not self.data.is_dir():
            raise InputError(f"there is no folder {self.data}; give --data a folder of sets, or leave it out")
        wanted = self.sets or names
        return [found for found in find_sets(self.data) if not wanted or any(word in found.name for word in wanted)]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment. Its functions look at nothing but their arguments, so that a page can be made again."""

    name: str
    """The word after `proba bench`."""
    title: str
    """Heading of its section."""
    about: str
    """What is measured, and how to read the table: plain sentences in Markdown."""
    quoted: Sequence[Quoted]
    """The figures of the paper, and of systems that cannot run here."""
    plan: Callable[[RunOptions], list[Row]]
    """All rows, in the order in which they are computed."""
    tables: Callable[[list[dict]], str]
    """Markdown of finished rows: settings and results in one dictionary; `error` in one that failed."""
    draw: Callable[[list[dict], Path], None]
    """Writes a PNG of the rows that have no error."""
    fresh: bool = True
    """Every row in a process of its own, alone on the machine. Off: neither time nor memory is shown, so rows share
    processes and run side by side."""
    caption: str = ""
    """What the picture shows."""


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = [f"| {' | '.join(header)} |", f"|---|{'--:|' * (len(header) - 1)}"]
    lines += [f"| {' | '.join(cell(value) for value in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(value: Any, digits: int = 1) -> str:
    """A value as the tables show it: `-` where there is none."""
    if value is None or value != value:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value).replace("|", "\\|")


def score(row: Mapping[str, Any], key: str) -> float:
    """A percentage of a row; 0 where the row failed, since nothing was reconstructed."""
    value = row.get(key)
    return 0.0 if value is None else float(value)


def mean_score(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """Mean percentage over rows, failures counted as 0; NaN without rows."""
    return sum(score(row, key) for row in rows) / len(rows) if rows else float("nan")


def grouped(rows: Sequence[dict], *keys: str) -> dict[tuple, list[dict]]:
    """Rows by the values of some settings, in the order of their first appearance."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    return groups


def data_folder(given: Path | None) -> Path | None:
    """The folder of sets: as given, or $PROBA_DATA, or none."""
    named = os.environ.get("PROBA_DATA")
    return given or (Path(named) if named else None)
