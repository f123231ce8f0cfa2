"""`proba demo`: make a scene, photograph it, reconstruct it, compare with the truth."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

from tqdm import tqdm

from proba.cli.live import linger, live_viewer
from proba.cli.match import MatchRequest, describe, match_with_progress
from proba.cli.options import OUT
from proba.cli.solve import solve_options, solve_to_folder
from proba.evaluation import evaluate
from proba.io.atomic import atomic_write_text
from proba.io.ground_truth import save_ground_truth
from proba.io.matches_h5 import save_matches
from proba.io.reconstruction_folder import load_reconstruction
from proba.report import prepare_output
from proba.synthetic import Scene, make_scene, scene_matches
from proba.synthetic.render import render_images
from proba.threads import set_threads


def main(
    out: Annotated[Path, OUT],
    scene: Literal["object", "ring", "room", "facade", "corridor"] = "object",
    n_images: int = 20,
    exact: bool = False,
    outliers: float = 0.1,
    seed: int = 0,
    threads: int | None = None,
    quiet: bool = False,
    live: bool = False,
    stay: bool = False,
) -> None:
    """Render photos of a synthetic scene, reconstruct it from them, and compare with the exact truth.

    Writes the photos (OUT/images), the truth (OUT/gt.json), the matches (OUT/matches.h5), the reconstruction and its
    reports.

    Args:
        out: Folder for everything; made if it does not exist.
        scene: What to look at.
        n_images: Number of views.
        exact: No photos: the scene's own correspondences with 1 px noise (faster).
        outliers: With --exact: share of matches that point to random places.
        seed: Changes scene, cameras and noise.
        threads: Processor threads; all by default.
        quiet: No progress display.
        live: Show the solve in the browser while it runs.
        stay: With --live: show the result at the end, until Ctrl-C.
    """
    count = set_threads(threads)
    prepare_output(out)
    world = make_scene(scene, n_images=n_images, seed=seed)
    truth = world.ground_truth()
    save_ground_truth(truth, out / "gt.json")
    begin = time.perf_counter()
    if exact:
        save_matches(out / "matches.h5", scene_matches(world, outliers=outliers, seed=seed))
    else:
        _photograph(world, out / "images", quiet)
        begin = time.perf_counter()
        request = MatchRequest(images=out / "images", out=out / "matches.h5", jobs=count)
        print(describe(match_with_progress(request, quiet=quiet)))
    with live_viewer(live) as viewer:
        solve_to_folder(
            out / "matches.h5",
            out,
            images=None if exact else out / "images",
            options=solve_options(seed=seed),
            threads=count,
            resume=False,
            quiet=quiet,
            seconds_before={"match": time.perf_counter() - begin},
            viewer=viewer,
        )
        metrics = evaluate(load_reconstruction(out), truth)
        atomic_write_text(out / "eval.json", json.dumps(metrics, indent=1))
        names = ("rra@1", "rra@5", "rta@1", "rta@5", "auc@1", "auc@5")
        print("against the truth: " + ", ".join(f"{name} {metrics[name]:.1f}" for name in names))
        print(f"true field of view {world.fov_deg:.2f} deg, focal error {metrics['focal_error_pct']:.3f} %")
        print(f"open {out}/report.html in a browser; with your own photos: proba run PHOTOS --out RESULT")
        linger(viewer, out, stay=stay)


def _photograph(world: Scene, folder: Path, quiet: bool) -> None:
    with tqdm(total=world.n_images, desc="rendering", unit=" images", disable=quiet or None, file=sys.stderr) as bar:
        render_images(world, folder, progress=lambda done, total: bar.update(done - bar.n))
