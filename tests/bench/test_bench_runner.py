"""The runner of experiments: what is there is not computed again, and a failure is a row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from proba.bench.charts import bars
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, mean_score, table
from proba.bench.experiments import EXPERIMENTS, load_experiment
from proba.bench.runner import load_rows, run
from proba.errors import InputError

PATIENCE_S = 120


def square(number: int, log: str) -> dict:
    """Work of a row; it leaves a line for every time it is called."""
    with open(log, "a") as file:
        file.write(f"{number}\n")
    if number == 3:
        raise ValueError("three is not liked")
    if number == 4:
        os._exit(1)
    return {"square": number**2}


def toy(log: Path, numbers: tuple[int, ...]) -> Experiment:
    return Experiment(
        name="toy",
        title="A toy",
        about="Squares.",
        quoted=(Quoted(source="a book", header=("number", "square"), rows=(("2", 4.5),)),),
        plan=lambda options: [
            Row(settings={"number": number, "seed": 0}, work=square, arguments=(number, str(log))) for number in numbers
        ],
        tables=lambda rows: table(("number", "square"), [(row["number"], row.get("square")) for row in rows]),
        draw=lambda rows, path: bars(path, ["x"], {str(row["number"]): [row["square"]] for row in rows}, ylabel="y"),
    )


def test_rows_are_resumed_and_failures_are_rows(tmp_path: Path) -> None:
    log, out = tmp_path / "log", tmp_path / "out"
    rows = run(toy(log, (2, 3, 4)), out, RunOptions())
    assert [row.get("square") for row in rows] == [4, None, None]
    assert "three is not liked" in rows[1]["error"] and "error" in rows[2]
    assert log.read_text().split() == ["2", "3", "4"]
    rows = run(toy(log, (5, 2, 3)), out, RunOptions())
    assert [row.get("square") for row in rows] == [25, 4, None]
    assert log.read_text().split() == ["2", "3", "4", "5"]  # nothing was computed twice
    assert len(load_rows(out / "toy.json")) == 4  # a smaller plan throws nothing away
    run(toy(log, (3,)), out, RunOptions(), retry=True)
    assert log.read_text().split()[-1] == "3"


def test_page_shows_own_quoted_and_failed_rows(tmp_path: Path) -> None:
    run(toy(tmp_path / "log", (2, 3)), tmp_path, RunOptions())
    page = (tmp_path / "toy.md").read_text()
    assert "| 2 | 4 |" in page and "| 3 | - |" in page
    quoted = page[page.index("*Quoted, not measured here* (a book)") :]
    assert "| 2 | 4.5 |" in quoted and "| 2 | 4 |" not in quoted
    assert "three is not liked" in page and "](toy.png)" in page
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
    stored = json.loads((tmp_path / "toy.json").read_text())
    assert stored["machine"]["libraries"]["numpy"] and stored["rows"][0]["wall_s"] >= 0


def test_damaged_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "toy.json").write_text("{")
    with pytest.raises(InputError, match="Remove it"):
        run(toy(tmp_path / "log", (2,)), tmp_path, RunOptions())


def test_failures_count_as_nothing_reconstructed() -> None:
    assert mean_score([{"rra@5": 80.0}, {"error": "no overlap"}], "rra@5") == 40.0


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_figures_to_stand_beside(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment.name == name and experiment.about and experiment.quoted
    for quick in (True, False):
        plan = experiment.plan(RunOptions(quick=quick))  # without photos
        keys = [json.dumps(dict(row.settings), sort_keys=True) for row in plan]
        assert len(set(keys)) == len(keys), "two rows have the same settings"
        assert all("seed" in row.settings for row in plan)


@pytest.mark.parametrize("threads", (1, 2))
def test_rows_that_share_processes_survive_a_crash_among_them(tmp_path: Path, threads: int) -> None:
    shared = replace(toy(tmp_path / "log", (2, 4, 5)), fresh=False)
    rows = run(shared, tmp_path, RunOptions(threads=threads))
    assert [row.get("square") for row in rows] == [4, None, 25]  # in the order of the plan
    late = run(toy(tmp_path / "log", (6,)), tmp_path, RunOptions(), until=0.0)
    assert late == []  # no row begins after that moment


SLOW = """
import os, signal, sys, time
from pathlib import Path
from proba.bench.experiment import Experiment, Row, RunOptions
from proba.bench.runner import run

def work(number, folder):
    Path(folder, f"row{number}").write_text(str(os.getpid()))
    if number and len(sys.argv) == 2:
        time.sleep(600)
    return {"square": number**2}

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
    rows = [Row(settings={"number": n, "seed": 0}, work=work, arguments=(n, sys.argv[1])) for n in range(3)]
    slow = Experiment(
        name="slow", title="Slow", about="Slow.", quoted=(), plan=lambda options: rows,
        tables=lambda rows: "", draw=lambda rows, path: None, fresh=False,
    )
    run(slow, Path(sys.argv[1]), RunOptions())
"""


@pytest.mark.parametrize("sent", (signal.SIGKILL, signal.SIGINT))
def test_a_run_that_is_killed_leaves_no_process_and_goes_on_where_it_was(tmp_path: Path, sent: signal.Signals) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    begun = tmp_path / "row1"
    with subprocess.Popen([sys.executable, script, tmp_path], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(begun.is_file)
            process.send_signal(sent)
            process.wait(timeout=PATIENCE_S)  # not the ten minutes of the row
        finally:
            process.kill()
    wait_until(lambda: not psutil.pid_exists(int(begun.read_text() or -1)))
    assert [row["number"] for row in load_rows(tmp_path / "slow.json")] == [0]
    (tmp_path / "row0").unlink()
    subprocess.run([sys.executable, script, tmp_path, "quick"], check=True, timeout=PATIENCE_S)
    assert [row["square"] for row in load_rows(tmp_path / "slow.json")] == [0, 1, 4]
    assert not (tmp_path / "row0").exists()  # the row that was there was not computed again


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)
