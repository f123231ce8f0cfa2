"""`proba bench`: the measurements behind the claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

What = Literal["kernel", "synthetic", "scaling"]


def main(
    what: Annotated[What, tyro.conf.Positional],
    /,
    json: Path | None = None,
    scenes: tuple[str, ...] = ("object", "ring", "room", "facade", "corridor"),
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4),
    outliers: tuple[float, ...] = (0.0, 0.1, 0.3),
    sizes: tuple[int, ...] = (10, 30, 100, 300, 1000),
    threads: int | None = None,
) -> None:
    """Measure speed and accuracy on this machine.

    kernel: matches per second of the fused kernel against the torch reference, eager and compiled.
    synthetic: pose accuracy on synthetic scenes with exact truth.
    scaling: time and memory of the solver by number of images, with a plot.

    Args:
        what: The benchmark.
        json: Write the numbers to this file (synthetic: after every run, and runs it already holds are not repeated).
        scenes: synthetic: which scenes.
        seeds: synthetic: which seeds; scene, cameras, true field of view and noise depend on it.
        outliers: synthetic: shares of gross outliers.
        sizes: scaling: numbers of images.
        threads: Processor threads; all by default.
    """
    from proba.threads import set_threads

    count = set_threads(threads)
    if json:
        json.parent.mkdir(parents=True, exist_ok=True)
    if what == "kernel":
        from proba.bench.kernel import main as bench_kernel

        bench_kernel(json)
    elif what == "synthetic":
        from proba.bench.synthetic import main as bench_synthetic

        bench_synthetic(json, scenes=scenes, seeds=seeds, outliers=outliers)
    else:
        from proba.bench.scaling import main as bench_scaling

        bench_scaling(json, sizes=sizes, threads=count)
