"""`proba render`: the story of a solve as a film, without a display."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import tyro

from proba.cli.options import OUT


def main(
    folder: Annotated[Path, tyro.conf.Positional],
    /,
    out: Annotated[Path, OUT],
    images: Path | None = None,
    world: str | None = None,
    piece: int = 0,
    width: int = 1280,
    height: int = 720,
    fps: int = 24,
    seconds: float = 9.0,
    ending: float = 4.0,
    quiet: bool = False,
) -> None:
    """Make a film of how a result came about: cameras fan out from one place, Gaussians shrink, edges earn weight.

    Args:
        folder: Folder that `proba solve` or `proba run` wrote.
        out: Film to write: .mp4, .gif, or a folder for numbered pictures.
        images: Folder of the photos, for colours; by default where they were during the run.
        world: Which hypothesis, by its name in report.json; by default the chosen one, or the best one from a cold
            start if the chosen one was seeded from two-view geometry.
        piece: Which connected piece, the largest is 0.
        width: Width of the film in pixels, an even number.
        height: Height of the film in pixels, an even number.
        fps: Pictures per second.
        seconds: Length of the part that shows the solve, in seconds.
        ending: How long to look at the refined result, in seconds.
        quiet: No progress display.
    """
    from tqdm import tqdm

    from proba.errors import InputError
    from proba.viewer.film import FilmOptions, film, film_kind, write_film
    from proba.viewer.scene import load_scene

    film_kind(out)
    options = FilmOptions(width=width, height=height, fps=fps, seconds=seconds, ending=ending, world=world)
    pieces = load_scene(folder, images=images)
    if not 0 <= piece < len(pieces):
        raise InputError(f"There is no piece {piece}; this result has {len(pieces)}, counted from 0.")
    frames = film(pieces[piece], options)
    with tqdm(total=options.n_frames, desc="drawing", unit="", disable=quiet or None, file=sys.stderr) as bar:
        write_film(out, frames, fps, progress=lambda done: bar.update(done - bar.n))
    print(f"wrote {out}")
