"""The experiments of the paper and our own, one module each with an `EXPERIMENT`. `proba bench NAME` runs one."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proba.bench.experiment import Experiment

EXPERIMENTS: dict[str, str] = {
    "aggregate": "RRA and RTA by dataset, and every set by itself, beside COLMAP in the same run.",
    "eth3d": "ETH3D scene by scene, with accuracy and completeness of the cloud at 5 cm.",
    "noise": "Gaussian noise on a share r of the matches, standard deviation sigma: the paper's grid.",
    "outliers": "Accuracy against the share of gross outliers, 0 to 80 percent.",
    "ablation": "The paper's components one by one, then our own changes one by one.",
    "density": "Density of the view graph against the weight of the 3D term.",
    "isotropy": "Isotropic against anisotropic Gaussians.",
    "convergence": "Errors over the iterations, with and without the refinement.",
    "worlds": "Losses of both worlds over the iterations.",
    "basin": "How far from the truth a start may be: field of view, and random poses.",
    "matchers": "ProBA with each matcher: its matches against the truth, and what becomes of them.",
    "runtime": "Seconds from photos to result, against photos and edges, beside COLMAP.",
    "calibration": "Are the standard deviations of poses, focal lengths and points right?",
    "known": "Photos found in a model, and rough poses as a start of their own.",
    "lenses": "Scenes through every kind of lens: its parameters, and poses beside those of a pinhole.",
    "rigged": "What it is worth to know that cameras moved together: rigs and panoramas.",
    "surfaces": "Dense depth of rendered scenes: accuracy, completeness, and whether its deviations are right.",
}
"""Name (also of the module) and first line of the help of each; they load libraries, so only the wanted one is."""


def load_experiment(name: str) -> Experiment:
    """The experiment of a name in `EXPERIMENTS`."""
    return import_module(f"proba.bench.experiments.{name}").EXPERIMENT
