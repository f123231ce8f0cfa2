"""`proba solve`: matches in, reconstruction out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from proba import api
from proba.api import solve_options
from proba.cameras import Focal, Share
from proba.cli.live import linger, live_viewer, watch
from proba.cli.options import OUT
from proba.cli.progress import ProgressBar
from proba.history.recorder import Recorder
from proba.kernels import Device
from proba.pipeline import SolveOptions, Together
from proba.report import folder_summary
from proba.solver import Hypotheses

if TYPE_CHECKING:
    from proba.viewer.server import Viewer


def main(
    matches: Annotated[Path, tyro.conf.Positional],
    /,
    out: Annotated[Path, OUT],
    images: Path | None = None,
    hypotheses: Hypotheses = "portfolio",
    share: Share = "camera",
    focal: Focal = "free",
    seed: int = 0,
    threads: int | None = None,
    device: Device = "cpu",
    resume: bool = False,
    quiet: bool = False,
    live: bool = False,
    stay: bool = False,
) -> None:
    """Reconstruct cameras and points from a file of pairwise matches.

    Writes OUT/sparse/0 (COLMAP format; further connected pieces sparse/1 ...), OUT/points.ply, OUT/report.json and
    OUT/report.html. Ctrl-C once ends the search early and refines what is there.

    Args:
        matches: Matches file: h5 in hloc's dense layout (as `proba` writes it) or npz.
        out: Folder for the results; made if it does not exist.
        images: Folder of the photos: their pixels refine coarse matches, colour the points and illustrate the report;
            and image sizes for matches files that lack them.
        hypotheses: portfolio: several start fields of view, their mirror worlds, and one from two-view geometry. cold:
            the paper's strict regime, 45 degrees and its mirror.
        share: Images that share intrinsics: of one camera (equal size and EXIF camera), one folder, all, or none.
        focal: Focal lengths known beforehand are ignored (free), used as a start (init), or held (fixed).
        seed: Same seed and threads: same result, bit for bit.
        threads: Processor threads; all by default.
        device: cpu, or cuda: an NVIDIA GPU, with numba-cuda (`pip install 'proba-sfm[cuda]'`).
        resume: Continue a run that was interrupted or killed.
        quiet: No progress display.
        live: Show the solve in the browser while it runs.
        stay: With --live: show the result at the end, until Ctrl-C.
    """
    options = solve_options(hypotheses, share, focal, seed, device)
    with live_viewer(live) as viewer:
        solve_to_folder(
            matches, out, images=images, options=options, threads=threads, resume=resume, quiet=quiet, viewer=viewer
        )
        linger(viewer, out, stay=stay)


def solve_to_folder(
    matches: Path,
    out: Path,
    *,
    images: Path | None,
    options: SolveOptions,
    threads: int | None,
    resume: bool,
    quiet: bool,
    seconds_before: dict[str, float] | None = None,
    viewer: Viewer | None = None,
) -> None:
    """Solve with a progress display and print the summary. `seconds_before` are stages that came before."""
    with ProgressBar(quiet=quiet) as bar:
        api.solve(
            matches,
            out=out,
            images=images,
            options=options,
            threads=threads,
            resume=resume,
            observer=Together(bar, watch(viewer), Recorder()),
            seconds_before=seconds_before,
        )
    print(folder_summary(out))
