"""What the first-order solver hands to the refinement: one world of one connected piece of the view graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from proba.cameras import CameraSetup
from proba.graph import ViewGraph


@dataclass(kw_only=True)
class Solution:
    """Poses, focals and Gaussians of one hypothesis. Index n counts `graph.images`."""

    graph: ViewGraph
    name: str
    """Which hypothesis, e.g. `fov50`, `fov50-mirror`, `two-view`."""
    loss: float
    """Running mean of the world loss at the end."""
    epipolar_share: float
    """Share of matches within 3 px of the epipolar geometry and in front of both cameras."""
    cam_from_world: np.ndarray  # [N, 4, 4] float64
    cameras: CameraSetup
    """What was known beforehand; the same for all hypotheses."""
    focal_px: np.ndarray  # [N, 2] float64, fx and fy in original pixels
    log_depth: np.ndarray  # [N, m, m] float32, cell (row, col) centred at ((col + .5) W / m, (row + .5) H / m)
    log_variance: np.ndarray  # [N, m, m] float32
    edge_weight: np.ndarray  # [E] float32
    given: np.ndarray | None = None  # [N] bool
    """Images whose pose was known beforehand, in a world that is none of the solver's; None: it is the solver's."""


CLUSTERS = "clusters"
"""Name of the world of a large set that was joined from its clusters."""
GIVEN = "given"
"""Name of the world that begins with the poses that were known beforehand."""
GROWN = "grown"
"""Name of a world that the refinement placed camera by camera; it is none of the solver's."""


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """One world that was followed: where it started, and what became of it."""

    name: str
    """Where it started, e.g. `fov50`, `fov50-mirror`, `two-view`; or `grown`, see GROWN."""
    loss: float | None
    """Loss at the end; None: it was never evaluated."""
    chosen: bool = False
    """Whether the reconstruction comes from it."""
    pruned_at: int | None
    """Iteration at which it was dropped; None: it was followed to the end."""
    epipolar_share: float | None
    """Share of matches within 3 px of its epipolar geometry at the end; None: dropped before, or not the solver's."""
    explained_share: float | None = None
    """Share of the explainable matches that it explains after a first adjustment; None: it had none."""
    curve: Sequence[Sequence[float]] = ()
    """Iteration and loss, in order."""


@dataclass(frozen=True, kw_only=True)
class ClusterReport:
    """How one cluster of a large set fared."""

    images: list[str]
    """Names of the images that it places, with those that it shares."""
    level: str
    """Verdict on it alone: good, check, distrust."""
    text: str
    """The verdict in words, or why it has no result."""
    explained_share: float
    """Explained matches as a part of the explainable ones."""
    voted_out: str
    """Why it is not in the result; empty: it is."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class SolverRun:
    """What one run of the solver on one connected piece leaves."""

    solutions: Sequence[Solution]
    """Every world that was followed to the end, best supported first; all have the same graph."""
    hypotheses: Sequence[Hypothesis]
    """Every world, none of them chosen yet."""
    iterations: int
    """Iterations that were made."""
    interrupted: bool
    """Whether the user ended it early."""
    seconds: float
    """Time it took."""
    clusters: Sequence[ClusterReport] = ()
    """The clusters that the piece was divided into."""
