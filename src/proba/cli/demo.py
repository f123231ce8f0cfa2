"""`proba demo`: make a scene, reconstruct it, compare with the truth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from proba.cli.progress import ProgressBar
from proba.evaluation import evaluate
from proba.io.atomic import atomic_write_text
from proba.io.ground_truth import save_ground_truth
from proba.io.matches_h5 import save_matches
from proba.pipeline import SolveOptions, solve_matches
from proba.report import prepare_output, write_results
from proba.solver import SolverOptions
from proba.synthetic import make_scene, scene_matches
from proba.threads import set_threads


def main(
    out: Path,
    scene: Literal["object", "ring", "room", "facade", "corridor"] = "object",
    n_images: int = 20,
    outliers: float = 0.1,
    seed: int = 0,
    threads: int | None = None,
    quiet: bool = False,
) -> None:
    """Reconstruct a synthetic scene from its matches alone and compare with the exact truth.

    Writes the matches (OUT/matches.h5), the truth (OUT/gt.json), the reconstruction and its reports.

    Args:
        out: Folder for everything; made if it does not exist.
        scene: What to look at.
        n_images: Number of views.
        outliers: Share of matches that point to random places.
        seed: Changes scene, cameras and noise.
        threads: Processor threads; all by default.
        quiet: No progress display.
    """
    set_threads(threads)
    prepare_output(out)
    world = make_scene(scene, n_images=n_images, seed=seed)
    matches = scene_matches(world, outliers=outliers, seed=seed)
    truth = world.ground_truth()
    save_matches(out / "matches.h5", matches)
    save_ground_truth(truth, out / "gt.json")
    options = SolveOptions(solver=SolverOptions(seed=seed))
    with ProgressBar(quiet=quiet) as bar:
        result = solve_matches(matches, options, observer=bar)
        summary = write_results(out, matches, result, options)
    metrics = evaluate(result.reconstructions, truth)
    atomic_write_text(out / "eval.json", json.dumps(metrics, indent=1))
    print(summary)
    print("against the truth: " + ", ".join(f"{key} {metrics[key]:.1f}" for key in ("rra@1", "rta@1", "auc@1")))
    print(f"focal error {metrics['focal_error_pct']:.3f} %")
    print(f"look at {out}/report.html; the same again: proba solve {out}/matches.h5 --out {out}-2")
