"""The front door of the library: photos or matches in, reconstructions out. The commands go through it too."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Literal

from proba.cameras import CameraOptions, Focal, Share
from proba.io.colours import colour_points
from proba.io.matches_h5 import load_matches
from proba.io.video import FRAMES, photos_of
from proba.kernels import Device, evaluator
from proba.matches import Matches
from proba.matching import MatchOptions, PairOptions, match_folder
from proba.matching.folder import Observer as MatchObserver
from proba.pipeline import Observer, SolveOptions, SolveResult, Together, solve_matches
from proba.report import prepare_output, write_results
from proba.report.matching import matching_facts
from proba.solver import Hypotheses, SolverOptions
from proba.threads import set_threads

Pairs = Literal["auto", "exhaustive", "shortlist", "sequential"]


def reconstruct(
    images: str | Path,
    *,
    out: str | Path | None = None,
    matcher: str = "auto",
    masks: str | Path | None = None,
    weights: str | Path | None = None,
    pairs: Pairs = "auto",
    hypotheses: Hypotheses = "portfolio",
    share: Share = "camera",
    focal: Focal = "free",
    seed: int = 0,
    match_options: MatchOptions | None = None,
    options: SolveOptions | None = None,
    threads: int | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    match_observer: MatchObserver | None = None,
) -> SolveResult:
    """Reconstruct cameras and points from a folder of photos. Prints nothing.

    Args:
        images: Folder of photos, with subfolders, or a video.
        out: Folder for the matches, the model and the reports, as `proba run` writes them; None: nothing is kept.
        matcher: Name of a matcher (`proba match --list`).
        masks: Folder of masks named like the photos: white counts, black is ignored.
        weights: The matcher's own weights file.
        pairs: Which pairs of photos are compared.
        hypotheses: portfolio, or cold: the paper's strict regime.
        share: Which images share intrinsics.
        focal: Focal lengths from EXIF are ignored (free), used as a start (init), or held (fixed).
        seed: Same seed and threads: same result, bit for bit.
        match_options: All settings of the matching, instead of `matcher` and `pairs`.
        options: All settings after matching, instead of `hypotheses`, `share`, `focal` and `seed`.
        threads: Processor threads; None: all.
        resume: Go on with what an earlier call left in `out`.
        observer: Is told how far the solver is, e.g. a `proba.Recorder`, which writes evolution.npz.
        match_observer: Is told how far the matching is, e.g. a `proba.cli.match.PairBar`.
    """
    count = set_threads(threads)
    folder = _folder(out)
    with tempfile.TemporaryDirectory(prefix="proba-") as temporary:
        file = (folder or Path(temporary)) / "matches.h5"
        begin = time.perf_counter()
        photos, video = photos_of(Path(images), file.with_name(FRAMES), resume=resume)
        mode: Pairs = "sequential" if video and pairs == "auto" else pairs
        match_folder(
            photos,
            file,
            match_options or MatchOptions(matcher=matcher, pairs=PairOptions(mode=mode)),
            masks=None if masks is None else Path(masks),
            weights=None if weights is None else Path(weights),
            resume=resume,
            jobs=count,
            observer=match_observer,
        )
        return solve(
            file,
            out=folder,
            images=photos,
            options=options or solve_options(hypotheses, share, focal, seed),
            threads=count,
            resume=resume,
            observer=observer,
            seconds_before={"match": time.perf_counter() - begin},
        )


def solve(
    matches: Matches | str | Path,
    *,
    out: str | Path | None = None,
    images: str | Path | None = None,
    hypotheses: Hypotheses = "portfolio",
    share: Share = "camera",
    focal: Focal = "free",
    seed: int = 0,
    options: SolveOptions | None = None,
    threads: int | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    seconds_before: dict[str, float] | None = None,
) -> SolveResult:
    """Reconstruct cameras and points from pairwise matches. Prints nothing.

    Args:
        matches: The matches, or a file of them (h5 or npz).
        out: Folder for the model and the reports, as `proba solve` writes them; None: nothing is kept.
        images: Folder of the photos: their pixels refine coarse matches, colour the points and illustrate the report.
        hypotheses: portfolio, or cold: the paper's strict regime.
        share: Which images share intrinsics.
        focal: Known focal lengths are ignored (free), used as a start (init), or held (fixed).
        seed: Same seed and threads: same result, bit for bit.
        options: All settings, instead of `hypotheses`, `share`, `focal` and `seed`.
        threads: Processor threads; None: all.
        resume: Go on with what an earlier call left in `out`.
        observer: Is told how far the solver is, e.g. a `proba.Recorder`, which writes evolution.npz.
        seconds_before: Time of stages that came before, for the report.
    """
    set_threads(threads)
    data = matches if isinstance(matches, Matches) else load_matches(matches, images=images)
    options = options or solve_options(hypotheses, share, focal, seed)
    folder = _folder(out)
    checkpoints = None if folder is None else folder / "checkpoint"
    watch = Together(observer)
    photos = None if images is None else Path(images).absolute()
    result = solve_matches(data, options, images=photos, observer=watch, checkpoints=checkpoints, resume=resume)
    result.seconds = {**(seconds_before or {}), **result.seconds}
    watch.stage("writing")
    if photos is not None:
        for reconstruction in result.reconstructions:
            colour_points(reconstruction, photos)
    if folder is not None:
        matching = None if isinstance(matches, Matches) else matching_facts(Path(matches))
        write_results(folder, data, result, options, image_folder=photos, matching=matching)
        watch.written(folder)
    return result


def solve_options(
    hypotheses: Hypotheses = "portfolio",
    share: Share = "camera",
    focal: Focal = "free",
    seed: int = 0,
    device: Device = "cpu",
) -> SolveOptions:
    """The settings of all stages from the few that most people need. Refuses a device that is not there."""
    evaluator(device)
    return SolveOptions(
        seed=seed,
        cameras=CameraOptions(share=share, focal=focal),
        solver=SolverOptions(hypotheses=hypotheses, device=device),
    )


def _folder(out: str | Path | None) -> Path | None:
    if out is None:
        return None
    prepare_output(Path(out))
    return Path(out)
