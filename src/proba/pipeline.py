"""From matches to reconstructions: graph, solver, refinement, each connected piece in turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from proba.cameras import CameraOptions, check_known_focals, make_setup
from proba.errors import GeometryError, InputError
from proba.graph import GraphOptions, ViewGraph, build_view_graphs
from proba.io.images import load_grey
from proba.matches import Matches
from proba.memory import peak_rss_mb
from proba.reconstruction import Reconstruction
from proba.refine import Refinement, RefineOptions, RefineResult
from proba.refine.pixels import Photos
from proba.solution import Solution
from proba.solver import Progress, Solver, SolverOptions, solve_graph


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """Settings of all stages after matching."""

    seed: int = 0
    """Seed of everything random. Same seed and threads: same result, bit for bit."""
    cameras: CameraOptions = field(default_factory=CameraOptions)
    """What is known or assumed of the cameras."""
    graph: GraphOptions = field(default_factory=GraphOptions)
    """Which pairs the solver looks at."""
    solver: SolverOptions = field(default_factory=SolverOptions)
    """From a cold start to a rough reconstruction."""
    refine: RefineOptions = field(default_factory=RefineOptions)
    """From a rough reconstruction to an accurate one."""
    longer: int = 2
    """Where no two worlds agree, the solver starts again with this many times the iterations; 1 turns that off."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"The seed must be 0 or more, not {self.seed}.")


class Observer:
    """Who wants to watch a solve: a progress bar, a viewer, a recorder. Inherit, and override what you want to hear."""

    def piece(self, index: int, total: int, graph: ViewGraph) -> None:
        """A connected piece begins."""

    def attempt(self, number: int) -> None:
        """The search begins: 0 is the first one of a piece, 1 the longer one where no two worlds agreed."""

    def iteration(self, progress: Progress) -> None:
        """The solver has gone on by some iterations."""

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

    def stage(self, text: str) -> None:
        for observer in self.observers:
            observer.stage(text)

    def solved(self, piece: Piece) -> None:
        for observer in self.observers:
            observer.solved(piece)

    def written(self, folder: Path) -> None:
        for observer in self.observers:
            observer.written(folder)


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One world that the solver followed: where it started, and what became of it."""

    name: str
    """Where it started, e.g. `fov50`, `fov50-mirror`, `two-view`."""
    loss: float | None
    """Loss at the end; None: it was never evaluated."""
    chosen: bool
    """Whether the reconstruction comes from it."""
    pruned_at: int | None
    """Iteration at which it was dropped; None: it was followed to the end."""
    epipolar_share: float | None
    """Share of matches within 3 px of its epipolar geometry at the end; None: dropped before."""
    explained_share: float | None
    """Share of the explainable matches that it explains after a first adjustment; None: it had none."""
    curve: Sequence[Sequence[float]]
    """Iteration and loss, in order."""


@dataclass(kw_only=True)
class Piece:
    """The result of one connected piece."""

    reconstruction: Reconstruction
    hypotheses: list[Hypothesis]
    """All worlds of the attempt that the reconstruction comes from."""
    attempt: int
    """0: the first search; 1: the longer one, where no two worlds of the first agreed."""
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

    @property
    def reconstructions(self) -> list[Reconstruction]:
        return [piece.reconstruction for piece in self.pieces]

    @property
    def best(self) -> Reconstruction:
        """The largest reconstruction."""
        return self.pieces[0].reconstruction


def solve_matches(
    matches: Matches,
    options: SolveOptions | None = None,
    *,
    images: Path | None = None,
    observer: Observer | None = None,
    checkpoints: Path | None = None,
    resume: bool = False,
) -> SolveResult:
    """Reconstruct every connected piece of the view graph from a cold start.

    Ctrl-C ends the first-order solve early and refines what is there. With `checkpoints` (a folder) a run that was
    interrupted or killed can be resumed to the same bits. With `images`, the folder of the photos, coarse matches are
    refined on their pixels.
    """
    options = options or SolveOptions()
    check_known_focals(matches.images, options.cameras)
    watch = Together(observer)
    begin = time.perf_counter()
    graphs, isolated = build_view_graphs(matches, options.graph)
    seconds = {"graph": time.perf_counter() - begin}
    if not graphs:
        raise GeometryError(
            f"no two of the {len(matches.images)} images have matches; check that they overlap and show texture"
        )
    pieces, failed, interrupted = [], [], False
    for index, graph in enumerate(graphs):
        watch.piece(index, len(graphs), graph)
        checkpoint = checkpoints / f"piece{index}.npz" if checkpoints else None
        try:
            piece, stopped = _solve_piece(matches, graph, options, watch, images, checkpoint, resume)
        except GeometryError as error:
            names = ", ".join(matches.images[k].name for k in graph.images[:3])
            failed.append(f"{len(graph.images)} images ({names} ...): {error}")
            continue
        pieces.append(piece)
        watch.solved(piece)
        interrupted |= stopped
        for stage, value in piece.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + value
        if interrupted:
            break
    if not pieces:
        raise GeometryError(failed[0])
    return SolveResult(
        pieces=pieces,
        unmatched=[matches.images[k].name for k in isolated],
        failed=failed,
        seconds=seconds,
        peak_rss_mb=peak_rss_mb(),
        interrupted=interrupted,
    )


def _solve_piece(
    matches: Matches,
    graph: ViewGraph,
    options: SolveOptions,
    watch: Together,
    images: Path | None,
    checkpoint: Path | None,
    resume: bool,
) -> tuple[Piece, bool]:
    begin, solving = time.perf_counter(), 0.0
    cameras = make_setup([matches.images[k] for k in graph.images], options.cameras)
    solvers: list[Solver] = []

    def solve(iterations: int, file: Path | None) -> list[Solution]:
        nonlocal solving
        watch.attempt(len(solvers))
        start = time.perf_counter()
        callback = watch.iteration if watch.observers else None
        settings = replace(options.solver, iterations=iterations)
        solver = solve_graph(
            matches, graph, settings,
            cameras=cameras, seed=options.seed, callback=callback, checkpoint=file, resume=resume,
        )  # fmt: skip
        solvers.append(solver)
        solving += time.perf_counter() - start
        watch.stage("refining")
        return solvers[-1].solutions()

    solutions = solve(options.solver.iterations, checkpoint)
    known = options.cameras
    settings = replace(options.refine, focal=known.focal, share=known.share, seed=options.seed)
    refinement = Refinement(matches, graph, settings, watch.stage)
    choice = refinement.polish(solutions)
    if not choice.settled and options.longer > 1 and not solvers[0].interrupted:
        iterations = options.longer * options.solver.iterations
        watch.stage(f"no two worlds agree, solving again with {iterations} iterations")
        file = checkpoint.with_stem(f"{checkpoint.stem}-again") if checkpoint else None
        choice = refinement.polish(solve(iterations, file), choice)
    result = refinement.finish(choice, _photos(images, options.refine.pixels.max_side_px))
    piece = Piece(
        reconstruction=result.reconstruction,
        hypotheses=_hypotheses(solvers[result.chosen.attempt], result),
        attempt=result.chosen.attempt,
        iterations=solvers[result.chosen.attempt].iteration,
        surviving_share=result.share,
        noise_px=result.noise_px,
        rescued=result.rescued,
        unplaced=result.unplaced,
        seconds={"solve": solving, "refine": time.perf_counter() - begin - solving},
    )
    return piece, solvers[-1].interrupted


def _photos(folder: Path | None, max_side_px: int) -> Photos | None:
    """Reads photos of a folder by their names."""
    return None if folder is None else lambda name: load_grey(folder / name, max_side_px)


def _hypotheses(solver: Solver, result: RefineResult) -> list[Hypothesis]:
    support = dict(zip(solver.worlds.names, solver.epipolar(), strict=True))
    explained = {world.name: world.share for world in result.worlds if world.attempt == result.chosen.attempt}
    return [
        Hypothesis(
            name=name,
            loss=curve[-1][1] if curve else None,
            chosen=name == result.chosen.name,
            pruned_at=None if name in support else curve[-1][0] if curve else 0,
            epipolar_share=support[name][0] if name in support else None,
            explained_share=explained.get(name),
            curve=curve,
        )
        for name, curve in solver.history.items()
    ]
