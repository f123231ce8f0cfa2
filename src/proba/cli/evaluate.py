"""`proba eval`: a reconstruction against ground truth."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import tyro

from proba.evaluation import evaluate
from proba.io.atomic import atomic_write_text
from proba.io.ground_truth import load_ground_truth
from proba.io.reconstruction_folder import load_reconstruction


def main(folder: Annotated[Path, tyro.conf.Positional], /, gt: Path, json: Path | None = None) -> None:
    """Compare camera poses, focal lengths and points with ground truth.

    RRA and RTA count image pairs whose relative rotation and translation direction are within 1, 5 and 10 degrees, in
    percent of ALL pairs of the ground truth; a pair with an unregistered image is a failure.

    Args:
        folder: Folder that `proba solve` or `proba run` wrote, or a COLMAP model.
        gt: Ground truth: a gt.json, a COLMAP model folder, a nerfstudio transforms.json, or a scene of a dataset in its
            original layout (`proba bench datasets`).
        json: Also write the numbers to this file.
    """
    metrics = evaluate(load_reconstruction(folder), load_ground_truth(gt))
    for name, value in metrics.items():
        print(f"{name:>16}  {value:.2f}" if isinstance(value, float) else f"{name:>16}  {value}")
    if json:
        atomic_write_text(json, json_module.dumps(metrics, indent=1))
