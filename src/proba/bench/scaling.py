"""Time and memory of the first-order solver against the number of images."""

from __future__ import annotations

import json as json_module
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from proba.io.atomic import atomic_file, atomic_write_text

ITERATIONS = 200
NEIGHBOURS = 20


def measure(n_images: int) -> dict:
    """A corridor of `n_images` views with 20 neighbours each; 200 iterations of the whole portfolio."""
    from proba.graph import GraphOptions, build_view_graphs
    from proba.memory import peak_rss_mb
    from proba.solver import SolverOptions, make_problem
    from proba.solver.loop import Solver
    from proba.synthetic import make_scene, scene_matches

    scene = make_scene("corridor", n_images=n_images, seed=0)
    matches = scene_matches(scene, max_neighbours=NEIGHBOURS, seed=0)
    graphs, _ = build_view_graphs(matches, GraphOptions(n_neig=NEIGHBOURS))
    options = SolverOptions(iterations=ITERATIONS)
    built_mb = peak_rss_mb()
    begin = time.perf_counter()
    solver = Solver(make_problem(matches, graphs[0], options), options)
    prepared = time.perf_counter()
    solver.run()
    return {
        "images": n_images,
        "edges": len(graphs[0].edges),
        "matches": sum(len(pair.points_i) for pair in matches.pairs.values()),
        "prepare_s": round(prepared - begin, 2),
        "ms_per_iteration": round(1e3 * (time.perf_counter() - prepared) / ITERATIONS, 2),
        "peak_mb_matches": round(built_mb),
        "peak_mb": round(peak_rss_mb()),
    }


def main(json: Path | None, *, sizes: tuple[int, ...], threads: int) -> list[dict]:
    """Each size in a process of its own, so that its peak memory is its own."""
    rows: list[dict] = []
    print(f"{'images':>6} {'edges':>7} {'matches':>10} {'prepare s':>9} {'ms/iteration':>12} {'peak MB':>8}")
    for size in sizes:
        code = (
            "import json; from proba.threads import set_threads; from proba.bench.scaling import measure; "
            f"set_threads({threads}); print(json.dumps(measure({size})))"
        )
        output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        row = json_module.loads(output.strip().splitlines()[-1])
        rows.append(row)
        print(
            f"{row['images']:>6} {row['edges']:>7} {row['matches']:>10} {row['prepare_s']:>9.1f} "
            f"{row['ms_per_iteration']:>12.1f} {row['peak_mb']:>8}",
            flush=True,
        )
    if len(rows) > 1:
        exponent = np.polyfit(np.log([r["edges"] for r in rows]), np.log([r["ms_per_iteration"] for r in rows]), 1)[0]
        print(f"time grows with edges to the power {exponent:.2f}")
    if json:
        atomic_write_text(json, json_module.dumps(rows, indent=1))
        plot(rows, json.with_suffix(".png"))
        print(f"wrote {json} and {json.with_suffix('.png')}")
    return rows


def plot(rows: list[dict], path: Path) -> None:
    """Two panels against edges, with a straight line through the largest run for comparison."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    edges = np.array([row["edges"] for row in rows], float)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6))
    for axis, key, label in (
        (axes[0], "ms_per_iteration", "ms per iteration (all worlds)"),
        (axes[1], "peak_mb", "peak memory (MB)"),
    ):
        values = np.array([row[key] for row in rows], float)
        axis.loglog(edges, values, "o-", label="measured")
        axis.loglog(edges, values[-1] * edges / edges[-1], "--", color="grey", label="linear")
        for x, y, row in zip(edges, values, rows, strict=True):
            axis.annotate(f"{row['images']} images", (x, y), textcoords="offset points", xytext=(4, -12), fontsize=8)
        axis.set(xlabel="edges of the view graph", ylabel=label)
        axis.legend()
    figure.tight_layout()
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=130)
