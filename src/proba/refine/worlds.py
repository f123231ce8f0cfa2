"""Which of the solver's worlds is right: each is adjusted, and explains more or less of the matches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from proba.refine.adjust import Freedom, adjust
from proba.refine.agreement import explained, same_world
from proba.refine.bundle import Bundle, bundle_from_solution
from proba.refine.known_world import given_bundle
from proba.refine.options import RefineOptions, WorldOptions
from proba.refine.state import Observations, World, WorldChoice, WorldReport
from proba.refine.tracks import Tracks
from proba.refine.triangulate import points_from_depth_maps
from proba.solution import Solution


def polish_worlds(
    observations: Observations,
    solutions: Sequence[Solution],
    options: RefineOptions,
    earlier: WorldChoice | None = None,
    say: Callable[[str], None] | None = None,
) -> WorldChoice:
    """Stage: adjust worlds from the best on, until one is good enough or two agree.

    `earlier` are the worlds of a run of the solver before; they are compared with these.
    """
    worlds = list(earlier.worlds) if earlier else []
    attempt = 1 + max((world.report.attempt for world in worlds), default=-1)
    tracks = observations.some_unit_tracks(observations.crowd * options.tracks.adjusted)
    explainable, limits = observations.pairs.explainable, options.worlds
    for solution in solutions[: limits.most]:
        begin = time.perf_counter()
        bundle = polished(observations, solution, tracks, options)
        share = explained(bundle, observations.pairs)
        seconds = time.perf_counter() - begin
        if say is not None:
            say(f"world {solution.name}: explains {100 * share:.1f} % of the matches")
        report = WorldReport(name=solution.name, attempt=attempt, share=share, seconds=seconds)
        worlds.append(World(solution, bundle, report))
        if share > limits.good_share or _confirmed(worlds[-1], worlds, limits.poor_share * explainable, limits):
            break
    best = max(worlds, key=lambda world: world.report.share)
    return WorldChoice(
        worlds=tuple(worlds),
        confirmed=_confirmed(best, worlds, limits.agree_min_share * explainable, limits),
        good=best.report.share > limits.good_share,
    )


def polished(observations: Observations, solution: Solution, tracks: Tracks, options: RefineOptions) -> Bundle:
    """The cameras of a solution adjusted to `tracks` (unit pixels)."""
    if solution.given is not None:
        return given_bundle(observations, solution, tracks, options)
    bundle = solver_bundle(observations, solution, tracks)
    return adjust(bundle, options.adjust.annealed, Freedom(), options.adjust)


def solver_bundle(observations: Observations, solution: Solution, tracks: Tracks) -> Bundle:
    """The cameras of a solution as the solver left them, and points at the depths of its maps."""
    bundle = bundle_from_solution(observations.matches, solution, tracks)
    return points_from_depth_maps(bundle, solution.log_depth)


def _confirmed(world: World, worlds: Sequence[World], enough: float, options: WorldOptions) -> bool:
    """Whether another of the worlds is the same, and the share that they explain `enough`."""
    return world.report.share >= enough and any(
        abs(world.report.share - other.report.share) < options.agree_share
        and same_world(world.bundle, other.bundle, options.agree_deg)
        for other in worlds
        if other.report is not world.report
    )
