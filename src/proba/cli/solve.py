"""`proba solve`: matches in, reconstruction out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from proba.cli.progress import ProgressBar
from proba.io.colours import colour_points
from proba.io.matches_h5 import load_matches
from proba.matches import Matches
from proba.pipeline import SolveOptions, solve_matches
from proba.refine import RefineOptions
from proba.report import prepare_output, write_results
from proba.solver import SolverOptions
from proba.threads import set_threads

Hypotheses = Literal["portfolio", "cold"]
Share = Literal["camera", "folder", "all", "none"]
Focal = Literal["free", "init", "fixed"]


def main(
    matches: Annotated[Path, tyro.conf.Positional],
    /,
    out: Path,
    images: Path | None = None,
    hypotheses: Hypotheses = "portfolio",
    share: Share = "camera",
    focal: Focal = "free",
    seed: int = 0,
    threads: int | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> None:
    """Reconstruct cameras and points from a file of pairwise matches.

    Writes OUT/sparse/0 (COLMAP format; further connected pieces sparse/1 ...), OUT/points.ply, OUT/report.json and
    OUT/report.html. Ctrl-C once ends the search early and refines what is there.

    Args:
        matches: Matches file: h5 in hloc's dense layout (as `proba` writes it) or npz.
        out: Folder for the results; made if it does not exist.
        images: Folder of the photos: colours for the points, and image sizes for matches files that lack them.
        hypotheses: portfolio: several start fields of view, their mirror worlds, and one from two-view geometry. cold:
            the paper's strict regime, 45 degrees and its mirror.
        share: Images that share intrinsics: of one camera (equal size and EXIF camera), one folder, all, or none.
        focal: Focal lengths known beforehand are ignored (free), used as a start (init), or held (fixed).
        seed: Same seed and threads: same result, bit for bit.
        threads: Processor threads; all by default.
        resume: Continue a run that was interrupted or killed.
        quiet: No progress display.
    """
    set_threads(threads)
    data = load_matches(matches, images=images)
    prepare_output(out)
    solve_to_folder(
        data, out, images=images, options=solve_options(hypotheses, share, focal, seed), resume=resume, quiet=quiet
    )


def solve_options(hypotheses: Hypotheses, share: Share, focal: Focal, seed: int) -> SolveOptions:
    """The settings of all stages from those of the command line."""
    return SolveOptions(
        solver=SolverOptions(hypotheses=hypotheses, share=share, focal=focal, seed=seed),
        refine=RefineOptions(focal=focal, seed=seed),
    )


def solve_to_folder(
    data: Matches,
    out: Path,
    *,
    images: Path | None,
    options: SolveOptions,
    resume: bool,
    quiet: bool,
    seconds_before: dict[str, float] | None = None,
) -> None:
    """Solve, colour, write and print the summary. `seconds_before` are stages that came before."""
    with ProgressBar(quiet=quiet) as bar:
        result = solve_matches(data, options, observer=bar, checkpoints=out / "checkpoint", resume=resume)
        bar.stage("writing")
        if images:
            for reconstruction in result.reconstructions:
                colour_points(reconstruction, images)
        result.seconds = {**(seconds_before or {}), **result.seconds}
        summary = write_results(out, data, result, options)
    print(summary)
