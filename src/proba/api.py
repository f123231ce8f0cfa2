"""The front door of the library: photos or matches in, reconstructions out. The commands go through it too."""

from __future__ import annotations

import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from proba.cameras import AUTO, EQUIRECTANGULAR, CameraOptions, no_known_focal
from proba.clusters import Dividing
from proba.dense.dense_depth import DenseObserver, DenseOptions, DenseResult, dense_depth
from proba.errors import GeometryError, InputError
from proba.evaluation.poses import match_names
from proba.history.evolution import EVOLUTION_FILE
from proba.io.atomic import all_or_nothing, remove
from proba.io.colours import colour_points
from proba.io.dense_folder import DensePiece, begin_dense, fingerprint, finish_dense, remove_work
from proba.io.ground_truth import load_ground_truth
from proba.io.images import count_photos, tells_focal
from proba.io.intrinsics import read_intrinsics
from proba.io.lock import locked
from proba.io.matches_h5 import load_matches
from proba.io.panoramas import RIG_CONFIG, views_of
from proba.io.photo_folder import mask_folder, photo_folder
from proba.io.reconstruction_folder import load_reconstruction, save_reconstruction
from proba.io.rig_files import read_rigs
from proba.io.solver_folder import SolverFolder, open_solver_folder
from proba.io.video import FRAMES, check_photo_source, is_video, photos_of
from proba.kernels import machine
from proba.localize import FEATURES, Localized, LocalizeOptions, Localizer
from proba.matches import Matches
from proba.matching import MatchOptions, MatchSummary, check_match_options, match_folder
from proba.matching.folder import Observer as MatchObserver
from proba.memory import set_memory
from proba.pipeline import Observer, SolveOptions, SolveResult, Together, refine_solved, solve_matches
from proba.reconstruction import Reconstruction
from proba.refine import RefineOptions
from proba.refine.given_cameras import in_given_cameras
from proba.refine.normal_equations import require_memory
from proba.report import judge, output_folder, tell_of_dense, write_results
from proba.report.matching import matching_facts
from proba.tasks import Engine, WorkerOptions, open_engine
from proba.threads import set_threads


def reconstruct(
    images: str | Path,
    *,
    out: str | Path | None = None,
    match: MatchOptions | None = None,
    options: SolveOptions | None = None,
    threads: int | None = None,
    memory: float | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    match_observer: MatchObserver | None = None,
) -> SolveResult:
    """Reconstruct cameras and points from a folder of photos. Prints nothing.

    Args:
        images: Folder of photos, with subfolders, or a video.
        out: Folder for the matches, the model and the reports, as `proba run` writes them; None: nothing is kept.
        match: Settings of the matching.
        options: Settings of everything after the matching.
        threads: Processor threads; None: all.
        memory: Gigabytes that the process may hold; None: four fifths of what the machine has left.
        workers: Processes on this machine that match and solve clusters, each with these threads and this memory;
            None: this one.
        cluster: Address of a Dask scheduler whose workers do that instead, e.g. tcp://10.0.0.1:8786.
        resume: Go on with what an earlier call left in `out`.
        observer: Is told how far the solver is, e.g. a `proba.Recorder`, which writes evolution.npz.
        match_observer: Is told how far the matching is.
    """
    match, options = match or MatchOptions(), options or SolveOptions()
    count = set_threads(threads)
    set_memory(memory)
    _check_inputs(images, match, options)
    folder = None if out is None else Path(out)
    by = WorkerOptions(workers=workers, cluster=cluster, threads=threads, memory=memory)
    with _work_folder(folder) as work, open_engine(by) as engine:
        begin, file = time.perf_counter(), work / "matches.h5"
        photos, match = _photos(Path(images), work / FRAMES, match, resume)
        if options.cameras.model == EQUIRECTANGULAR:
            photos, match, options = _views(photos, work, match, options, resume)
        match = replace(match, graph_neighbours=match.graph_neighbours or options.graph.n_neig)
        require_memory(count_photos(photos))
        match_folder(photos, file, match, resume=resume, jobs=count, observer=match_observer, engine=engine)
        before = {"match": time.perf_counter() - begin}
        set_threads(count)
        return _solve(file, photos, folder, options, resume, observer, before, engine)


def match(
    images: str | Path,
    *,
    out: str | Path,
    options: MatchOptions | None = None,
    jobs: int | None = None,
    memory: float | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    observer: MatchObserver | None = None,
) -> MatchSummary:
    """Match a folder of photos pair by pair, and verify the matches. Prints nothing.

    Args:
        images: Folder of photos, with subfolders, or a video, whose frames are written to `<out>.frames`.
        out: Matches file to write (h5).
        options: Settings of the matching.
        jobs: Pairs at a time; None: as many as there are processors.
        memory: Gigabytes that the process may hold; None: four fifths of what the machine has left.
        workers: Processes on this machine that match, each with this memory; None: this one.
        cluster: Address of a Dask scheduler whose workers do that instead, e.g. tcp://10.0.0.1:8786.
        resume: Keep the pairs that an earlier call has finished.
        observer: Is told how far the matching is.
    """
    options, file = options or MatchOptions(), Path(out)
    set_memory(memory)
    _check_inputs(images, options)
    by = WorkerOptions(workers=workers, cluster=cluster, memory=memory)
    with locked(file.parent, f".{file.name}.lock"), open_engine(by) as engine:
        photos, options = _photos(Path(images), file.with_name(f"{file.name}.{FRAMES}"), options, resume)
        return match_folder(photos, file, options, resume=resume, jobs=jobs, observer=observer, engine=engine)


def solve(
    matches: Matches | str | Path,
    *,
    out: str | Path | None = None,
    images: str | Path | None = None,
    options: SolveOptions | None = None,
    threads: int | None = None,
    memory: float | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    resume: bool = False,
    observer: Observer | None = None,
) -> SolveResult:
    """Reconstruct cameras and points from pairwise matches. Prints nothing.

    Args:
        matches: The matches, or a file of them (h5 or npz).
        out: Folder for the model and the reports, as `proba solve` writes them; None: nothing is kept.
        images: Folder of the photos: their pixels refine coarse matches, colour the points and illustrate the report.
        options: Settings of all stages.
        threads: Processor threads; None: all.
        memory: Gigabytes that the process may hold; None: four fifths of what the machine has left.
        workers: Processes on this machine that solve clusters, each with these threads and this memory;
            None: this one.
        cluster: Address of a Dask scheduler whose workers do that instead, e.g. tcp://10.0.0.1:8786.
        resume: Go on with what an earlier call left in `out`.
        observer: Is told how far the solver is, e.g. a `proba.Recorder`, which writes evolution.npz.
    """
    options = options or SolveOptions()
    set_threads(threads)
    set_memory(memory)
    machine(options.solver.device)
    folder, photos = (None if path is None else Path(path) for path in (out, images))
    by = WorkerOptions(workers=workers, cluster=cluster, threads=threads, memory=memory)
    with nullcontext() if folder is None else output_folder(folder), open_engine(by) as engine:
        return _solve(matches, photos, folder, options, resume, observer, {}, engine)


def _solve(
    matches: Matches | str | Path,
    images: Path | None,
    folder: Path | None,
    options: SolveOptions,
    resume: bool,
    observer: Observer | None,
    seconds_before: dict[str, float],
    engine: Engine,
) -> SolveResult:
    """Solve, colour, and write what a folder of results holds. `seconds_before` are stages that came before."""
    data = matches if isinstance(matches, Matches) else load_matches(matches, images=images)
    matching = None if isinstance(matches, Matches) else matching_facts(Path(matches))
    photos = None if images is None else images.absolute()
    checkpoints = None if folder is None else folder / "checkpoint"
    watch = Together(observer)
    result = solve_matches(
        data,
        options,
        images=photos,
        observer=watch,
        checkpoints=checkpoints,
        resume=resume,
        keep=folder,
        matches_file=None if isinstance(matches, Matches) else Path(matches).absolute(),
        divider=Dividing(engine=engine, checkpoints=checkpoints, resume=resume),
    )
    result.seconds = {**seconds_before, **result.seconds}
    _write(result, folder, data, options, photos, matching, watch)
    if folder is not None and not result.interrupted:  # a finished run needs no checkpoints
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    return result


def refine_folder(
    folder: str | Path,
    *,
    out: str | Path | None = None,
    images: str | Path | None = None,
    matches: str | Path | None = None,
    options: RefineOptions | None = None,
    threads: int | None = None,
    memory: float | None = None,
    observer: Observer | None = None,
) -> SolveResult:
    """The refinement alone, from what the solver left in a result folder. Prints nothing.

    With the same settings and threads the result is that of the run that solved, bit for bit.

    Args:
        folder: Result folder of `proba run` or `proba solve`.
        out: Folder for the model and the reports; None: `folder` itself.
        images: Folder of the photos; None: where they were.
        matches: The file of the matches that were solved; None: the one in `folder`, or where it was.
        options: Settings of the refinement. What else was set is kept.
        threads: Processor threads; None: all.
        memory: Gigabytes that the process may hold; None: four fifths of what the machine has left.
        observer: Is told which stage runs.
    """
    set_threads(threads)
    set_memory(memory)
    source, target = Path(folder), Path(folder if out is None else out)
    kept = open_solver_folder(source)
    photos = _kept_photos(kept, None if images is None else Path(images))
    file = _kept_matches(kept, source, None if matches is None else Path(matches))
    data, matching = load_matches(file, images=photos), matching_facts(file)
    watch = Together(observer)
    with output_folder(target):
        result, settings = refine_solved(kept, data, options, images=photos, observer=watch)
        _write(result, target, data, settings, photos, matching, watch)
    return result


def dense_folder(
    folder: str | Path,
    *,
    images: str | Path | None = None,
    masks: str | Path | None = None,
    cameras: str | Path | None = None,
    out: str | Path | None = None,
    options: DenseOptions | None = None,
    threads: int | None = None,
    memory: float | None = None,
    resume: bool = False,
    observer: DenseObserver | None = None,
) -> list[DenseResult]:
    """Depth, normal and standard deviation at every pixel of every photo of a result, and dense clouds.

    Writes FOLDER/dense and puts the dense cloud into FOLDER/points.ply. Prints nothing. Returns what was found for each
    connected piece.

    Args:
        folder: Result folder of `proba run` or `proba solve`, or any with COLMAP models in sparse/0, sparse/1, ...
        images: Folder of the photos; None: where they were.
        masks: Folder of masks named like the photos: white counts, black gets no depth; None: as in the matching.
        cameras: Cameras that are known (gt.json, COLMAP model, transforms.json) to take instead of the result's own;
            the points of its tracks are placed anew. Needs `out`.
        out: Folder for the model and its dense depth; None: `folder` itself.
        options: Settings of the dense depth.
        threads: Processor threads; None: all.
        memory: Gigabytes that the process may hold; None: four fifths of what the machine has left.
        resume: Keep the images that an earlier call has finished.
        observer: Is told how far the work is.
    """
    options, source = options or DenseOptions(), Path(folder)
    target = source if out is None else Path(out)
    if cameras is not None and target.absolute() == source.absolute():
        raise InputError(f"{folder} keeps its own cameras. Give another folder for the given ones with --out.")
    set_threads(threads)
    set_memory(memory)
    pieces = load_reconstruction(source)
    if cameras is not None:
        truth = load_ground_truth(cameras)
        pieces = [in_given_cameras(pieces[0], truth, match_names(pieces[0].image_names, truth.names))]
    names = [name for piece in pieces for name in piece.image_names]
    photos = photo_folder(source, names, None if images is None else Path(images))
    white = mask_folder(source, None if masks is None else Path(masks))
    with locked(target):
        if target != source:
            save_reconstruction(pieces, target)
            pieces = load_reconstruction(target)  # with the last bits that a file keeps
        chosen = {**asdict(options), "masks": white and str(white.resolve())}  # other masks, other depth
        index = begin_dense(target, [fingerprint(piece) for piece in pieces], chosen, resume=resume)
        with all_or_nothing(target):
            results = [
                dense_depth(piece, photos, DensePiece(target, k), options, masks=white, observer=observer)
                for k, piece in enumerate(pieces)
            ]
            found = [result.facts() for result in results]
            finish_dense(target, index, pieces[0], results[0].cloud, found)
            tell_of_dense(target, found)
        remove_work(target)
    return results


def localize(
    folder: str | Path,
    photos: Sequence[str | Path],
    *,
    images: str | Path | None = None,
    piece: int = 0,
    options: LocalizeOptions | None = None,
    threads: int | None = None,
) -> list[Localized | GeometryError]:
    """Where photos were taken, in a model that is there already. Prints nothing.

    Returns a pose with its covariance for each photo, or why there is none. The features of the model's photos are kept
    in FOLDER/features: the first call makes them.

    Args:
        folder: Result folder of `proba run` or `proba solve`.
        photos: Files.
        images: Folder of the model's photos; None: where they were.
        piece: Which connected piece of the result, the largest is 0.
        options: Settings.
        threads: Processor threads; None: all.
    """
    set_threads(threads)
    source = Path(folder)
    model = Reconstruction.load(source, piece)
    place = photo_folder(source, model.image_names, None if images is None else Path(images))
    with locked(source):
        localizer = Localizer(
            reconstruction=model, photos=place, folder=source / FEATURES, options=options or LocalizeOptions()
        )
        return [localizer.localize_or_say(Path(path)) for path in photos]


def _kept_photos(kept: SolverFolder, given: Path | None) -> Path | None:
    """The photos of a solve before, as an absolute path."""
    if given is not None:
        return given.absolute()
    if kept.images is None:
        return None
    if not Path(kept.images).is_dir():
        warnings.warn(f"the photos are no longer in {kept.images}; give their folder with --images", stacklevel=2)
        return None
    return Path(kept.images)


def _kept_matches(kept: SolverFolder, folder: Path, given: Path | None) -> Path:
    """The file of the matches of a solve before."""
    if given is not None:
        return given
    candidates = [folder / "matches.h5", *([] if kept.matches is None else [Path(kept.matches)])]
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise InputError(f"the matches that were solved are not in {candidates[-1]}; give their file with --matches")
    return found


def _write(
    result: SolveResult,
    folder: Path | None,
    data: Matches,
    options: SolveOptions,
    photos: Path | None,
    matching: dict | None,
    watch: Together,
) -> None:
    """Colour the points, and write what a folder of results holds."""
    watch.stage("writing")
    if photos is not None:
        for reconstruction in result.reconstructions:
            colour_points(reconstruction, photos)
    if folder is not None:
        with all_or_nothing(folder):  # the history belongs to the result
            write_results(folder, data, result, options, image_folder=photos, matching=matching)
            remove(folder / EVOLUTION_FILE)
            watch.written(folder)
    else:
        result.verdict = judge(data, result)


def _check_inputs(images: str | Path, match: MatchOptions, options: SolveOptions | None = None) -> None:
    """Refuse what cannot work before any work is done."""
    check_match_options(match)
    if options is not None:
        machine(options.solver.device)
    check_photo_source(Path(images))
    cameras = CameraOptions() if options is None else options.cameras
    if options is not None and cameras.model == EQUIRECTANGULAR and options.rigs.cameras is not None:
        raise InputError("Panoramas are a rig of their own. Leave --rig out.")
    told = cameras.focal_px is not None or cameras.intrinsics is not None
    if cameras.intrinsics is not None:
        read_intrinsics(cameras.intrinsics)
    if cameras.focal != "free" and not told and (is_video(Path(images)) or not tells_focal(Path(images))):
        raise no_known_focal(cameras)


def _photos(images: Path, frames: Path, options: MatchOptions, resume: bool) -> tuple[Path, MatchOptions]:
    """The folder of photos, and the settings for them: frames of a video are matched in their order."""
    photos, video = photos_of(images, frames, resume=resume)
    if video and options.pairs.mode == "auto":
        options = replace(options, pairs=replace(options.pairs, mode="sequential"))
    return photos, options


def _views(
    photos: Path, work: Path, match: MatchOptions, options: SolveOptions, resume: bool
) -> tuple[Path, MatchOptions, SolveOptions]:
    """Panoramas as pinhole views on a rig: their folder, and the settings for them."""
    masks = None if match.masks is None else Path(match.masks)
    views, white = views_of(photos, work, options.panoramas, masks=masks, resume=resume)
    names = tuple(sensor.name for sensor in read_rigs(views / RIG_CONFIG))
    mode = "auto" if match.pairs.mode == "sequential" else match.pairs.mode
    pairs = replace(match.pairs, mode=mode, one_place=names)
    return (
        views,
        replace(match, masks=white, pairs=pairs),
        replace(
            options,
            cameras=replace(options.cameras, model=AUTO),
            rigs=replace(options.rigs, cameras=str(views / RIG_CONFIG)),
        ),
    )


@contextmanager
def _work_folder(out: Path | None) -> Iterator[Path]:
    """Where files go on the way: the folder of the results, or one that is gone afterwards."""
    if out is not None:
        with output_folder(out):
            yield out
        return
    with tempfile.TemporaryDirectory(prefix="proba-") as name:
        yield Path(name)
