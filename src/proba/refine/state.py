"""What the stages of the refinement hand to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from proba.errors import GeometryError
from proba.graph import ViewGraph
from proba.known_poses import KnownPoses
from proba.matches import Matches
from proba.refine.adjust import Freedom
from proba.refine.agreement import PairAgreement, PairPoints
from proba.refine.bundle import Bundle, unit_px, unit_tracks
from proba.refine.options import AgreementOptions, RefineOptions, TrackOptions
from proba.refine.pinhole_views import pinhole_pixels
from proba.refine.tracks import Tracks, build_tracks, select_tracks
from proba.rigs import Rigs
from proba.solution import Solution


@dataclass(frozen=True, kw_only=True, eq=False)
class Observations:
    """What all worlds of one connected piece have in common. Index n counts `graph.images`."""

    matches: Matches
    graph: ViewGraph
    tracks: Tracks
    """All of them, in original pixels."""
    unit_px: np.ndarray  # [N], size of a unit pixel in original pixels
    pairs: PairAgreement
    options: TrackOptions
    seed: int
    known: KnownPoses | None = None
    """Poses that were known beforehand, of `graph.images`."""
    rigs: Rigs | None = None
    """Which of `graph.images` cameras took that moved together."""

    @property
    def names(self) -> list[str]:
        return [self.matches.images[k].name for k in self.graph.images]

    @property
    def z_up(self) -> bool:
        """Whether the z axis of the known poses' world is up."""
        return self.known is not None and self.known.z_up

    @property
    def size_px(self) -> np.ndarray:  # [N, 2], width and height in original pixels
        infos = [self.matches.images[k] for k in self.graph.images]
        return np.array([[info.width, info.height] for info in infos], np.float64)

    @property
    def crowd(self) -> float:
        """How many times as many tracks adjustments need, because there are many images."""
        return max(1.0, self.graph.n_images / self.options.crowd)

    def some_tracks(self, most: float) -> Tracks:
        """The best tracks, in original pixels."""
        return select_tracks(self.tracks, self.size_px, round(most), self.seed, self.options)

    def some_unit_tracks(self, most: float) -> Tracks:
        """The best tracks, in unit pixels."""
        return unit_tracks(self.some_tracks(most), self.unit_px)


def observed_tracks(matches: Matches, graph: ViewGraph, options: TrackOptions) -> Tracks:
    """Stage: all tracks of a connected piece, in original pixels."""
    tracks = build_tracks(matches, graph)
    if tracks.n_tracks < options.fewest:
        raise GeometryError(
            f"only {tracks.n_tracks} matches connect these images; add images with more overlap or a denser matcher"
        )
    return tracks


def judged_pairs(matches: Matches, graph: ViewGraph, options: AgreementOptions, *, seed: int) -> PairAgreement:
    """Stage: what the pairs of a connected piece could explain by themselves."""
    unit = unit_px(matches, graph)  # [N]
    points: PairPoints = {}
    flat: PairPoints = {}
    for i, j in graph.edges.tolist():
        one, other = int(graph.images[i]), int(graph.images[j])
        pair = matches.pairs.get((one, other))
        if pair is None:
            continue
        points[i, j] = pair.points_i / unit[i], pair.points_j / unit[j]
        info_i, info_j = matches.images[one], matches.images[other]
        if info_i.lens or info_j.lens:
            seen = pinhole_pixels(info_i, pair.points_i), pinhole_pixels(info_j, pair.points_j)
            flat[i, j] = seen[0] / unit[i], seen[1] / unit[j]
    return PairAgreement(points, options, seed, flat)


@dataclass(frozen=True, kw_only=True)
class WorldReport:
    """How one world fared."""

    name: str
    attempt: int
    """Which run of the solver it comes from, or begins with, counted from 0."""
    share: float
    """Share of the matches explainable by two-view geometry that the world explains, times that of the observations."""
    seconds: float


@dataclass(frozen=True, eq=False)
class World:
    """A solution after its first adjustment."""

    solution: Solution
    bundle: Bundle
    report: WorldReport


@dataclass(frozen=True, kw_only=True, eq=False)
class WorldChoice:
    """All worlds that were polished, and whether the best of them can be trusted."""

    worlds: tuple[World, ...]
    confirmed: bool
    """Whether another world is the same as the best, and they explain enough."""
    good: bool
    """Whether the best explains so much that it needs no confirmation."""

    @property
    def best(self) -> World:
        """The world that explains most."""
        return max(self.worlds, key=lambda world: world.report.share)

    @property
    def settled(self) -> bool:
        """Whether other worlds need not be looked for."""
        return self.confirmed or self.good


@dataclass(frozen=True, eq=False)
class Placed:
    """A bundle, and what became of its images."""

    bundle: Bundle
    anew: np.ndarray  # [N] bool, images that were placed anew
    left: np.ndarray  # [N] bool, images that could not be placed


@dataclass(frozen=True, kw_only=True)
class CameraTrial:
    """One camera model that was tried, for the report."""

    name: str
    evidence: float
    """Twice the gain in log-likelihood, minus the penalty; rejected when negative."""
    accepted: bool


@dataclass(frozen=True, kw_only=True)
class TiedRigs:
    """What became of cameras that are said to have moved together."""

    refused: str = ""
    """Why they are not taken for a rig; empty: they are."""
    apart: tuple[str, ...] = ()
    """Those of them that no moment ties to the others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class State:
    """The chosen world on its way through the stages. A stage returns a new state."""

    options: RefineOptions
    observations: Observations
    choice: WorldChoice
    reports: tuple[WorldReport, ...]
    """All worlds: those of the choice, and one that was grown."""
    chosen: WorldReport
    """The world that the bundle is."""
    solution: Solution
    """The best of the solver's worlds; depth maps and edge weights come from it even if another world was grown."""
    bundle: Bundle
    freedom: Freedom
    placed_anew: np.ndarray  # [N] bool
    unplaced: np.ndarray  # [N] bool
    apart: Placed | None = None
    """The same world with a focal length for each image that shares a camera only by its size."""
    trials: tuple[CameraTrial, ...] = ()
    tied: TiedRigs | None = None
    """None: there are no rigs."""

    @property
    def placed(self) -> np.ndarray | None:
        """The images [N] bool that take part in adjustments; None: all."""
        return ~self.unplaced if self.unplaced.any() else None

    def with_placed(self, placed: Placed) -> State:
        return replace(self, bundle=placed.bundle, placed_anew=placed.anew, unplaced=placed.left)


def first_state(observations: Observations, choice: WorldChoice, options: RefineOptions) -> State:
    """The best of the polished worlds, before the other stages."""
    nobody = np.zeros(observations.graph.n_images, bool)
    return State(
        options=options,
        observations=observations,
        choice=choice,
        reports=tuple(world.report for world in choice.worlds),
        chosen=choice.best.report,
        solution=choice.best.solution,
        bundle=choice.best.bundle,
        freedom=Freedom(),
        placed_anew=nobody,
        unplaced=nobody,
    )


def named(images: np.ndarray, names: Sequence[str]) -> list[str]:
    """The names of `images` [N] bool."""
    return [names[k] for k in np.flatnonzero(images).tolist()]
