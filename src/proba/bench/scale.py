"""Time and memory of a whole run after matching, on synthetic cities of a hundred images and more."""

from __future__ import annotations

import json as json_module
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proba.io.atomic import atomic_write_text
from proba.pipeline import Observer

SIZES = (100, 300, 1000, 3000)
KEYS = ("time_exponent", "wall_exponent", "memory_exponent", "ranks_agree", "speedup_2")
COLUMNS = ("images", "edges", "wall_s", "processor_s", "refine_processor_s", "peak_mb", "rra@5", "rta@5", "auc@5")


class StageClock(Observer):
    """Processor seconds of each stage of a run, by its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._stage, self._since = "solve", time.process_time()

    def stage(self, text: str) -> None:
        now = time.process_time()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._since
        self._stage, self._since = text, now


def make_set(folder: Path, n_images: int, seed: int) -> None:
    """The matches and the truth of a city, as files."""
    from proba.io import save_ground_truth, save_matches
    from proba.synthetic import CityOptions, city_matches, make_city

    city = make_city(CityOptions(images=n_images), seed=seed)
    save_matches(folder / "matches.h5", city_matches(city))
    save_ground_truth(city.ground_truth(), folder / "gt.json")


def run_set(folder: Path, threads: int, seed: int, clusters: int | str = "auto") -> dict:
    """Everything from the matches to the files of the result, in this process, after a small run to load the code."""
    from proba.api import solve
    from proba.graph import ClusterOptions
    from proba.memory import peak_rss_mb
    from proba.solve_options import SolveOptions
    from proba.synthetic import make_scene, scene_matches

    with tempfile.TemporaryDirectory() as first:
        solve(scene_matches(make_scene("room", n_images=8, seed=0), grid=16), out=first, threads=threads)
    before, clock, wall, processor = peak_rss_mb(), StageClock(), time.perf_counter(), time.process_time()
    options = SolveOptions(seed=seed, clusters=ClusterOptions(count=clusters))  # type: ignore[arg-type]
    result = solve(folder / "matches.h5", out=folder / "result", options=options, threads=threads, observer=clock)
    row = {"wall_s": time.perf_counter() - wall, "processor_s": time.process_time() - processor}
    clock.stage("end")
    stages = {name: round(seconds, 2) for name, seconds in clock.seconds.items() if not name.startswith("world ")}
    return {
        "edges": sum(len(piece.reconstruction.edges) for piece in result.pieces),
        "clusters_solved": sum(len(piece.clusters) for piece in result.pieces),
        **{name: round(value, 2) for name, value in row.items()},
        "wall_s_of": {name: round(seconds, 2) for name, seconds in result.seconds.items()},
        "processor_s_of": stages,
        "refine_processor_s": round(sum(stages.values()) - stages["solve"] - stages.get("writing", 0.0), 2),
        "program_mb": round(before),
        "peak_mb": round(peak_rss_mb()),
    }


def judged(folder: Path) -> dict:
    """The errors of a result against the truth."""
    from proba.evaluation import evaluate
    from proba.io import load_ground_truth
    from proba.io.reconstruction_folder import load_reconstruction

    scores = evaluate(load_reconstruction(folder / "result"), load_ground_truth(folder / "gt.json"), cloud=False)
    return {name: value if value is None else round(value, 2) for name, value in scores.items()}


def measure(n_images: int, *, threads: int, seed: int, clusters: int | str = "auto") -> dict:
    """One row. Each part has a process of its own, so that the peak memory is that of the run alone."""
    with tempfile.TemporaryDirectory(prefix="proba-scale-") as name:
        place = f"Path({name!r})"
        _elsewhere(f"make_set({place}, {n_images}, {seed})")
        row = {"images": n_images, "seed": seed, "threads": threads, "clusters": clusters}
        return row | _elsewhere(f"run_set({place}, {threads}, {seed}, {clusters!r})") | _elsewhere(f"judged({place})")


def _elsewhere(call: str) -> dict:
    """The result of a function of this module in a process of its own."""
    code = (
        "import json; from pathlib import Path; from proba.bench.scale import judged, make_set, run_set; "
        "from proba.bench.sharing_out import compare_workers; "
        f"print(json.dumps({call}))"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json_module.loads(output.strip().splitlines()[-1]) or {}


def exponents(rows: Sequence[dict]) -> dict[str, float | None]:
    """How time and memory grow with the edges: slopes of straight lines through the logarithms; None for one row.

    The time is that of the processors, which other programs on the machine do not lengthen. The memory is what a run
    needs beyond that of the program itself, which would flatten the line.
    """
    edges = np.log([row["edges"] for row in rows])
    values = {
        "time_exponent": [row["processor_s"] for row in rows],
        "wall_exponent": [row["wall_s"] for row in rows],
        "memory_exponent": [max(row["peak_mb"] - row["program_mb"], 1) for row in rows],
    }
    if len(set(edges.tolist())) < 2:
        return dict.fromkeys(values)
    return {name: round(float(np.polyfit(edges, np.log(each), 1)[0]), 3) for name, each in values.items()}


def main(
    json: Path | None,
    *,
    sizes: tuple[int, ...],
    threads: int,
    seed: int,
    clusters: int | str = "auto",
    workers_images: int = 0,
) -> dict:
    """Every size that the file does not hold yet; what else it holds stays. With `workers_images`, two workers are
    compared with one on a city of so many images."""
    found = json_module.loads(json.read_text("utf-8")) if json and json.is_file() else {}
    same = {"seed": seed, "threads": threads, "clusters": clusters}
    rows: list[dict] = [
        row for row in found.get("rows", []) if all(row.get(name, "auto") == value for name, value in same.items())
    ]
    print(" ".join(f"{name:>{max(len(name), 8)}}" for name in COLUMNS))
    for size in sizes:
        row = next((row for row in rows if row["images"] == size), None)
        if row is None:
            row = measure(size, threads=threads, seed=seed, clusters=clusters)
            rows = sorted([*rows, row], key=lambda row: row["images"])
        print(" ".join(f"{row[name]:>{max(len(name), 8)}}" for name in COLUMNS), flush=True)
        table = dict.fromkeys(KEYS) | {key: found[key] for key in KEYS if key in found} | exponents(rows)
        if json:
            atomic_write_text(json, json_module.dumps(table | {"rows": rows}, indent=1))
    if workers_images and found.get("ranks_agree") is None:
        table |= _elsewhere(f"compare_workers({workers_images}, threads=1, seed={seed})")
        if json:
            atomic_write_text(json, json_module.dumps(table | {"rows": rows}, indent=1))
    print(f"processor time grows with edges to the power {table['time_exponent']}, memory {table['memory_exponent']}")
    if table["ranks_agree"] is not None:
        told = "the same bits" if table["ranks_agree"] else "OTHER BITS"
        print(f"two workers give {told} as one, {table['speedup_2']} times as fast")
    return table | {"rows": rows}
