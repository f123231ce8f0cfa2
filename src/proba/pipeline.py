"""From matches to reconstructions: graph, solver, refinement, each connected piece in turn."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from proba.cameras import EQUIRECTANGULAR, CameraOptions, CameraSetup, check_known_focals, focal_notes, make_setup
from proba.errors import GeometryError, InputError
from proba.graph import ViewGraph, build_view_graphs
from proba.io.images import load_grey
from proba.io.intrinsics import with_known_intrinsics
from proba.io.pose_files import load_known_poses
from proba.io.rig_files import load_rigs
from proba.io.solver_folder import ATTEMPTS, SOLVER_FOLDER, SolverFolder, hash_of
from proba.known_poses import KnownPoses
from proba.matches import Matches
from proba.memory import peak_rss_mb
from proba.reconstruction import Reconstruction
from proba.refine import Refinement, RefineOptions, RefineResult
from proba.refine.known_world import given_solution
from proba.refine.normal_equations import require_memory
from proba.refine.pinhole_views import (
    assumed_lenses,
    has_lenses,
    lens_solution,
    pinhole_matches,
    pinhole_setup,
    with_lenses,
)
from proba.refine.pixels import Photos
from proba.refine.rig_pieces import joined_pieces
from proba.refine.rolling_shutter import RollingShutter
from proba.rigs import Rigs, with_rigs
from proba.scenes import Scenes, SightCut, find_scenes
from proba.solution import GIVEN, GROWN, ClusterReport, Hypothesis, Solution, SolverRun
from proba.solve_options import SolveOptions, settings_from
from proba.solver import Progress, Solver, SolverOptions, solve_graph
from proba.solver.problem import Problem


class Observer:
    """Who wants to watch a solve: a progress bar, a viewer, a recorder. Inherit, and override what you want to hear."""

    def piece(self, index: int, total: int, graph: ViewGraph) -> None:
        """A connected piece begins."""

    def attempt(self, number: int) -> None:
        """A search begins, with the number of its run on the piece: a longer one follows where no two worlds agreed."""

    def iteration(self, progress: Progress) -> None:
        """The solver has gone on by some iterations."""

    def saving(self, checkpoint: Path) -> None:
        """This file, from which the search can be resumed, is written next. Keep beside it what you need to go on.

        If the program ends in between, the search goes on from the file before, and you hear of iterations again.
        """

    def resumed(self, checkpoint: Path, problem: Problem) -> None:
        """The search goes on from this file, which may be of its last iteration."""

    def stage(self, text: str) -> None:
        """Something else takes time now."""

    def solved(self, piece: Piece) -> None:
        """A connected piece is finished. Not called for one that failed."""

    def written(self, folder: Path) -> None:
        """The model and the reports are in a folder. Not called where nothing is kept."""


class Together(Observer):
    """Several observers as one, or none."""

    def __init__(self, *observers: Observer | None):
        self.observers = [observer for observer in observers if observer is not None]

    def piece(self, index: int, total: int, graph: ViewGraph) -> None:
        for observer in self.observers:
            observer.piece(index, total, graph)

    def attempt(self, number: int) -> None:
        for observer in self.observers:
            observer.attempt(number)

    def iteration(self, progress: Progress) -> None:
        for observer in self.observers:
            observer.iteration(progress)

    def saving(self, checkpoint: Path) -> None:
        for observer in self.observers:
            observer.saving(checkpoint)

    def resumed(self, checkpoint: Path, problem: Problem) -> None:
        for observer in self.observers:
            observer.resumed(checkpoint, problem)

    def stage(self, text: str) -> None:
        for observer in self.observers:
            observer.stage(text)

    def solved(self, piece: Piece) -> None:
        for observer in self.observers:
            observer.solved(piece)

    def written(self, folder: Path) -> None:
        for observer in self.observers:
            observer.written(folder)


@dataclass(kw_only=True)
class Piece:
    """The result of one connected piece."""

    reconstruction: Reconstruction
    hypotheses: list[Hypothesis]
    """All worlds of the attempt that the reconstruction comes from."""
    attempt: int
    """Which run, counted from 0: the known poses if there are any, the search, and a longer one where no two worlds of
    the first agreed."""
    iterations: int
    surviving_share: float
    """Share of observations that agree with the refined geometry."""
    noise_px: float
    """Standard deviation of one image coordinate of the matches, for an image of 1024 px."""
    rescued: list[str]
    """Images that the refinement placed anew."""
    unplaced: list[str]
    """Images that only keep the solver's pose."""
    seconds: dict[str, float]
    clusters: Sequence[ClusterReport] = ()
    """The clusters that it was divided into; none: it was solved as a whole."""
    weakest: SightCut | None = None
    """The two groups of its images that share least of what both should see; None: nothing can be judged."""
    lone: list[str] = field(default_factory=list)
    """Single images that share too little of what they and the others should both see."""
    shutter: RollingShutter | None = None
    """What the rows of the photos say of a rolling shutter; None: nobody looked, or too little is seen."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a result can be trusted, as the report says it."""

    level: Literal["good", "check", "distrust"]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class Separation:
    """Two groups of images that matches join, but which share too little of what both should see to be one scene."""

    groups: tuple[tuple[str, ...], tuple[str, ...]]
    """Their names."""
    expected: float
    """Points that both should see where the matches put them."""
    seen: float
    """Points that both do see."""


@dataclass(kw_only=True)
class SolveResult:
    """All pieces, largest first, and the images that are in none."""

    pieces: list[Piece]
    unmatched: list[str]
    failed: list[str]
    """Why a piece could not be reconstructed, one line each."""
    seconds: dict[str, float]
    peak_rss_mb: float
    interrupted: bool
    separations: list[Separation] = field(default_factory=list)
    """Where pieces were taken apart because they show several scenes."""
    verdict: Verdict | None = None
    """Whether it looks right; None: nobody has judged it, as after `solve_matches` alone."""

    def __repr__(self) -> str:
        images = sum(len(piece.reconstruction) for piece in self.pieces)
        verdict = None if self.verdict is None else self.verdict.level
        unmatched = len(self.unmatched)
        return f"SolveResult(images={images}, pieces={len(self.pieces)}, unmatched={unmatched}, verdict={verdict!r})"

    @property
    def reconstructions(self) -> list[Reconstruction]:
        return [piece.reconstruction for piece in self.pieces]

    @property
    def best(self) -> Reconstruction:
        """The largest reconstruction."""
        return self.pieces[0].reconstruction


class Divider(Protocol):
    """Solves large pieces in clusters."""

    def wants(self, graph: ViewGraph, options: SolveOptions) -> bool:
        """Whether a piece is divided."""

    def solved(self, matches: Matches, graph: ViewGraph, options: SolveOptions, watch: Together) -> SolverRun:
        """One world of the piece from those of its clusters."""


def solve_matches(
    matches: Matches,
    options: SolveOptions | None = None,
    *,
    images: Path | None = None,
    observer: Observer | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
    keep: Path | None = None,
    matches_file: Path | None = None,
    divider: Divider | None = None,
) -> SolveResult:
    """Reconstruct every connected piece of the view graph from a cold start.

    Ctrl-C ends the first-order solve early and refines what is there. With `checkpoints` (a folder) a run that was
    interrupted or killed can be resumed to the same bits. With `images`, the folder of the photos, coarse matches are
    refined on their pixels. With `keep`, a result folder, what the solver leaves stays there, for `refine_solved`;
    `matches_file` is where that will look for the matches. With a `divider`, large pieces are solved in clusters.
    """
    options = options or SolveOptions()
    given, rigs = matches, _rigs(matches, options)
    matches = _with_known_cameras(matches, rigs, options.cameras)
    known = load_known_poses(options.known, matches.images, images)
    watch, begin = Together(observer), time.perf_counter()
    graphs, isolated = build_view_graphs(matches, options.graph)
    seconds = {"graph": time.perf_counter() - begin}
    if not graphs:
        raise GeometryError(
            f"no two of the {len(matches.images)} images have matches; check that they overlap and show texture"
        )
    _require_memory(graphs)
    unmatched = [matches.images[k].name for k in isolated]
    folder = None
    if keep is not None:
        folder = SolverFolder(
            path=keep / SOLVER_FOLDER,
            matches_hash=hash_of(given),
            settings=_plain(asdict(options)),
            unmatched=unmatched,
            pieces=len(graphs),
            images=_text(images),
            matches=_text(matches_file),
        )
        folder.start()
    sources = [
        _Solving(
            matches=matches,
            graph=graph,
            options=options,
            watch=watch,
            checkpoint=checkpoints / f"piece{index}.npz" if checkpoints else None,
            resume=resume,
            folder=folder,
            index=index,
            divider=divider if divider is not None and divider.wants(graph, options) else None,
            known=None if known is None else known.of(graph.images),
        )
        for index, graph in enumerate(graphs)
    ]
    return _refine_pieces(matches, sources, options, watch, _Known(images, known, rigs), unmatched, seconds)


def refine_solved(
    kept: SolverFolder,
    matches: Matches,
    options: RefineOptions | None = None,
    *,
    images: Path | None = None,
    observer: Observer | None = None,
) -> tuple[SolveResult, SolveOptions]:
    """The refinement alone, from what the solver left in a folder; also all settings, with these `options`.

    The same options give the same bits as the run that solved. Where no two worlds agree with them but did before, the
    solver is not started again.
    """
    if hash_of(matches) != kept.matches_hash:
        raise InputError(f"these are not the matches that {kept.path} was made from; give those with --matches")
    others = {name: values for name, values in kept.settings.items() if name != "refine"}
    settings = replace(settings_from(SolveOptions, others), refine=options or RefineOptions())
    runs = {index: run for index in range(kept.pieces) if (run := kept.load(index)) is not None}
    sources = [_Kept(folder=kept, index=index, graph=run.solutions[0].graph) for index, run in runs.items()]
    rigs = _rigs(matches, settings)
    told = _Known(images, load_known_poses(settings.known, matches.images, images), rigs)
    if not sources:
        raise InputError(f"no piece in {kept.path} is solved; run `proba solve` with --resume first")
    _require_memory([source.graph for source in sources])
    watch, matches = Together(observer), with_rigs(matches, rigs)
    return _refine_pieces(matches, sources, settings, watch, told, kept.unmatched, {}), settings


def _require_memory(graphs: Sequence[ViewGraph]) -> None:
    """Refuse pieces that cannot be adjusted, before anything is solved."""
    for graph in graphs:
        require_memory(graph.n_images, graph.edges)


class _Source(Protocol):
    """Where the runs of the solver on one connected piece come from."""

    @property
    def graph(self) -> ViewGraph:
        """Of the piece."""

    def attempt(self, number: int) -> SolverRun | None:
        """Run `number`, counted from 0; each is asked for only where those before left no world that can be trusted.
        None: there is no more."""

    def part(self, graph: ViewGraph, index: int) -> _Source | None:
        """The same for a part of the piece, which gets a number of its own; None if there is no run on it."""


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """Runs that were made before."""

    folder: SolverFolder
    index: int
    graph: ViewGraph

    def attempt(self, number: int) -> SolverRun | None:
        return self.folder.load(self.index, number) if number < ATTEMPTS else None

    def part(self, graph: ViewGraph, index: int) -> _Source | None:
        run = self.folder.load(index)
        if run is None or not np.array_equal(run.solutions[0].graph.edges, graph.edges):
            return None
        same = np.array_equal(run.solutions[0].graph.images, graph.images)
        return replace(self, index=index, graph=graph) if same else None


@dataclass(frozen=True, kw_only=True)
class _Solving:
    """Runs that are made now."""

    matches: Matches
    graph: ViewGraph
    options: SolveOptions
    watch: Together
    checkpoint: Path | None
    resume: bool
    folder: SolverFolder | None
    index: int
    divider: Divider | None
    known: KnownPoses | None
    """Poses of the images of the graph that were known beforehand."""

    def attempt(self, number: int) -> SolverRun | None:
        given = self._given()
        if number == 0 and given is not None:
            return self._kept(_given_run(given), 0)
        search = number - (given is not None)  # counts the searches from a cold start
        if (given is not None and not self.options.known.searches) or search > 1:
            return None
        if search == 0 and self.divider is not None:
            return self._kept(self.divider.solved(self.matches, self.graph, self.options, self.watch), number)
        if search == 0:
            return self._solved(self.options.solver.iterations, self.checkpoint, attempt=number)
        if self.options.longer <= 1 or self.divider is not None:
            return None
        iterations = self.options.longer * self.options.solver.iterations
        self.watch.stage(f"no two worlds agree, solving again with {iterations} iterations")
        file = self.checkpoint.with_stem(f"{self.checkpoint.stem}-again") if self.checkpoint else None
        return self._solved(iterations, file, attempt=number)

    def _given(self) -> Solution | None:
        if self.known is None or self.options.solver.hypotheses == "cold":
            return None
        return given_solution(self.matches, self.graph, self._cameras(self.matches), self.known)

    def _cameras(self, matches: Matches) -> CameraSetup:
        return make_setup([matches.images[k] for k in self.graph.images], self.options.cameras)

    def _kept(self, run: SolverRun, attempt: int) -> SolverRun:
        if self.folder is not None:
            self.folder.save(self.index, attempt, run)
        return run

    def part(self, graph: ViewGraph, index: int) -> _Source | None:
        file = self.checkpoint.with_name(f"piece{index}.npz") if self.checkpoint else None
        return replace(self, graph=graph, index=index, checkpoint=file)

    def _solved(self, iterations: int, checkpoint: Path | None, *, attempt: int) -> SolverRun:
        begin, runs = time.perf_counter(), []
        settings = replace(self.options.solver, iterations=iterations)
        for name, matches in assumed_lenses(self.matches, self.options.cameras.model):
            file = checkpoint.with_stem(f"{checkpoint.stem}-{name}") if checkpoint and name else checkpoint
            runs.append(self._one_run(matches, settings, file, attempt, name))
            if runs[-1].interrupted:
                break
        run = SolverRun(
            solutions=sorted((world for one in runs for world in one.solutions), key=lambda w: -w.epipolar_share),
            hypotheses=[world for one in runs for world in one.hypotheses],
            iterations=sum(one.iterations for one in runs),
            interrupted=runs[-1].interrupted,
            seconds=time.perf_counter() - begin,
        )
        return self._kept(run, attempt)

    def _one_run(
        self, matches: Matches, settings: SolverOptions, checkpoint: Path | None, attempt: int, prefix: str
    ) -> SolverRun:
        """The worlds of one guess of the lens; `prefix` names it."""
        self.watch.attempt(attempt)
        infos = [matches.images[k] for k in self.graph.images]
        setup = self._cameras(matches)
        flat = has_lenses(matches)
        solver = solve_graph(
            pinhole_matches(matches) if flat else matches,
            self.graph,
            settings,
            cameras=pinhole_setup(setup, infos) if flat else setup,
            known=self.known,
            seed=self.options.seed,
            callback=self.watch.iteration if self.watch.observers else None,
            checkpoint=checkpoint,
            resume=self.resume,
            saving=self.watch.saving,
            resumed=self.watch.resumed,
        )
        solutions, hypotheses = solver.solutions(), _followed(solver)
        if flat:
            solutions = [lens_solution(world, setup, infos) for world in solutions]
        if prefix:
            solutions = [replace(world, name=f"{prefix} {world.name}") for world in solutions]
            hypotheses = [replace(world, name=f"{prefix} {world.name}") for world in hypotheses]
        return SolverRun(
            solutions=solutions,
            hypotheses=hypotheses,
            iterations=solver.iteration,
            interrupted=solver.interrupted,
            seconds=0.0,
        )


def _given_run(given: Solution) -> SolverRun:
    """Known poses, which no search had to find."""
    world = Hypothesis(name=given.name, loss=None, pruned_at=None, epipolar_share=None)
    return SolverRun(solutions=[given], hypotheses=[world], iterations=0, interrupted=False, seconds=0.0)


@dataclass(frozen=True, eq=False)
class _Known:
    """What the refinement is told besides the matches, of all images."""

    images: Path | None
    """Folder of the photos."""
    poses: KnownPoses | None
    rigs: Rigs | None

    @property
    def frees_pieces(self) -> bool:
        """Whether a piece may be taken apart: nothing but matches says that it is one."""
        return self.poses is None and self.rigs is None


def _with_known_cameras(matches: Matches, rigs: Rigs | None, options: CameraOptions) -> Matches:
    """The matches with what is told of the cameras."""
    if options.model == EQUIRECTANGULAR:
        raise InputError(
            "Panoramas are cut into views before the matching: use `proba run`. For matches of such views, give --rig."
        )
    matches = with_rigs(with_known_intrinsics(matches, options), rigs)
    check_known_focals(matches.images, options)
    return matches


def _rigs(matches: Matches, options: SolveOptions) -> Rigs | None:
    """The rigs that took the images."""
    rigs = load_rigs(options.rigs, matches.images)
    if rigs is not None and options.known.use == "fixed":
        raise InputError("Poses that are fixed leave nothing to a rig. Use --poses-as prior, or leave --rig out.")
    return rigs


def _refine_pieces(
    matches: Matches,
    sources: Sequence[_Source],
    options: SolveOptions,
    watch: Together,
    told: _Known,
    unmatched: list[str],
    seconds: dict[str, float],
) -> SolveResult:
    """Every piece in turn; one that fails does not keep the others back, and one of several scenes is taken apart."""
    pieces: list[Piece] = []
    graphs: list[ViewGraph] = []
    result = SolveResult(
        pieces=pieces, unmatched=unmatched, failed=[], seconds=seconds, peak_rss_mb=0.0, interrupted=False
    )
    waiting, begun = deque(sources), 0
    while waiting and not result.interrupted:
        source = waiting.popleft()
        watch.piece(begun, begun + 1 + len(waiting), source.graph)
        begun += 1
        try:
            piece, result.interrupted = _refine_piece(matches, source, options, watch, told)
        except GeometryError as error:
            members = source.graph.images
            names = ", ".join(matches.images[k].name for k in members[:3])
            result.failed.append(f"{len(members)} images ({names} ...): {error}")
            continue
        for stage, value in piece.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + value
        scenes = find_scenes(piece.reconstruction, options.scenes, seed=options.seed)
        piece.weakest = scenes.weakest
        piece.lone = [piece.reconstruction.image_names[k] for k in scenes.lone]
        if len(scenes.groups) > 1 and told.frees_pieces and not result.interrupted:
            parts = _parts(matches, source, scenes, options, first=begun + len(waiting))
            if parts is not None:
                watch.stage(f"{len(scenes.groups)} scenes that share little: solving each by itself")
                waiting.extend(parts[0])
                result.unmatched += parts[1]
                result.separations += _separations(piece.reconstruction, scenes)
                continue
        pieces.append(piece)
        graphs.append(source.graph)
        watch.solved(piece)
    if not pieces:
        raise GeometryError(result.failed[0])
    if told.rigs is not None and told.poses is None and options.refine.enabled and not result.interrupted:
        _join_by_rigs(matches, result, graphs, options, watch, told)
    pieces.sort(key=lambda piece: -len(piece.reconstruction))
    result.peak_rss_mb = peak_rss_mb()
    return result


def _join_by_rigs(
    matches: Matches,
    result: SolveResult,
    graphs: Sequence[ViewGraph],
    options: SolveOptions,
    watch: Together,
    told: _Known,
) -> None:
    """Pieces and single images that only a rig ties to the largest piece become one with it, if that holds."""
    assert told.rigs is not None
    begin = time.perf_counter()
    order = sorted(range(len(graphs)), key=lambda k: -graphs[k].n_images)
    parts = [(graphs[k], result.pieces[k].reconstruction) for k in order]
    lone = [k for k, image in enumerate(matches.images) if image.name in set(result.unmatched)]
    found = joined_pieces(matches, told.rigs, parts, lone)
    if found is None:
        return
    watch.stage("joining what a rig ties together")
    members = found.graph.images
    cameras = make_setup([matches.images[k] for k in members], options.cameras)
    start = given_solution(matches, found.graph, cameras, found.known)
    assert start is not None
    refinement = Refinement(
        with_lenses(matches, members, cameras.lens_of_image), found.graph, options.refine, watch.stage,
        known=found.known, rigs=told.rigs.of(members), joined=True, seed=options.seed,
    )  # fmt: skip
    refined = refinement.finish(refinement.polish([start]), _photos(told.images, options.refine.pixels.max_side_px))
    first = result.pieces[order[0]]
    if not refined.tied:
        return
    whole = replace(
        first,
        reconstruction=refined.reconstruction,
        surviving_share=refined.share,
        noise_px=refined.noise_px,
        rescued=refined.rescued,
        unplaced=refined.unplaced,
        seconds={**first.seconds, "join": time.perf_counter() - begin},
        weakest=None,
    )
    result.seconds["join"] = whole.seconds["join"]
    names = set(refined.reconstruction.image_names)
    joined = {order[k] for k in found.parts}
    kept = [piece for k, piece in enumerate(result.pieces) if k not in joined]
    kept = [piece for piece in kept if not names & set(piece.reconstruction.image_names)]
    result.pieces[:] = [whole, *kept]
    result.unmatched[:] = [name for name in result.unmatched if name not in names]
    watch.solved(whole)


def _parts(
    matches: Matches, source: _Source, scenes: Scenes, options: SolveOptions, *, first: int
) -> tuple[list[_Source], list[str]] | None:
    """What is to be solved of each scene, numbered from `first` on, and the images that then have no match.

    None if there are no runs of the solver on them.
    """
    scene_of = np.full(len(matches.images), -1)  # [all images]
    for k, group in enumerate(scenes.groups):
        scene_of[source.graph.images[group]] = k
    inside = {(i, j): pair for (i, j), pair in matches.pairs.items() if scene_of[i] == scene_of[j] and scene_of[i] >= 0}
    graphs, isolated = build_view_graphs(replace(matches, pairs=inside), options.graph)
    parts = [part for k, graph in enumerate(graphs) if (part := source.part(graph, first + k)) is not None]
    if len(parts) < len(graphs):
        return None
    return parts, [matches.images[k].name for k in isolated if scene_of[k] >= 0]


def _separations(whole: Reconstruction, scenes: Scenes) -> list[Separation]:
    """Why a piece was taken apart, for the report."""
    names = np.array(whole.image_names)
    return [
        Separation(
            groups=(tuple(names[cut.side].tolist()), tuple(names[cut.other].tolist())),
            expected=cut.expected,
            seen=cut.seen,
        )
        for cut in scenes.cuts
    ]


def _refine_piece(
    matches: Matches,
    source: _Source,
    options: SolveOptions,
    watch: Together,
    told: _Known,
) -> tuple[Piece, bool]:
    """The piece, and whether the user ended its solve early."""
    first = source.attempt(0)
    assert first is not None
    runs = [first]
    watch.stage("refining")
    begin, longer = time.perf_counter(), 0.0
    seen = with_lenses(matches, source.graph.images, first.solutions[0].cameras.lens_of_image)
    members, settings = source.graph.images, _refine_options(options, first)
    refinement = Refinement(
        seen,
        source.graph,
        settings,
        watch.stage,
        known=None if told.poses is None else told.poses.of(members),
        rigs=None if told.rigs is None else told.rigs.of(members),
        seed=options.seed,
    )
    choice = refinement.polish(first.solutions)
    while not choice.settled and not runs[-1].interrupted:
        start = time.perf_counter()
        more = source.attempt(len(runs))
        longer += time.perf_counter() - start
        if more is None:
            break
        runs.append(more)
        watch.stage("refining")
        choice = refinement.polish(more.solutions, choice)
    result = refinement.finish(choice, _photos(told.images, options.refine.pixels.max_side_px))
    infos = [matches.images[k] for k in source.graph.images]
    result.reconstruction.notes += focal_notes(infos, runs[0].solutions[0].cameras, options.cameras)
    run = runs[result.chosen.attempt]
    piece = Piece(
        reconstruction=result.reconstruction,
        hypotheses=_judged(runs, result),
        attempt=result.chosen.attempt,
        iterations=run.iterations,
        surviving_share=result.share,
        noise_px=result.noise_px,
        rescued=result.rescued,
        unplaced=result.unplaced,
        seconds={"solve": sum(run.seconds for run in runs), "refine": time.perf_counter() - begin - longer},
        clusters=run.clusters,
        shutter=result.shutter,
    )
    return piece, runs[-1].interrupted


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _plain(values: Any) -> Any:
    """Settings as JSON can hold them."""
    if isinstance(values, dict):
        return {name: _plain(value) for name, value in values.items()}
    return str(values) if isinstance(values, Path) else values


def _refine_options(options: SolveOptions, run: SolverRun) -> RefineOptions:
    """In the strict regime nothing but the solver's worlds and their refinement may place a camera. Nor are the many
    images of a set in clusters placed one by one: that takes the square of their number, and each cluster tried it."""
    if options.solver.hypotheses != "cold" and not run.clusters:
        return options.refine
    return replace(options.refine, growing=replace(options.refine.growing, enabled=False))


def _photos(folder: Path | None, max_side_px: int) -> Photos | None:
    """Reads photos of a folder by their names."""
    return None if folder is None else lambda name: load_grey(folder / name, max_side_px)


def _followed(solver: Solver) -> list[Hypothesis]:
    """Every world of a run of the solver."""
    support = dict(zip(solver.worlds.names, solver.epipolar(), strict=True))
    return [
        Hypothesis(
            name=name,
            loss=curve[-1][1] if curve else None,
            pruned_at=None if name in support else curve[-1][0] if curve else 0,
            epipolar_share=support[name][0] if name in support else None,
            curve=[(iteration, loss) for iteration, loss in curve],
        )
        for name, curve in solver.history.items()
    ]


def _judged(runs: Sequence[SolverRun], result: RefineResult) -> list[Hypothesis]:
    """The worlds of the run that the result comes from, known poses and a grown one, with what the refinement says of
    them."""
    explained = {world.name: world.share for world in result.worlds if world.attempt == result.chosen.attempt}
    explained |= {world.name: world.share for world in result.worlds if world.name == GIVEN}
    # Where known poses were good enough at once, no search was made to compare them with.
    last = runs[result.chosen.attempt or len(runs) - 1]
    every = list(last.hypotheses)
    if GIVEN in explained and last is not runs[0]:
        every = [*runs[0].hypotheses, *every]
    if GROWN in explained:
        every.append(Hypothesis(name=GROWN, loss=None, pruned_at=None, epipolar_share=None))
    return [
        replace(world, chosen=world.name == result.chosen.name, explained_share=explained.get(world.name))
        for world in every
    ]
