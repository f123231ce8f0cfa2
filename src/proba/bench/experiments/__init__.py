"""The experiments of the paper and our own, one module each with an `EXPERIMENT`. `proba bench NAME` runs one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proba.bench.experiment import Experiment

EXPERIMENTS: dict[str, str] = {
    "matchers": "ProBA with each matcher: its matches against the truth, and what becomes of them.",
}
"""Name (also of the module) and first line of the help of each; they load libraries, so only the wanted one is."""


def load_experiment(name: str) -> Experiment:
    """The experiment of a name in `EXPERIMENTS`."""
    return import_module(f"proba.bench.experiments.{name}").EXPERIMENT
