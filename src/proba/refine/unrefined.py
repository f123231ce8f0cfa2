"""The solver's own cameras and points as the result: what an ablation compares the refinement with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proba.refine.agreement import explained
from proba.refine.bundle import per_track_sum, reprojection_errors, unit_tracks
from proba.refine.final import Cloud, to_root_frame
from proba.refine.options import RefineOptions
from proba.refine.state import Observations, State, World, WorldChoice, WorldReport
from proba.refine.worlds import solver_bundle
from proba.solution import Solution


def take_first_world(observations: Observations, solutions: Sequence[Solution], options: RefineOptions) -> WorldChoice:
    """Instead of `polish_worlds`: the world that the solver itself prefers, as it is."""
    tracks = observations.some_unit_tracks(observations.crowd * options.tracks.adjusted)
    bundle = solver_bundle(observations, solutions[0], tracks)
    share = explained(bundle, observations.pairs)
    report = WorldReport(name=solutions[0].name, attempt=0, share=share, seconds=0.0)
    return WorldChoice(worlds=(World(solutions[0], bundle, report),), confirmed=True, good=False)


def solver_cloud(state: State) -> Cloud:
    """Instead of all stages after the choice: points at the depths of the solver's maps.

    Observations as far off as the first adjustment would leave out do not count as the point's.
    """
    observations, wide = state.observations, state.options.adjust.annealed[0]
    tracks = observations.some_tracks(state.options.tracks.points)
    bundle = solver_bundle(observations, state.solution, unit_tracks(tracks, observations.unit_px))
    alive = reprojection_errors(bundle) < wide.keep_px  # [K]
    held = per_track_sum(bundle.tracks, alive) >= 2  # [T]
    bundle = replace(bundle, alive=alive & held[bundle.tracks.track_of_observation])
    return Cloud(
        bundle=to_root_frame(bundle, observations.graph.root),
        tracks=tracks,
        free=state.freedom.columns(bundle),
        last=wide,
    )
