"""One place that decides how many processor threads are used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import numba
import torch
from threadpoolctl import threadpool_limits

from proba.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def set_threads(count: int | None) -> int:
    """Threads of torch and of the kernels; None: all that this process may use."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    count = available if count is None else count
    if count < 1:
        raise InputError(f"--threads must be at least 1, not {count}")
    count = min(count, int(numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    torch.set_num_threads(count)
    numba.set_num_threads(count)
    return count


@contextmanager
def one_library_thread() -> Iterator[None]:
    """For work on small arrays, where the threads of torch and BLAS cost more than they bring.

    They wait for each other in a spinning loop: next to other programs the refinement took six times as long, and the
    exponentials of 546 numbers 0.7 ms, because the mathematical library within torch has threads of its own.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def pool() -> ThreadPoolExecutor:
    """Threads for compiled functions that do not hold the interpreter's lock."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="proba")


def in_parallel(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Results of a function that does not hold the interpreter's lock, in the order of the items, on all threads."""
    count = numba.get_num_threads()
    shares = [items[k::count] for k in range(count)]
    others = [pool().submit(lambda share: [work(item) for item in share], share) for share in shares[1:]]
    results: list[Result] = [None] * len(items)  # type: ignore[list-item]
    results[::count] = [work(item) for item in shares[0]]
    for k, other in enumerate(others, start=1):
        results[k::count] = other.result()
    return results
