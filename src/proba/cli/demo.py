"""`proba demo`: make a scene, photograph it, reconstruct it, compare with the truth."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from tqdm import tqdm

from proba import api
from proba.cli.live import show_solve
from proba.cli.options import OUT
from proba.cli.progress import MatchBar
from proba.evaluation import evaluate
from proba.io.atomic import atomic_write_text
from proba.io.ground_truth import save_ground_truth
from proba.io.matches_h5 import save_matches
from proba.io.reconstruction_folder import load_reconstruction
from proba.pipeline import SolveOptions
from proba.report import DEMO_FILE, folder_summary, prepare_output
from proba.synthetic import Scene, make_scene, scene_matches
from proba.synthetic.render import render_images


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
    prepare_output(out)
    made = {"scene": scene, "n_images": n_images, "seed": seed}
    atomic_write_text(out / DEMO_FILE, json.dumps(made | {"outliers": outliers} if exact else made))
    world = make_scene(scene, n_images=n_images, seed=seed)
    save_ground_truth(world.ground_truth(), out / "gt.json")
    options = SolveOptions(seed=seed)
    with show_solve(out, quiet=quiet, live=live) as show:
        if exact:
            save_matches(out / "matches.h5", scene_matches(world, outliers=outliers, seed=seed))
            api.solve(out / "matches.h5", out=out, options=options, threads=threads, observer=show.observer)
        else:
            _photograph(world, out / "images", quiet)
            with MatchBar(quiet=quiet) as bar:
                api.reconstruct(
                    out / "images", out=out, options=options, threads=threads, observer=show.observer,
                    match_observer=bar,
                )  # fmt: skip
        print(folder_summary(out))
        _compare(world, out)
        show.linger(stay=stay)


def _photograph(world: Scene, folder: Path, quiet: bool) -> None:
    with tqdm(total=world.n_images, desc="rendering", unit=" images", disable=quiet or None, file=sys.stderr) as bar:
        render_images(world, folder, progress=lambda done, total: bar.update(done - bar.n))


def _compare(world: Scene, out: Path) -> None:
    """Write and print how far the result is from the truth."""
    metrics = evaluate(load_reconstruction(out), world.ground_truth())
    atomic_write_text(out / "eval.json", json.dumps(metrics, indent=1))
    names = ("rra@1", "rra@5", "rta@1", "rta@5", "auc@1", "auc@5")
    print("against the truth: " + ", ".join(f"{name} {metrics[name]:.1f}" for name in names))
    print(f"true field of view {world.fov_deg:.2f} deg, focal error {metrics['focal_error_pct']:.3f} %")
    print(f"open {out}/report.html in a browser; with your own photos: proba run PHOTOS --out RESULT")
