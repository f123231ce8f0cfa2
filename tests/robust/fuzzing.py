"""Runs an action on many damaged inputs and counts what happens."""

from __future__ import annotations

import os
import traceback
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from proba.errors import ProbaError

MEMORY_BYTES = 500 << 20
"""No small file may make us hold more."""
counts = pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.slow)])
"""Damaged inputs of each kind: a few in every test run, many more in the long one."""


@dataclass
class Tally:
    """What became of the inputs."""

    accepted: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)


def fuzz(count: int, action: Callable[[np.random.Generator], None], *, memory: int = MEMORY_BYTES) -> Tally:
    """Call an action with a generator of each seed. It must work, or refuse its input as a user's mistake."""
    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracemalloc.start()
        try:
            for seed in range(count):
                _attempt(seed, action, tally, memory)
        finally:
            tracemalloc.stop()
    _record(tally, action)
    assert not tally.failures, f"{len(tally.failures)} of {count} inputs, e.g.\n" + "\n".join(tally.failures[:5])
    assert tally.accepted + tally.refused == count
    return tally


def _attempt(seed: int, action: Callable[[np.random.Generator], None], tally: Tally, memory: int) -> None:
    tracemalloc.reset_peak()
    held, _ = tracemalloc.get_traced_memory()
    try:
        action(np.random.default_rng(seed))
        accepted = True
    except ProbaError:
        accepted = False
    except SystemExit as error:
        accepted = error.code in (None, 0)
        if error.code not in (None, 0, 2):
            tally.failures.append(f"seed {seed}: exit code {error.code}")
            return
    except Exception:
        tally.failures.append(f"seed {seed}: " + "".join(traceback.format_exc().splitlines(keepends=True)[-7:]))
        return
    _, peak = tracemalloc.get_traced_memory()
    if peak - held > memory:
        tally.failures.append(f"seed {seed}: {(peak - held) >> 20} MB")
    elif accepted:
        tally.accepted += 1
    else:
        tally.refused += 1


def _record(tally: Tally, action: Callable) -> None:
    """One line for each run in the file that $PROBA_FUZZ_LOG names."""
    path = os.environ.get("PROBA_FUZZ_LOG")
    if path:
        with Path(path).open("a") as file:
            name = f"{action.__module__}.{action.__qualname__}"
            file.write(f"{name} accepted {tally.accepted} refused {tally.refused} failed {len(tally.failures)}\n")
            file.writelines("    " + line + "\n" for text in tally.failures for line in text.splitlines())
