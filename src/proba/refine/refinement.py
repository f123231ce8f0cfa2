"""From the solver's worlds to one accurate reconstruction: the stages in their order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proba.graph import ViewGraph
from proba.known_poses import KnownPoses
from proba.matches import Matches
from proba.reconstruction import Reconstruction
from proba.refine.anchor import anchor, poses_held, worth_anchoring
from proba.refine.assemble import assemble
from proba.refine.bundle import unit_px
from proba.refine.camera_model import choose_camera_model
from proba.refine.final import adjust_finally, estimate_uncertainty, place_points
from proba.refine.growing import grow_cameras, worth_growing
from proba.refine.options import RefineOptions
from proba.refine.pixels import Photos, sharpen, worth_sharpening
from proba.refine.rescue import rescue_images
from proba.refine.rolling_shutter import RollingShutter
from proba.refine.separate import separate_cameras
from proba.refine.state import (
    CameraTrial,
    Observations,
    State,
    WorldChoice,
    WorldReport,
    first_state,
    judged_pairs,
    named,
    observed_tracks,
)
from proba.refine.tying import tie, worth_tying
from proba.refine.unrefined import solver_cloud, take_first_world
from proba.refine.unrolled import Completed, unroll
from proba.refine.worlds import polish_worlds
from proba.rigs import Rigs
from proba.solution import Solution
from proba.threads import one_library_thread


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
    shutter: RollingShutter | None = None
    """What the rows of the photos say; None: nobody looked, or too little is seen."""
    tied: bool = False
    """Whether images are tied to rigs."""
    seconds: dict[str, float] = field(default_factory=dict)


def refine(
    matches: Matches,
    solutions: Sequence[Solution],
    options: RefineOptions | None = None,
    progress: Callable[[str], None] | None = None,
    photos: Photos | None = None,
    *,
    seed: int = 0,
) -> RefineResult:
    """Polish the worlds of one connected piece (best first), take the one that explains most, and finish it."""
    if not solutions:
        raise ValueError("refine needs at least one solution")
    refinement = Refinement(matches, solutions[0].graph, options, progress, seed=seed)
    return refinement.finish(refinement.polish(solutions), photos)


class Refinement:
    """The refinement of one connected piece. Between `polish` and `finish` the caller may look for more worlds."""

    @one_library_thread()
    def __init__(
        self,
        matches: Matches,
        graph: ViewGraph,
        options: RefineOptions | None = None,
        progress: Callable[[str], None] | None = None,
        *,
        known: KnownPoses | None = None,
        rigs: Rigs | None = None,
        joined: bool = False,
        seed: int = 0,
    ):
        """`joined`: the known poses are of pieces that only their rigs hold together."""
        self.options = options = options or RefineOptions()
        self.joined, self.clock = joined, Clock(progress)
        clock = self.clock
        with clock("tracks"):
            tracks = observed_tracks(matches, graph, options.tracks)
        with clock("pairs"):
            pairs = judged_pairs(matches, graph, options.pairs, seed=seed)
        self.observations = Observations(
            matches=matches,
            graph=graph,
            tracks=tracks,
            unit_px=unit_px(matches, graph),
            pairs=pairs,
            options=options.tracks,
            seed=seed,
            known=known,
            rigs=rigs,
        )

    @one_library_thread()
    def polish(self, solutions: Sequence[Solution], earlier: WorldChoice | None = None) -> WorldChoice:
        """Adjust worlds, best first, and choose among them and the `earlier` ones."""
        if not self.options.enabled:
            return take_first_world(self.observations, solutions, self.options)
        with self.clock("worlds"):
            return polish_worlds(self.observations, solutions, self.options, earlier, self.clock.say)

    @one_library_thread()
    def finish(self, choice: WorldChoice, photos: Photos | None = None) -> RefineResult:
        """The best world through all stages after the choice, or as it is if the refinement is turned off."""
        state = first_state(self.observations, choice, self.options)
        if self.options.enabled:
            state = self._improved(state, photos)
        done, shutter = self._completed(state), None
        if self.options.enabled and self.options.shutter.enabled:
            self.clock.say("rolling shutter")
            done, shutter = unroll(done, self._completed, self.options.shutter)
        return self._result(done, shutter)

    def _completed(self, state: State) -> Completed:
        """All points, and how certain everything is."""
        with self.clock("points"):
            cloud = place_points(state) if self.options.enabled else solver_cloud(state)
        with self.clock("uncertainty"):
            cameras, sigma = estimate_uncertainty(state, cloud)
        reconstruction = assemble(state, cloud, cameras, sigma)
        return Completed(state=state, cloud=cloud, cameras=cameras, sigma=sigma, reconstruction=reconstruction)

    def _improved(self, state: State, photos: Photos | None) -> State:
        """All stages that move cameras."""
        clock = self.clock
        if self.joined:
            with clock("rig"):
                state = tie(state, every=True)
        elif not poses_held(state):
            with clock("rescue"):
                state = rescue_images(state)
            with clock("cameras"):
                state = separate_cameras(state)
            if worth_growing(state):
                with clock("growing"):
                    state = grow_cameras(state)
            if worth_tying(state):
                with clock("rig"):
                    state = tie(state)
            if worth_anchoring(state):
                with clock("known poses"):
                    state = anchor(state)
        with clock("camera model"):
            state = choose_camera_model(state)
        if photos is not None and worth_sharpening(state):
            with clock("pixels"):
                state = sharpen(state, photos)
        with clock("final adjustment"):
            return adjust_finally(state)

    def _result(self, done: Completed, shutter: RollingShutter | None) -> RefineResult:
        state = done.state
        names = state.observations.names
        return RefineResult(
            reconstruction=done.reconstruction,
            chosen=state.chosen,
            share=done.cloud.bundle.share,
            noise_px=done.cameras.noise_px,
            worlds=list(state.reports),
            trials=list(state.trials),
            rescued=named(state.placed_anew, names),
            unplaced=named(state.unplaced, names),
            tied=state.bundle.rig is not None,
            shutter=shutter,
            seconds=self.clock.seconds,
        )


class Clock:
    """Times the stages and tells the caller which one runs."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}
        self._stage, self._begin = "", 0.0

    def say(self, text: str) -> None:
        if self.progress is not None:
            self.progress(text)

    def __call__(self, stage: str) -> Clock:
        self._stage = stage
        return self

    def __enter__(self) -> None:
        self._begin = time.perf_counter()
        self.say(self._stage)

    def __exit__(self, *_: object) -> None:
        taken = time.perf_counter() - self._begin
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + taken
