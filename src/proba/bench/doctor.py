"""What this machine can do for ProBA: versions, matchers, the compiled kernel and the solver's loop, and the GPU."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import torch

from proba._version import __version__
from proba.bench.kernel import matches_per_call, random_problem
from proba.errors import ProbaError
from proba.graph import build_view_graphs
from proba.kernels import Device, Machine, machine
from proba.matching import matchers
from proba.memory import allowed_bytes
from proba.objective import Minibatch, evaluate
from proba.solver import Solver, SolverOptions, make_problem, solve_graph
from proba.synthetic import make_scene, scene_matches

PACKAGES = ("torch", "numba", "numba-cuda", "numpy", "scipy", "poselib", "kornia", "pycolmap", "dask", "distributed")
TOLERANCE = 2e-3
"""Largest difference from the reference, relative to the largest number of its kind, in single precision."""
LOOP_ITERATIONS = 100
COMPARED_ITERATIONS = 10
"""Iterations after which a device's loop is compared with the processor's. Later, rounding decides."""
LOOP_IMAGES = (12, 60)
LEAST_SECONDS = 0.5
CALLS_AT_ONCE = 5


def examine() -> dict[str, dict[str, str]]:
    """Findings by section, each a sentence or a number with its unit. Takes some seconds, a minute the first time."""
    processor, gpu = _device("cpu"), _device("cuda")
    return {
        "ProBA": {"version": __version__, "python": platform.python_version()},
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processors": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
            "memory that ProBA may hold": f"{allowed_bytes() / 1e9:.1f} GB",
        },
        "packages": {name: _version(name) for name in PACKAGES},
        "matchers": {name: entry.missing() or "ready" for name, entry in matchers().items()},
        "processor": processor,
        "GPU": _driver() | gpu,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _device(device: Device) -> dict[str, str]:
    """Whether kernel and loop work there, and how fast; or why there is none."""
    try:
        works = machine(device)
    except ProbaError as error:
        return {"state": str(error)}
    try:
        found = {
            "kernel": _verdict(difference(works), "reference"),
            "kernel speed": f"{kernel_speed(works) / 1e6:.0f} million matches a second",
        }
        if device != "cpu":
            found["loop"] = _verdict(loop_difference(device), f"processor after {COMPARED_ITERATIONS} iterations")
        speeds = (f"{loop_speed(device, n):.0f} with {n} images" for n in LOOP_IMAGES)
        return found | {"loop speed": f"{', '.join(speeds)}, iterations a second (object, 13 worlds)"}
    except Exception as error:  # whatever a driver throws: the report must say it
        return {"state": f"fails: {type(error).__name__}: {error}".splitlines()[0]}


def _verdict(worst: float, judge: str) -> str:
    return f"{'right' if worst < TOLERANCE else 'WRONG'}: at most {worst:.1e} from the {judge}"


def _driver() -> dict[str, str]:
    """What numba and torch say of a GPU, where there is one."""
    try:
        from numba import cuda

        if not cuda.is_available():
            return {}
        major, minor = cuda.get_current_device().compute_capability
        name = torch.cuda.get_device_name() if torch.cuda.is_available() else "not seen by this torch"
        return {"model": f"{name}, compute capability {major}.{minor}", "CUDA of torch": str(torch.version.cuda)}
    except Exception as error:  # whatever a driver throws: the report must say it
        return {"driver": f"fails: {type(error).__name__}: {error}".splitlines()[0]}


def difference(works: Machine) -> float:
    """Largest difference between a machine's kernel and the reference, over loss and all gradients."""
    problem = random_problem(images=6, edges=12, matches=200, batch=64, cells=8)
    found, wanted = works.evaluate(problem.to(works.home)), evaluate(_doubled(problem))
    names = ("edge_loss", "grad_pose", "grad_maps", "grad_log_tan")
    return max(_relative(getattr(found, name), getattr(wanted, name)) for name in names)


def _relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    here, there = (tensor.cpu().double().numpy() for tensor in (found, wanted))
    return float(np.abs(here - there).max() / np.abs(there).max())


def loop_difference(device: Device) -> float:
    """Largest difference between a device's solve and the processor's after a few iterations, over poses and maps."""
    matches = scene_matches(make_scene("object", n_images=6, seed=0), grid=16, seed=0)
    options = SolverOptions(iterations=LOOP_ITERATIONS, two_view_world=False)
    problem = make_problem(matches, build_view_graphs(matches)[0][0], options)
    states = []
    for place in (device, "cpu"):
        solver = Solver(problem, replace(options, device=place))
        for _ in range(COMPARED_ITERATIONS):
            solver.step()
        states.append(solver.worlds)
    names = ("parent_from_child", "maps", "log_tan", "edge_weight")
    return max(_relative(getattr(states[0], name), getattr(states[1], name)) for name in names)


def _doubled(problem: Minibatch) -> Minibatch:
    names = ("maps", "log_tan", "j_from_i", "edge_weight", "outlier_level")
    return replace(problem, **{name: getattr(problem, name).double() for name in names})


def kernel_speed(works: Machine) -> float:
    """Matches a second, loss and all gradients."""
    problem = random_problem(images=20, edges=100, matches=1024, batch=256).to(works.home)
    float(works.evaluate(problem).edge_loss.sum())  # a number at the host: a GPU has done all that was queued
    begin, calls = time.perf_counter(), 0
    while time.perf_counter() - begin < LEAST_SECONDS:
        for _ in range(CALLS_AT_ONCE):
            result = works.evaluate(problem)
        float(result.edge_loss.sum())
        calls += CALLS_AT_ONCE
    return calls * matches_per_call(problem) / (time.perf_counter() - begin)


def loop_speed(device: Device, n_images: int) -> float:
    """Iterations a second of a whole solve, its start left out."""
    matches = scene_matches(make_scene("object", n_images=n_images, seed=0), grid=32, seed=0)
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
