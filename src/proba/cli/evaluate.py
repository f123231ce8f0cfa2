"""`proba eval`: a reconstruction against ground truth."""

from __future__ import annotations

import json as json_module
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from proba.evaluation import evaluate
from proba.io.atomic import atomic_write_text
from proba.io.dense_folder import load_dense
from proba.io.ground_truth import load_ground_truth, with_depth_folder
from proba.io.ply import read_ply
from proba.io.reconstruction_folder import load_reconstruction


def main(
    folder: Annotated[Path, tyro.conf.Positional],
    /,
    gt: Path,
    gt_depth: Path | None = None,
    depth_counts: float = 1000.0,
    depth_focal: float | None = None,
    gt_cloud: Path | None = None,
    json: Path | None = None,
) -> None:
    """Compare camera poses, focal lengths and points with ground truth.

    RRA and RTA count image pairs whose relative rotation and translation direction are within 1, 5 and 10 degrees, in
    percent of ALL pairs of the ground truth; a pair with an unregistered image is a failure.
    With true geometry also ACC (points close to it) and COMP (true points, seen by two cameras, that have a point
    close by), of the dense cloud where `proba dense` has made one, and the share of depths within their deviations.

    Args:
        folder: Folder that `proba solve` or `proba run` wrote, or a COLMAP model.
        gt: Ground truth: a gt.json, a COLMAP model folder, a nerfstudio transforms.json, or a scene of a dataset in its
            original layout (`proba bench datasets`).
        gt_depth: Folder of true depth images, 16 bit, named like the photos; 0 and 65535 mean nothing is known.
        depth_counts: Counts of a depth image for one unit of the ground truth: 1000 for millimetres.
        depth_focal: Focal length of the depth images in their own pixels; by default that of the photos.
        gt_cloud: A scan of the scene in the frame of the ground truth (PLY, its vertices).
        json: Also write the numbers to this file.
    """
    truth = load_ground_truth(gt)
    if gt_depth is not None:
        truth = with_depth_folder(truth, gt_depth, counts_per_unit=depth_counts, focal_px=depth_focal)
    if gt_cloud is not None:
        truth = replace(truth, points=read_ply(gt_cloud)["xyz"])
    pieces = load_reconstruction(folder)
    metrics = evaluate(pieces, truth, dense=[load_dense(folder, piece, k) for k, piece in enumerate(pieces)])
    for name, value in metrics.items():
        print(f"{name:>16}  {value:.2f}" if isinstance(value, float) else f"{name:>16}  {value}")
    if json:
        atomic_write_text(json, json_module.dumps(metrics, indent=1))
