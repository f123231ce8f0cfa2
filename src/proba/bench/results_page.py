"""The page with all results: docs/results.md, its pictures, and the tables in other pages that come from it.

No number is typed by hand: a page holds the tables of finished rows, and other pages have marked blocks that are
filled from the same rows.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from proba._version import __version__
from proba.bench.experiment import RunOptions
from proba.bench.experiments import EXPERIMENTS, load_experiment
from proba.bench.experiments.aggregate import by_dataset, by_set
from proba.bench.methods import rows_of_real, with_rows
from proba.bench.runner import (
    holds,
    load_rows,
    machine,
    page,
    reading_rows,
    run,
    save_rows,
    wanted_rows,
    write_page,
)
from proba.errors import InputError
from proba.io.atomic import atomic_file, atomic_write_text

PICTURES = Path("images") / "results"
"""Pictures of the page, below the folder of the page."""
OF_METHODS = ("aggregate", "eth3d")
"""Experiments whose rows are methods on photo sets, as those of `proba bench real` are."""
BLOCK = re.compile(r"(<!-- results: ([a-z-]+) -->\n).*?(<!-- end of results -->)", re.S)


def make_results(
    out: Path,
    page_file: Path,
    filled: Sequence[Path],
    options: RunOptions,
    *,
    only: Sequence[str],
    minutes: float,
    real: Path | None = None,
) -> None:
    """Run what is missing of all experiments (no row begins after `minutes`), and write all pages.

    With 0 minutes nothing is computed: the page is made from the rows that are there. Rows of `proba bench real` in
    the file `real` are taken over.
    """
    unknown = set(only) - set(EXPERIMENTS)
    if unknown:
        raise InputError(f"there is no experiment {', '.join(sorted(unknown))}; there are {', '.join(EXPERIMENTS)}")
    chosen = list(only or EXPERIMENTS)
    if real:
        for name in OF_METHODS:
            add_rows(name, out, options, rows_of_real(real))
    if minutes:
        _compute(chosen, out, options, time.monotonic() + 60 * minutes)
    for name in chosen:
        experiment = load_experiment(name)
        write_page(experiment, wanted_rows(experiment, out, options), out)
    write_results(out, page_file, options)
    for file in filled:
        fill_blocks(file, page_file, out, options)


def _compute(names: Sequence[str], out: Path, options: RunOptions, until: float) -> None:
    """First an equal part of the time for each experiment, so that none is left out; then what is missing, by name;
    the large sets last."""
    small = replace(options, large=False)
    for k, name in enumerate(names):
        part = (until - time.monotonic()) / (len(names) - k)
        run(load_experiment(name), out, small, until=time.monotonic() + part)
    for later in (small, options):
        for name in names:
            run(load_experiment(name), out, later, until=until)


def add_rows(name: str, out: Path, options: RunOptions, rows: Sequence[dict]) -> None:
    """Rows that were computed elsewhere join those of an experiment, except where it has its own."""
    stored = load_rows(out / f"{name}.json")
    save_rows(name, with_rows(stored, rows), out, options)


def write_results(out: Path, page_file: Path, options: RunOptions) -> None:
    """The page from the rows in `out`, and its pictures."""
    pictures = page_file.parent / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    parts, gaps = [], []
    for name in EXPERIMENTS:
        experiment = load_experiment(name)
        rows, total = wanted_rows(experiment, out, options), len(experiment.plan(options))
        if len(rows) < total or not total:
            reason = f"{len(rows)} of {total} rows were computed" if total else "it needs photo sets (`--data`)"
            gaps.append(f"- {experiment.title} (`proba bench {name}`): {reason}")
        picture = out / f"{name}.png"
        shown = bool(rows) and picture.is_file()
        if shown:
            with atomic_file(pictures / picture.name) as file, open(picture, "rb") as source:
                shutil.copyfileobj(source, file)
        else:
            (pictures / picture.name).unlink(missing_ok=True)
        with reading_rows(out / f"{name}.json"):
            parts.append(page(experiment, rows, (PICTURES / picture.name).as_posix() if shown else None))
    atomic_write_text(page_file, "\n".join([head(options, gaps), *parts]))


def head(options: RunOptions, gaps: Sequence[str]) -> str:
    """Title, machine, versions, how it was made, and what is missing."""
    here = machine(options.threads)
    libraries = ", ".join(f"{name} {found}" for name, found in here["libraries"].items() if found)
    told = "The time of the run was over before the other rows of these; the same command goes on where it was.\n\n"
    missing = "\n## Not run, or not whole\n" + told + "\n".join(gaps) + "\n" if gaps else ""
    threads = f"{here['threads']} thread{'s' * (here['threads'] > 1)}"
    return f"""# Results

Made by `make results` (`proba bench results`), which runs the small version of every experiment and writes this page;
no number on it is typed by hand. Each section names its own command; without `--quick` that runs the full version.
Figures marked as quoted are printed elsewhere and were not measured here.
This is the {"small" if options.quick else "full"} version.

Machine: {here["processor"]}, {threads}, {here["system"]}, no GPU. Other programs may have run at the
same time, so seconds compare methods with each other rather than with other machines.

Versions: ProBA {here["proba"]}, Python {here["python"]}, {libraries}.
{missing}"""


def fill_blocks(file: Path, page_file: Path, out: Path, options: RunOptions) -> None:
    """Fill the marked blocks of a page: `<!-- results: by-set -->` to `<!-- end of results -->`.

    A page keeps what it has until every row of its table is there, but for the large sets.
    """
    experiment = load_experiment("aggregate")
    rows = wanted_rows(experiment, out, options)
    needed = experiment.plan(replace(options, large=False))
    if not needed or not all(any(holds(row, one.settings) for row in rows) for one in needed):
        print(f"{file} keeps its table: not all rows of {experiment.name} are there")
        return
    link = os.path.relpath(page_file, file.parent).replace(os.sep, "/")
    intro = (
        f"`make results`, version {__version__}: public sets with ground truth, intrinsics never told, "
        f"{options.threads} threads, no GPU. AUC@x: area under the recall curve of the pose error up to x degrees, all "
        f"image pairs, in percent. [All results]({link}).\n\n"
    )
    makers = {"by-set": by_set, "by-dataset": by_dataset}
    text = file.read_text(encoding="utf-8")

    def filled(found: re.Match[str]) -> str:
        if found[2] not in makers:
            raise InputError(f"{file} has a block {found[2]}; there are {', '.join(makers)}")
        return f"{found[1]}{intro}{makers[found[2]](rows)}{found[3]}"

    atomic_write_text(file, BLOCK.sub(filled, text))
