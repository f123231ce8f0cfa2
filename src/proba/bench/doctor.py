"""What this machine can do for ProBA: versions, matchers, the compiled kernel and the solver's loop, and the GPU."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from proba._version import __version__
from proba.bench.kernel import matches_per_call, random_problem
from proba.errors import ProbaError
from proba.graph import build_view_graphs
from proba.kernels import Device, evaluator
from proba.matching import matchers
from proba.memory import allowed_bytes
from proba.objective import EdgeEvaluation, Minibatch, evaluate
from proba.solver import SolverOptions, solve_graph
from proba.synthetic import make_scene, scene_matches

PACKAGES = ("torch", "numba", "numba-cuda", "numpy", "scipy", "poselib", "kornia", "pycolmap", "dask", "distributed")
TOLERANCE = 2e-3
"""Largest difference from the reference, relative to the largest number of its kind, in single precision."""
LOOP_ITERATIONS = 100
LEAST_SECONDS = 0.5


def examine() -> dict[str, dict[str, str]]:
    """Findings by section, each a sentence or a number with its unit. Takes some seconds, a minute the first time."""
    return {
        "ProBA": {"version": __version__, "python": platform.python_version()},
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processors": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
            "memory that ProBA may hold": f"{allowed_bytes() / 1e9:.1f} GB",
        },
        "packages": {name: _version(name) for name in PACKAGES},
        "matchers": {name: entry.missing() or "ready" for name, entry in matchers().items()},
        "processor": _device("cpu"),
        "GPU": _device("cuda"),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _device(device: Device) -> dict[str, str]:
    """Whether kernel and loop work there, and how fast; or why there is none."""
    try:
        kernel = evaluator(device)
    except ProbaError as error:
        return {"state": str(error)}
    try:
        worst = difference(kernel)
        right = "right" if worst < TOLERANCE else "WRONG"
        return {
            "kernel": f"{right}: at most {worst:.1e} from the reference",
            "kernel speed": f"{kernel_speed(kernel) / 1e6:.0f} million matches a second",
            "loop": f"{loop_speed(device):.0f} iterations a second (object, 12 images, 13 worlds)",
        }
    except Exception as error:  # whatever a driver throws: the report must say it
        return {"state": f"fails: {type(error).__name__}: {error}".splitlines()[0]}


def difference(kernel: Callable[..., EdgeEvaluation]) -> float:
    """Largest difference between a kernel and the reference, over loss and all gradients."""
    problem = random_problem(images=6, edges=12, matches=200, batch=64, cells=8)
    found, wanted = kernel(problem), evaluate(_doubled(problem))
    worst = 0.0
    for name in ("edge_loss", "grad_pose", "grad_maps", "grad_log_tan"):
        here, there = (np.asarray(getattr(result, name), np.float64) for result in (found, wanted))
        worst = max(worst, float(np.abs(here - there).max() / np.abs(there).max()))
    return worst


def _doubled(problem: Minibatch) -> Minibatch:
    names = ("maps", "log_tan", "j_from_i", "edge_weight", "outlier_level")
    return replace(problem, **{name: getattr(problem, name).double() for name in names})


def kernel_speed(kernel: Callable[..., EdgeEvaluation]) -> float:
    """Matches a second, loss and all gradients."""
    problem = random_problem(images=20, edges=100, matches=1024, batch=256)
    kernel(problem)
    begin, calls = time.perf_counter(), 0
    while time.perf_counter() - begin < LEAST_SECONDS:
        kernel(problem)
        calls += 1
    return calls * matches_per_call(problem) / (time.perf_counter() - begin)


def loop_speed(device: Device) -> float:
    """Iterations a second of a whole solve, its start left out."""
    matches = scene_matches(make_scene("object", n_images=12, seed=0), grid=32, seed=0)
    graph = build_view_graphs(matches)[0][0]
    options = SolverOptions(iterations=LOOP_ITERATIONS, device=device, keep=())
    times: list[float] = []
    solve_graph(matches, graph, options, callback=lambda _: times.append(time.perf_counter()))
    return LOOP_ITERATIONS / (times[-1] - times[0])


def as_markdown(findings: dict[str, dict[str, str]]) -> str:
    """A block for an issue."""
    lines = []
    for section, entries in findings.items():
        lines.append(f"{section}:")
        lines += [f"  {name}: {text}" for name, text in entries.items()]
    return "```\n" + "\n".join(lines) + "\n```"
