"""How fast is the fused kernel, against the same objective in torch and against the machine's arithmetic peak?"""

from __future__ import annotations

import json as json_format
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numba as nb
import numpy as np
import torch
from torch import Tensor

from proba.geometry import se3
from proba.io.atomic import atomic_write_text
from proba.kernels import cpu
from proba.objective import Minibatch, ObjectiveOptions, PackedMatches, edge_losses, evaluate

FLOPS_PER_MATCH = 438
"""Additions, multiplications and divisions of the closed forms (`proba.kernels`) for loss and all gradients of one
match, counted by hand. Exponentials and logarithms count as their shortest polynomials, those of sixteen lanes. The
search of map cells, range reductions, guards, masks and padding serve the machine and count nothing.

| part | flops |
|---|---|
| bilinear samples: two channels at two points (4 x 9) | 36 |
| exponentials (4 x 7) | 28 |
| 2D terms: ray and transform 20, loss 28, gradients 23, depth 6 (2 x 77) | 154 |
| 3D term, its gradients, those of depths and variances | 51 |
| logarithms (2 x 10), sum of the loss (18) | 38 |
| inlier posterior 12, weights on the map gradients 5, sums 8 | 25 |
| sums for the gradients of poses and focals (2 x 33) | 66 |
| map gradients to four cells: two channels at two points (2 x 20) | 40 |
"""


PORTFOLIO = 13
"""Worlds that a solve starts with (`proba.solver.hypotheses`): every implementation gets all of them at once."""


def matches_per_call(problem: Minibatch) -> int:
    """A match that is evaluated in one world counts as one."""
    return int(problem.packed.window_size(problem.batch).sum()) * len(problem.maps)


def random_problem(
    *,
    images: int = 50,
    edges: int = 300,
    matches: int | list[int] = 4096,
    worlds: int = 2,
    cells: int = 32,
    batch: int = 512,
    channels: int = 2,
    motion: float = 0.1,
    outlier_level: float = 20.0,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Minibatch:
    """Random cameras, maps and matches. `matches` is the count of every edge, or of each; `motion` the twists' size."""
    random = torch.Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(images), 2)  # [N (N-1) / 2, 2]
    chosen = torch.randperm(len(pairs), generator=random)[:edges].sort().values  # [E]
    counts = [matches] * len(chosen) if isinstance(matches, int) else matches
    count = torch.tensor(counts, dtype=torch.int64)  # [E]
    total = int(count.sum())
    extent = torch.tensor([[1.0, 0.75], [0.75, 1.0]]).repeat(images, 1)[:images]  # [N, 2]
    image = pairs[chosen].repeat_interleave(count, 0)  # [M, 2]
    uniform = 2 * torch.rand(total, 2, 2, generator=random) - 1  # [M, 2, 2]
    points = uniform * extent[image]  # [M, 2, 2]

    def normal(*shape: int, scale: float) -> Tensor:
        return (torch.randn(*shape, generator=random, dtype=torch.float64) * scale).to(dtype)

    maps = normal(worlds, images, cells + 1, cells + 1, channels, scale=0.3)
    maps[..., 1] -= 4.0
    return Minibatch(
        packed=PackedMatches(
            edges=pairs[chosen].to(torch.int32),
            offset=count.cumsum(0) - count,
            count=count,
            x_i=points[:, 0, 0].contiguous(),
            y_i=points[:, 0, 1].contiguous(),
            x_j=points[:, 1, 0].contiguous(),
            y_j=points[:, 1, 1].contiguous(),
            extent=extent,
        ),
        start=(torch.rand(len(count), generator=random) * count).long(),
        batch=batch,
        maps=maps,
        log_tan=normal(worlds, images, 2, scale=0.1) - 0.5,
        j_from_i=se3.exp(normal(worlds, len(count), 6, scale=motion)),
        edge_weight=torch.rand(worlds, len(count), generator=random).to(dtype),
        outlier_level=torch.full((worlds,), outlier_level, dtype=dtype),
    )


@nb.njit(fastmath={"contract", "nsz"}, nogil=True)
def _multiply_add(factor, rounds):
    """Twelve independent chains of eight-lane multiply-adds: as much arithmetic as two pipes can do."""
    values = np.zeros(96, np.float32)
    addend = np.float32(1e-4)
    for _ in range(rounds):
        for k in range(96):
            values[k] = values[k] * factor + addend
    return values.sum()


def _on_two_threads(pool: ThreadPoolExecutor, rounds: int) -> None:
    other = pool.submit(_multiply_add, np.float32(0.999), rounds)
    _multiply_add(np.float32(0.999), rounds)
    other.result()


LEAST_SECONDS = 0.1
"""A sample is as many calls in a row as take this long, since the solver makes thousands in a row."""


def _seconds(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Of one call, in the mean over a sample."""
    begin, calls = clock(), 0
    while calls == 0 or clock() - begin < LEAST_SECONDS:
        call()
        calls += 1
    return (clock() - begin) / calls


def run_kernel_benchmark(
    *,
    problem: Minibatch | None = None,
    repeats: int = 15,
    with_compile: bool = True,
    options: ObjectiveOptions | None = None,
) -> dict[str, float]:
    """Matches a second (loss and all gradients) of each implementation, and their ratios.

    The repeats of all implementations are interleaved and medians taken, so that a busy machine slows all alike.

    Returns:
        `fused_1`, `fused_2` (threads), `eager`, `compile` (torch on two threads, float32): matches a second;
        `ratio_eager`, `ratio_compile`: fused_2 against them; `peak_gflops`: measured arithmetic peak of two
        threads; `peak_share`: share of it that fused_2 reaches (best against best run); `ratio_eager_core`: one
        thread against one thread in processor time, which a busy machine distorts least.
    """
    problem = problem or random_problem(worlds=PORTFOLIO)
    options = options or ObjectiveOptions()
    spaces = {1: cpu.Workspace(), 2: cpu.Workspace()}
    pool = ThreadPoolExecutor(1)
    rounds = 5_000_000  # some ten milliseconds: starting a thread must not count
    calls: dict[str, Callable[[], object]] = {
        "fused_1": lambda: cpu.evaluate(problem, options, threads=1, workspace=spaces[1]),
        "fused_2": lambda: cpu.evaluate(problem, options, threads=2, workspace=spaces[2]),
        "eager": lambda: evaluate(problem, options),
        "peak": lambda: _on_two_threads(pool, rounds),
    }
    if with_compile:
        compiled = torch.compile(edge_losses)
        calls["compile"] = lambda: evaluate(problem, options, losses=compiled)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for call in calls.values():  # compile and warm up
            call()
            call()
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(repeats):
            for name, call in calls.items():
                call()  # so that nobody pays for the caches and spinning threads that the one before left behind
                seconds[name].append(_seconds(call))
        torch.set_num_threads(1)
        core = {
            name: median(_seconds(calls[name], time.process_time) for _ in range(repeats))
            for name in ("fused_1", "eager")
        }
    finally:
        torch.set_num_threads(threads_before)
        pool.shutdown()
    rate = {name: matches_per_call(problem) / median(seconds[name]) for name in calls if name != "peak"}
    peak = 2 * 2 * 96 * rounds / min(seconds["peak"])
    useful = FLOPS_PER_MATCH * matches_per_call(problem) / min(seconds["fused_2"])
    result = {**rate, "ratio_eager": rate["fused_2"] / rate["eager"]}
    if with_compile:
        result["ratio_compile"] = rate["fused_2"] / rate["compile"]
    result["ratio_eager_core"] = core["eager"] / core["fused_1"]
    return {**result, "peak_gflops": peak / 1e9, "peak_share": useful / peak}


def main(json: Path | None = None) -> None:
    """Measure and print the kernel's throughput; `json` is where to write the numbers."""
    result = run_kernel_benchmark()
    for name, text in (
        ("fused_1", "fused kernel, 1 thread"),
        ("fused_2", "fused kernel, 2 threads"),
        ("eager", "torch autograd, 2 threads"),
        ("compile", "torch.compile, 2 threads"),
    ):
        print(f"{text:28s} {result[name] / 1e6:9.2f} million matches/s")
    print(f"fused against eager {result['ratio_eager']:.0f}x, against torch.compile {result['ratio_compile']:.0f}x")
    print(f"one thread against one thread of eager torch, processor time {result['ratio_eager_core']:.0f}x")
    print(f"share of the arithmetic peak ({result['peak_gflops']:.0f} Gflop/s): {result['peak_share']:.0%}")
    if json is not None:
        atomic_write_text(json, json_format.dumps(result, indent=2) + "\n")
