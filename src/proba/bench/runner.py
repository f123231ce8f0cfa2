"""Runs the rows of an experiment in other processes, and writes NAME.json, NAME.md and NAME.png.

The JSON is written after every row, so that a run that was ended goes on where it was. A row that fails is a row with
an `error`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from proba._version import __version__
from proba.bench.experiment import Experiment, Row, RunOptions
from proba.io.atomic import atomic_write_text
from proba.io.reading import read_json, reading
from proba.memory import peak_rss_mb

LIBRARIES = ("torch", "numba", "numpy", "scipy", "opencv-python-headless", "kornia", "pycolmap")


def run(
    experiment: Experiment, out: Path, options: RunOptions, *, retry: bool = False, until: float = float("inf")
) -> list[dict]:
    """All rows of an experiment, computing those that its file in `out` does not hold, and its page and picture.

    With `retry`, rows that failed are computed again. After the moment `until` (of `time.monotonic`) no row begins.
    Rows whose time and memory matter have the machine for themselves; others run side by side, with one thread each.
    """
    jobs = 1 if experiment.fresh else options.threads
    plan = experiment.plan(replace(options, threads=options.threads // jobs))
    save = lambda rows: save_rows(experiment.name, rows, out, options)
    stored = [row for row in load_rows(out / f"{experiment.name}.json") if not (retry and "error" in row)]
    say = lambda row: print(f"{experiment.name}: {one_line(row)}", flush=True)
    rows = compute(plan, stored, save, say=say, until=until, fresh=experiment.fresh, jobs=jobs)
    write_page(experiment, rows, out)
    return rows


def wanted_rows(experiment: Experiment, out: Path, options: RunOptions) -> list[dict]:
    """The finished rows that a run with these options would show."""
    stored = load_rows(out / f"{experiment.name}.json")
    found = (next((row for row in stored if holds(row, wanted.settings)), None) for wanted in experiment.plan(options))
    return [row for row in found if row is not None]


def save_rows(name: str, rows: Sequence[dict], out: Path, options: RunOptions) -> None:
    """All rows of an experiment, and the machine that they come from."""
    out.mkdir(parents=True, exist_ok=True)
    head = {"experiment": name, "quick": options.quick, "machine": machine(options.threads)}
    atomic_write_text(out / f"{name}.json", json.dumps({**head, "rows": list(rows)}, indent=1))


def load_rows(file: Path) -> list[dict]:
    """Finished rows of an experiment, none without its file."""
    if not file.is_file():
        return []
    with reading_rows(file):
        return _objects(read_json(file)["rows"])


def load_list(file: Path | None) -> list[dict]:
    """Finished rows in a plain list, none without a file."""
    if file is None or not file.is_file():
        return []
    with reading_rows(file):
        return _objects(read_json(file))


def reading_rows(file: Path) -> AbstractContextManager[None]:
    """For whatever reads rows of a file or makes a table of them: rows that cannot be used are the file's fault."""
    return reading(file, "rows of an experiment", "Remove it to compute them again.")


def _objects(rows: object) -> list[dict]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("it is no list of objects")
    return rows


def compute(
    plan: Sequence[Row],
    stored: Sequence[dict],
    save: Callable[[list[dict]], None],
    *,
    say: Callable[[dict], None],
    until: float = float("inf"),
    fresh: bool = True,
    jobs: int = 1,
) -> list[dict]:
    """The rows of a plan: those already stored, and the others as they are computed, each saved at once.

    Stored rows that the plan does not name stay in the file, since a smaller run must not throw away a larger one;
    they are not returned. Rows that would begin after `until` are left out. `jobs` rows run at a time.
    """
    every = list(stored)
    missing = [wanted for wanted in plan if not any(holds(row, wanted.settings) for row in every)]
    with Workers(jobs, fresh=fresh) as workers:
        for wanted, result in workers.results(missing, until):
            every.append({**wanted.settings, **result})
            save(every)
            say(every[-1])
    found = (next((row for row in every if holds(row, wanted.settings)), None) for wanted in plan)
    return [row for row in found if row is not None]


def run_list(
    plan: Sequence[Row], file: Path | None, *, line: Callable[[dict], str], markdown: Callable[[list[dict]], str]
) -> list[dict]:
    """Rows in a plain JSON list (or nowhere), a line on the terminal for each, and a table beside the file."""
    stored = load_list(file)

    def save(rows: list[dict]) -> None:
        if file:
            atomic_write_text(file, json.dumps(rows, indent=1))

    rows = compute(plan, stored, save, say=lambda row: print(line(row), flush=True))
    with reading_rows(file) if file else nullcontext():
        text = markdown(rows)
    print("\n" + text)
    if file:
        atomic_write_text(file.with_suffix(".md"), text)
    return rows


def holds(row: Mapping[str, Any], settings: Mapping[str, Any]) -> bool:
    """Whether a stored row is the one with these settings."""
    return all(key in row and row[key] == value for key, value in settings.items())


class Workers:
    """Other processes that compute rows, some at a time: a new one for each row if `fresh`, else one after a crash."""

    def __init__(self, jobs: int, *, fresh: bool):
        self.idle = [Worker(fresh=fresh) for _ in range(jobs)]
        self.threads = ThreadPoolExecutor(jobs)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:  # ended from outside: nobody waits for the rows
            for child in multiprocessing.active_children():
                child.terminate()
        self.threads.shutdown()
        for worker in self.idle:
            worker.stop()

    def results(self, rows: Sequence[Row], until: float) -> Iterator[tuple[Row, dict]]:
        """Rows and what they give, as they are finished; those that would begin after `until` are left out.

        No further row begins before the caller has asked for the next one, so that what is finished can be saved.
        """
        left, running = deque(rows), {}
        while True:
            while left and self.idle and time.monotonic() <= until:
                row, worker = left.popleft(), self.idle.pop()
                running[self.threads.submit(worker.result_of, row)] = row, worker
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                row, worker = running.pop(done)
                self.idle.append(worker)
                yield row, done.result()


class Worker:
    """Another process that computes one row after the other."""

    def __init__(self, *, fresh: bool):
        self.fresh = fresh
        self.pool: ProcessPoolExecutor | None = None

    def result_of(self, row: Row) -> dict:
        """What a row gives; what goes wrong becomes part of it."""
        begin = time.perf_counter()
        if self.pool is None:
            context = multiprocessing.get_context("spawn")
            self.pool = ProcessPoolExecutor(1, mp_context=context, initializer=_leave_with_parent)
        try:
            result = self.pool.submit(_measured, row.work, row.arguments).result()
        except Exception as error:
            result = {"error": f"{type(error).__name__}: {error}"}
            self.stop()
        if self.fresh:
            self.stop()
        return {**result, "wall_s": round(time.perf_counter() - begin, 2)}

    def stop(self) -> None:
        """End the process."""
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None


def _leave_with_parent() -> None:
    """Ends this process when the one that started it is gone, so that a kill leaves nothing behind."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _measured(work: Callable[..., dict], arguments: tuple) -> dict:
    begin = time.process_time()
    result = work(*arguments)
    return {**result, "cpu_s": round(time.process_time() - begin, 2), "peak_rss_mb": round(peak_rss_mb(), 1)}


def write_page(experiment: Experiment, rows: list[dict], out: Path) -> None:
    """NAME.md and, where a row has succeeded, NAME.png."""
    picture = out / f"{experiment.name}.png"
    good = [row for row in rows if "error" not in row]
    with reading_rows(out / f"{experiment.name}.json"):
        if good:
            experiment.draw(good, picture)
        text = page(experiment, rows, picture.name if good else None)
    atomic_write_text(out / f"{experiment.name}.md", text)


def page(experiment: Experiment, rows: list[dict], picture: str | None) -> str:
    """The section of an experiment in Markdown, its heading on the second level."""
    seeds = sorted({row["seed"] for row in rows})
    told = f" (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))})" if seeds else ""
    parts = [f"## {experiment.title}\n\n`proba bench {experiment.name}`{told}\n\n{experiment.about.strip()}\n"]
    parts.append(experiment.tables(rows) if rows else "Not run.\n")
    if picture:
        parts.append(f"![{experiment.caption or experiment.title}]({picture})\n")
    failed = [row for row in rows if "error" in row]
    if failed:
        parts.append("Failed:\n\n" + "".join(f"- {one_line(row)}\n" for row in failed))
    parts += [quoted.markdown() for quoted in experiment.quoted]
    return "\n".join(parts)


def one_line(row: Mapping[str, Any]) -> str:
    """A row for the terminal: short values only."""
    if "error" in row:
        shown = {key: value for key, value in row.items() if key not in ("images", "registered", "wall_s")}
    else:
        shown = {key: value for key, value in row.items() if isinstance(value, str | int | float)}
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {str(value).splitlines()[0][:200]}"
        for key, value in shown.items()
        if str(value)
    )


def machine(threads: int) -> dict[str, Any]:
    """What the numbers of this run depend on."""
    return {
        "proba": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "threads": threads,
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
