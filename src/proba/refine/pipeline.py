"""From the solver's worlds to one accurate reconstruction."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from proba.errors import GeometryError
from proba.matches import Matches
from proba.reconstruction import Note, Reconstruction
from proba.refine.adjust import ANNEALED, Freedom, Round, adjust, noise_px, noise_round
from proba.refine.agreement import PairAgreement, same_world
from proba.refine.assemble import assemble, to_root_frame
from proba.refine.bundle import Bundle, bundle_from_solution, unit_px, unit_tracks
from proba.refine.degeneracy import degeneracy_notes
from proba.refine.levenberg import minimise
from proba.refine.model import (
    CameraTrial,
    adjust_with_model,
    better_apart,
    free_intrinsics,
    select_camera_model,
    separate_cameras,
)
from proba.refine.options import RefineOptions
from proba.refine.photometric import align, photo
from proba.refine.rescue import explained, grow, rescue
from proba.refine.tracks import Tracks, build_tracks, select_tracks
from proba.refine.triangulate import believable, points_from_depth_maps, reassess, refine_points, triangulate
from proba.refine.uncertainty import CameraUncertainty, camera_uncertainty, point_std
from proba.solution import Solution
from proba.threads import one_library_thread

MIN_TRACKS = 8
CROWD = 50
"""More images than this get more tracks in adjustments."""
MIN_IMAGES = 4
"""With fewer images there is no majority that could tell which of them are wrong."""
POOR_SHARE = 0.75
"""Worlds that explain a smaller part of what is explainable have failed: on halves of the real sets, right ones
explained 0.84 and more, wrong ones at most 0.57. Another way is tried then, even if two worlds agree: on ten photos of
a facade, each with its own focal length, two wrong ones agreed at 0.74."""
SURE_SHARE = 0.9
"""It is tried as well where a world with no other beside it explains less than this ..."""
CLEAR_GAIN = 0.02
"""... or where no world is good enough by itself and no two agree (so four of 22 seeds ended in a wrong world of
dino_sparse at 0.93 to 1.01, whose right one explains 1.05), unless a focal length for each image explains as much; and
taken if it explains this much more. On four photos of imc_reichstag it explains 0.01 more, and is worse."""
AGREE_DEG, AGREE_SHARE = 0.3, 0.02
"""Two worlds are the same when their rotations and explained shares differ by less ..."""
AGREE_MIN_SHARE = 0.6
"""... and right when they explain this part: eth3d_pipes begins at 0.73; on four photos of entry_p10 three wrong worlds
agree at 0.20. Below POOR_SHARE the other worlds are looked at too: on ten photos of an entrance with a focal length
each, two wrong ones agree at 0.68, and the third is right at 0.84."""
COARSE_PX = 0.3
"""Matches of less noise are not compared with the pixels: SIFT has 0.1 to 0.25 px, and what patches err in common
weighs more then (AUC@1 of temple_sparse 79 -> 73, of entry_p10 88 -> 84). XFeat has 0.35 to 0.6 px. Nor are photos of
many cameras, which were taken in different light: XFeat on imc_reichstag, AUC@5 72 -> 67."""
SHARPER = 0.65
"""Places from the pixels are taken if their noise is this part or less. Where the matcher was the limit it is 0.4 to
0.5 (pipes AUC@1 66 -> 84, XFeat on fountain_p11 76 -> 92), where blur or leaves in the wind are, 0.85 (tum, fern)."""
TRIAL = 3
"""Whether that is so is tried with every third track first."""
MAX_STEPS = 5
"""Steps of all cameras on all points."""


@dataclass(frozen=True, kw_only=True)
class WorldReport:
    """How one world fared."""

    name: str
    attempt: int
    """0: of the solutions given, 1: of those fetched because no two agreed."""
    share: float
    """Share of the matches explainable by two-view geometry that the world explains, times that of the observations."""
    seconds: float


_World = tuple[Solution, Bundle, WorldReport]


@dataclass(kw_only=True)
class RefineResult:
    """The reconstruction and how it came about."""

    reconstruction: Reconstruction
    chosen: WorldReport
    """The world that the reconstruction comes from."""
    share: float
    """Share of all observations that hold in the result."""
    noise_px: float
    """Standard deviation of one image coordinate, for an image of 1024 px."""
    worlds: list[WorldReport] = field(default_factory=list)
    trials: list[CameraTrial] = field(default_factory=list)
    """Camera models that were tried."""
    rescued: list[str] = field(default_factory=list)
    """Images that were placed anew."""
    unplaced: list[str] = field(default_factory=list)
    """Images that only keep the solver's pose."""
    seconds: dict[str, float] = field(default_factory=dict)


@one_library_thread()
def refine(
    matches: Matches,
    solutions: Sequence[Solution],
    options: RefineOptions | None = None,
    progress: Callable[[str], None] | None = None,
    more: Callable[[], Sequence[Solution]] | None = None,
    photos: Callable[[str], np.ndarray] | None = None,
) -> RefineResult:
    """Polish the worlds of one connected piece (best first), take the one that explains most, and finish it.

    Where none is good enough and no two agree, `more` is asked for others. `photos` gives the luminance [h, w] uint8 of
    an image by its name, at any resolution, or raises OSError.
    """
    options = options or RefineOptions()
    if not solutions:
        raise ValueError("refine needs at least one solution")
    clock = _Clock(progress)
    with clock("tracks"):
        tracks = build_tracks(matches, solutions[0].graph)
        if tracks.n_tracks < MIN_TRACKS:
            raise GeometryError(
                f"only {tracks.n_tracks} matches connect these images; add images with more overlap or a denser matcher"
            )
        unit = unit_px(matches, solutions[0])  # [N]
        size = _image_sizes(matches, solutions[0])  # [N, 2]
        crowd = max(1.0, len(unit) / CROWD)

        def some(most: float) -> Tracks:
            return select_tracks(tracks, size, round(most), options.seed)

        few = unit_tracks(some(crowd * options.max_tracks), unit)
    freedom = Freedom(focal=options.focal != "fixed")
    with clock("pairs"):
        pairs = _pair_agreement(matches, solutions[0], unit, options)
    with clock("worlds"):
        (solution, bundle, chosen), worlds, confirmed = _polish_worlds(
            matches, solutions, more, few, pairs, freedom, options, clock
        )
    with clock("rescue"):
        bundle, placed_again, unplaced = _rescue(bundle, pairs, freedom, options)
    with clock("cameras"):
        own = _apart(matches, solution, bundle, unplaced, pairs, options)
    share, poor = explained(bundle, pairs), POOR_SHARE * pairs.explainable
    sure = options.good_share if len(worlds) > 1 else SURE_SHARE * pairs.explainable
    lost = share < (poor if confirmed else sure) and not (own and explained(own[0], pairs) >= sure)
    if lost and options.rescue_rounds and bundle.n_images >= MIN_IMAGES:
        with clock("growing"):
            grown, _, left_out = _rescue(grow(bundle, pairs, freedom, good=max(poor, share)), pairs, freedom, options)
            if explained(grown, pairs) > share + CLEAR_GAIN:
                bundle, placed_again, unplaced = grown, ~left_out, left_out
                own = _apart(matches, solution, bundle, unplaced, pairs, options)
    with clock("camera model"):
        bundle, freedom, trials = select_camera_model(bundle, options)
        if own and better_apart(bundle, own[0], pairs):
            bundle, freedom, trials = select_camera_model(own[0], options)
            placed_again, unplaced = placed_again | own[1], own[2]
    names = [matches.images[k].name for k in solution.graph.images]
    if photos is not None and options.photometric and not bundle.many_cameras and noise_px(bundle) > COARSE_PX:
        with clock("pixels"):
            sharper = _sharpen(bundle, some(options.max_points), unit, names, photos, freedom, ~unplaced, options)
            if sharper is not None:
                bundle, tracks = sharper
                # What coarse matches leave undecided, sharper ones may tell.
                bundle, freedom, more_trials = select_camera_model(bundle, options, freedom)
                trials += more_trials
    with clock("final adjustment"):
        many = unit_tracks(some(crowd * options.final_tracks), unit)
        last = noise_round(bundle)
        bundle = _finish(bundle, many, last, freedom, ~unplaced, options)
        bundle = to_root_frame(bundle, solution.graph.root)
        last = noise_round(bundle)
    with clock("points"):
        final = some(options.max_points)
        cloud = _all_points(bundle, unit_tracks(final, unit), last, ~unplaced)
        free = free_intrinsics(cloud, freedom, options)  # [C, 6]
        cloud = to_root_frame(_settle(cloud, free, last, ~unplaced), solution.graph.root)
        trusted = believable(cloud)
        if not trusted.alive.any():
            raise GeometryError(
                "no point is seen from two sides: the camera hardly moved, or the matches belong to no rigid scene; "
                "add photos from other places"
            )
    with clock("uncertainty"):
        cameras = camera_uncertainty(trusted, free, last.loss_px)
        sigma = point_std(cloud, cameras, free, last.loss_px)  # [T]
    reconstruction = assemble(matches, solution, cloud, cameras, sigma, final, unit, pairs)
    reconstruction.notes = _notes(cloud, cameras, sigma, freedom, unplaced, names)
    return RefineResult(
        reconstruction=reconstruction,
        chosen=chosen,
        share=cloud.share,
        noise_px=cameras.noise_px,
        worlds=worlds,
        trials=trials,
        rescued=[names[k] for k in np.flatnonzero(placed_again)],
        unplaced=[names[k] for k in np.flatnonzero(unplaced)],
        seconds=clock.seconds,
    )


class _Clock:
    """Times the stages and tells the caller which one runs."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self._stage, self._begin = "", 0.0

    def say(self, text: str) -> None:
        if self.progress is not None:
            self.progress(text)

    def __call__(self, stage: str) -> _Clock:
        self._stage = stage
        return self

    def __enter__(self) -> None:
        self._begin = time.perf_counter()
        self.say(self._stage)

    def __exit__(self, *_: object) -> None:
        self.seconds[self._stage] = time.perf_counter() - self._begin


def _pair_agreement(matches: Matches, solution: Solution, unit: np.ndarray, options: RefineOptions) -> PairAgreement:
    images = solution.graph.images
    points = {}
    for i, j in solution.graph.edges:
        pair = matches.pairs.get((int(images[i]), int(images[j])))
        if pair is not None:
            points[int(i), int(j)] = pair.points_i / unit[i], pair.points_j / unit[j]
    return PairAgreement(points, options.seed)


def _polish_worlds(
    matches: Matches,
    solutions: Sequence[Solution],
    more: Callable[[], Sequence[Solution]] | None,
    tracks: Tracks,
    pairs: PairAgreement,
    freedom: Freedom,
    options: RefineOptions,
    clock: _Clock,
) -> tuple[_World, list[WorldReport], bool]:
    """Adjust worlds from the best on, until one is good enough or two agree; ask for `more` if no two do.

    The one that explains most, reports of all, and whether another one confirms it.
    """
    polished: list[_World] = []
    plausible, sure = (part * pairs.explainable for part in (AGREE_MIN_SHARE, POOR_SHARE))
    for attempt, given in enumerate((lambda: solutions, more)):
        for solution in given()[: options.max_worlds] if given else ():
            begin = time.perf_counter()
            bundle = bundle_from_solution(matches, solution, tracks)
            bundle, share = _polish(bundle, solution, pairs, freedom)
            seconds = time.perf_counter() - begin
            clock.say(f"world {solution.name}: explains {100 * share:.1f} % of the matches")
            report = WorldReport(name=solution.name, attempt=attempt, share=share, seconds=seconds)
            polished.append((solution, bundle, report))
            if share > options.good_share or _confirmed(polished[-1], polished, sure):
                break
        best = max(polished, key=lambda world: world[2].share)
        confirmed = _confirmed(best, polished, plausible)
        if confirmed or best[2].share > options.good_share:
            break
    return best, [report for _, _, report in polished], confirmed


def _confirmed(world: _World, worlds: Sequence[_World], enough: float) -> bool:
    """Whether another of the worlds is the same, and the share that they explain enough."""
    _, bundle, report = world
    return report.share >= enough and any(
        abs(report.share - other.share) < AGREE_SHARE and same_world(bundle, another, AGREE_DEG)
        for _, another, other in worlds
        if other is not report
    )


def _polish(bundle: Bundle, solution: Solution, pairs: PairAgreement, freedom: Freedom) -> tuple[Bundle, float]:
    """The cameras of a solution adjusted, and how much they explain then."""
    bundle = points_from_depth_maps(bundle, solution.log_depth)
    bundle = adjust(bundle, ANNEALED, freedom)
    return bundle, explained(bundle, pairs)


def _doubtful(matches: Matches, solution: Solution, options: RefineOptions) -> np.ndarray:
    """Images [N] bool that share a camera with others only because they have one size."""
    nameless = np.array([not matches.images[k].camera_key for k in solution.graph.images])  # [N]
    return nameless & (options.share == "camera")


def _apart(
    matches: Matches,
    solution: Solution,
    bundle: Bundle,
    unplaced: np.ndarray,
    pairs: PairAgreement,
    options: RefineOptions,
) -> tuple[Bundle, np.ndarray, np.ndarray] | None:
    """The bundle with a focal length for each doubtful image, and what `_rescue` says of its images."""
    if unplaced.any():  # a wrong common focal length may have misplaced them
        bundle = points_from_depth_maps(bundle_from_solution(matches, solution, bundle.tracks), solution.log_depth)
    own = separate_cameras(bundle, _doubtful(matches, solution, options), options)
    return None if own is None else _rescue(own, pairs, Freedom(), options)


def _rescue(
    bundle: Bundle, pairs: PairAgreement, freedom: Freedom, options: RefineOptions
) -> tuple[Bundle, np.ndarray, np.ndarray]:
    """The bundle, the images [N] bool that were placed anew, and those that could not be placed."""
    rounds = options.rescue_rounds if bundle.n_images >= MIN_IMAGES else 0
    return rescue(bundle, pairs, freedom, rounds=rounds)


def _sharpen(
    bundle: Bundle,
    tracks: Tracks,
    unit: np.ndarray,
    names: list[str],
    photos: Callable[[str], np.ndarray],
    freedom: Freedom,
    placed: np.ndarray,
    options: RefineOptions,
) -> tuple[Bundle, Tracks] | None:
    """Observations where the grey values agree: the bundle adjusted to some, and all `tracks` (original pixels).

    None where that is not much more accurate, or a photo cannot be read.
    """
    size = bundle.camera_size[bundle.camera_of_image]  # [N, 2]
    try:
        images = [photo(photos(name), size[k]) for k, name in enumerate(names)]
    except OSError:
        return None
    few = bundle.some_tracks(np.arange(bundle.tracks.n_tracks) % TRIAL == 0)
    for part in (few, bundle):
        sharper = _finish(bundle, align(part, images), noise_round(bundle), freedom, placed, options)
        if noise_px(sharper) > SHARPER * noise_px(bundle):
            return None
    whole = align(_all_points(sharper, unit_tracks(tracks, unit), noise_round(sharper), placed), images)
    return sharper, Tracks(whole.offset, whole.image, whole.xy * unit[whole.image, None])


def _finish(
    bundle: Bundle, tracks: Tracks, last: Round, freedom: Freedom, placed: np.ndarray, options: RefineOptions
) -> Bundle:
    """The last adjustment, with more tracks; only `placed` images [N] bool take part."""
    everyone = None if placed.all() else placed
    full = triangulate(bundle.with_tracks(tracks), 2 * last.keep_px, everyone)
    for step in (replace(last, tolerance=1e-3), last):
        full = adjust_with_model(believable(full), (step,), freedom, options, everyone)
    return full


def _all_points(bundle: Bundle, tracks: Tracks, last: Round, placed: np.ndarray) -> Bundle:
    """Every track as a point, with the cameras as they are."""
    everyone = None if placed.all() else placed
    full = triangulate(bundle.with_tracks(tracks), last.keep_px, everyone)
    return reassess(refine_points(full, last.loss_px), last.keep_px, last.min_angle_deg, everyone)


def _settle(cloud: Bundle, free: np.ndarray, last: Round, placed: np.ndarray) -> Bundle:
    """Move the cameras by what all points together say, and every point after them.

    An adjustment of some tracks is usually a fraction of a standard deviation away from that of all.
    """
    everyone = None if placed.all() else placed
    sound = believable(cloud)
    moved = minimise(sound, sound.alive, free, loss_px=last.loss_px, iterations=MAX_STEPS, tolerance=last.tolerance)
    full = refine_points(replace(moved, alive=cloud.alive), last.loss_px, iterations=1)
    return reassess(full, last.keep_px, last.min_angle_deg, everyone)


def _notes(
    bundle: Bundle,
    cameras: CameraUncertainty,
    sigma: np.ndarray,
    freedom: Freedom,
    unplaced: np.ndarray,
    names: list[str],
) -> list[Note]:
    """Everything the user should know, with advice."""
    notes = degeneracy_notes(bundle, cameras, sigma, freedom)
    if unplaced.any():
        rough = tuple(names[k] for k in np.flatnonzero(unplaced))
        listed = ", ".join(rough[:8]) + (f" and {len(rough) - 8} more" if len(rough) > 8 else "")
        notes.append(
            Note(
                kind="rough poses",
                text=f"poses of {listed} are rough: their matches do not agree with the other images",
                advice="add images in between, or leave them out",
                images=rough,
            )
        )
    return notes


def _image_sizes(matches: Matches, solution: Solution) -> np.ndarray:
    """Width and height [N, 2] in original pixels."""
    infos = [matches.images[k] for k in solution.graph.images]
    return np.array([[info.width, info.height] for info in infos], np.float64)
