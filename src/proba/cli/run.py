"""`proba run`: a folder of photos in, a reconstruction out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import tyro

from proba.api import Pairs
from proba.cameras import Focal, Share
from proba.cli.live import linger, live_viewer
from proba.cli.match import MatchRequest, PairChoice, describe, match_with_progress
from proba.cli.options import OUT
from proba.cli.solve import solve_options, solve_to_folder
from proba.io.video import FRAMES, photos_of
from proba.kernels import Device
from proba.report import prepare_output
from proba.solver import Hypotheses
from proba.threads import set_threads


def main(
    images: Annotated[Path, tyro.conf.Positional],
    /,
    out: Annotated[Path, OUT],
    matcher: str = "auto",
    masks: Path | None = None,
    weights: Path | None = None,
    pairs: Pairs = "auto",
    pairs_file: Path | None = None,
    pair_filter: str | None = None,
    densify: bool = False,
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
    """Reconstruct cameras and points from a folder of photos: match, solve, refine, write.

    Writes OUT/matches.h5 and all that `proba solve` writes: OUT/sparse/0 (COLMAP format), OUT/points.ply,
    OUT/report.json and OUT/report.html.

    Args:
        images: Folder of photos (JPEG, PNG, TIFF, WebP; HEIC with pillow-heif), with subfolders; or a video (with
            PyAV), whose frames are written to OUT/frames.
        out: Folder for the results; made if it does not exist.
        matcher: Name of a matcher, see `proba match --list`. auto: SIFT, and XFeat where SIFT finds little.
        masks: Folder of masks named like the photos: white counts, black is ignored.
        weights: The matcher's own weights file, for machines without network.
        pairs: Which pairs: all of a small set, a shortlist of a large one (auto), or near ones of a video (sequential).
        pairs_file: Text file with the pairs to match, two image names a line, instead of --pairs.
        pair_filter: A Python function, package.module:function, that has the last word on which pairs are matched.
        densify: Add matches on a 64 x 64 grid, interpolated between the others and refined on the pixels.
        hypotheses: portfolio: several start fields of view, their mirror worlds, and one from two-view geometry. cold:
            the paper's strict regime, 45 degrees and its mirror.
        share: Images that share intrinsics: of one camera (equal size and EXIF camera), one folder, all, or none.
        focal: Focal lengths from EXIF are ignored (free), used as a start (init), or held (fixed).
        seed: Same seed and threads: same result, bit for bit.
        threads: Processor threads; all by default.
        device: cpu, or cuda: an NVIDIA GPU, with numba-cuda (`pip install 'proba-sfm[cuda]'`).
        resume: Continue a run that was interrupted or killed.
        quiet: No progress display.
        live: Show the solve in the browser while it runs.
        stay: With --live: show the result at the end, until Ctrl-C.
    """
    options = solve_options(hypotheses, share, focal, seed, device)
    count = set_threads(threads)
    file = out / "matches.h5"
    prepare_output(out)
    begin = time.perf_counter()
    images, video = photos_of(images, out / FRAMES, resume=resume)
    choice = PairChoice("sequential" if video and pairs == "auto" else pairs, pairs_file, pair_filter)
    request = MatchRequest(
        images=images, out=file, matcher=matcher, masks=masks, weights=weights, pairs=choice, densify=densify,
        resume=resume, jobs=count,
    )  # fmt: skip
    summary = match_with_progress(request, quiet=quiet)
    seconds = {"match": time.perf_counter() - begin}
    print(describe(summary))
    with live_viewer(live) as viewer:
        solve_to_folder(
            file,
            out,
            images=images,
            options=options,
            threads=count,
            resume=resume,
            quiet=quiet,
            seconds_before=seconds,
            viewer=viewer,
        )
        linger(viewer, out, stay=stay)
