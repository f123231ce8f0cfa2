"""Settings of the first-order solver. Measured defaults name their measurement in docs/experiments.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from proba.kernels import Device
from proba.objective import ObjectiveOptions

Hypotheses = Literal["portfolio", "cold"]
Steps = tuple[tuple[float, float], ...]
"""A piecewise constant schedule: (share of the iterations, value from there on)."""


@dataclass(frozen=True, kw_only=True)
class StepSizes:
    """AdamW step sizes over the run, as (share of the iterations, value) steps."""

    pose: Steps = ((0.0, 5e-3),)
    """Pose generators: camera translation and rotation, rotation about the scene pivot."""
    depth: Steps = ((0.0, 3e-3), (0.3, 7e-3), (0.6, 1e-2))
    """Log-depth. Slow early, so that poses align before relief chooses a sign."""
    variance: Steps = ((0.0, 1e-2),)
    """Log-variance."""
    focal: Steps = ((0.0, 0.0), (0.6, 1e-3))
    """Log-focal. Frozen while relief is flat: free, it runs to 84-100 degrees."""
    focal_separate: Steps = ((0.0, 0.0), (0.42, 3e-3))
    """Log-focal where images do not share intrinsics: they start further from their own."""
    decay_from: float = 0.6
    """Share of the iterations after which all step sizes fall on a cosine ..."""
    decay_to: float = 0.02
    """... to this share of themselves."""
    beta1: float = 0.9
    """AdamW's memory of the gradient."""
    beta2: float = 0.999
    """AdamW's memory of the squared gradient."""
    weight_decay: float = 0.0
    """Decoupled decay of log-depth and log-variance towards 0 (depth 1, variance 1)."""


@dataclass(frozen=True, kw_only=True)
class SolverOptions:
    """The first-order solver: from identity poses, depth 1 and variance 1 to a coarse reconstruction."""

    iterations: int = 1200
    """Iterations of the whole run; every schedule is a share of it. The paper uses 30000 without the refinement."""
    hypotheses: Hypotheses = "portfolio"
    """portfolio: several start fields of view, their mirror worlds, and one world from two-view geometry, pruned on the
    way. cold: the paper's strict regime, 45 degrees and its mirror world."""
    cold_fov_deg: float = 45.0
    """Start field of view of the strict regime (paper: 45)."""
    start_fov_deg: tuple[float, ...] = (17.0, 25.0, 36.0, 50.0, 66.0, 85.0)
    """Start fields of view of the portfolio."""
    start_fov_sides: Literal["longest", "both"] = "longest"
    """longest: a start field of view is that of the longest side, and pixels are square. both: it is that of either
    side, as printed in the paper, so pixels of an oblong photo start oblong; needs square_pixels off."""
    start_sigma: float = 0.0
    """Standard deviation of a random twist on every start pose (radians, and scene depths); 0: strict cold start."""
    two_view_world: bool = True
    """Add a world seeded from two-view relative poses to the portfolio."""
    keep: tuple[tuple[float, int], ...] = ((0.42, 5), (0.65, 3))
    """Pruning: (share of the iterations, number of worlds that are kept from there on)."""
    map_size: int = 32
    """Cells along a side of the finest depth and variance maps."""
    levels: tuple[tuple[float, int], ...] = ((0.0, 1), (0.1, 2), (0.2, 4), (0.3, 8), (0.45, 16), (0.6, 32))
    """Coarse to fine: (share of the iterations, cells along a side of the depth maps), at most map_size cells."""
    variance_maps_from: float = 0.6
    """Each image has one variance before this share of the iterations, and a map of variances after it."""
    batch: tuple[tuple[float, int], ...] = ((0.0, 24), (0.45, 48), (0.75, 128))
    """Matches of each edge in a minibatch, as (share of the iterations, number) steps."""
    max_matches: int = 2048
    """Matches of an edge beyond this are left out of the first-order solve (bounds memory)."""
    step_sizes: StepSizes = field(default_factory=StepSizes)
    """Step sizes and their schedule."""
    poses: Literal["relative", "absolute"] = "relative"
    """relative: each pose is that to its parent in the tree. absolute: each is that to the root (paper: no RP)."""
    pose_steps: Literal["pivot", "twist"] = "pivot"
    """pivot: steps on the group with over-complete generators. twist: the paper's twist coordinates."""
    mirror: Literal["copy", "regularise", "off"] = "copy"
    """How a mirror world is tied to its primary: exact mirror copies of its poses, or the paper's L1 pull, or none."""
    mirror_until: float = 0.3
    """Share of the iterations during which the tie lasts; it must outlast the birth of relief."""
    mirror_lambda: float = 100.0
    """Start weight of the L1 pull (paper: 100), decaying linearly to 0."""
    adaptive_weights: bool = True
    """Adaptive edge weights of the paper."""
    weights_from: float = 1 / 6
    """Share of the iterations before edge weights move (paper: 5000 of 30000)."""
    weights_gain: float = 3.0
    """EMA rate times the iterations (paper: 1e-4 x 30000)."""
    weights_every: int = 10
    """Iterations from one update of the edge weights to the next, which moves them as far as all of them would."""
    normalise_weights: bool = True
    """Edge weights are divided by their sum, so that the loss is that of a mean match. The paper's are not."""
    gauge: bool = True
    """Shift log-depths to mean 0 after each step, since nothing in the matches fixes the scale."""
    select_by: Literal["epipolar", "loss"] = "epipolar"
    """What ranks the worlds at the end: how many matches agree with their epipolar geometry, or L_world (paper)."""
    outlier_margin: float | None = 10.0
    """A match is an outlier where its loss exceeds the inliers' running mean by this much; None: plain Gaussian NLL."""
    max_rejected: float = 0.6
    """Bound on the share of rejected matches: beyond it the margin widens."""
    roll: bool = True
    """Start images that are turned against the others by their quarter turns instead of identity."""
    square_pixels: bool = True
    """Each camera has one focal length instead of two."""
    objective: ObjectiveOptions = field(default_factory=ObjectiveOptions)
    """The likelihood."""
    backend: Literal["fused", "reference"] = "fused"
    """fused: closed-form kernel. reference: torch autograd, slow; needed for anisotropic Gaussians."""
    device: Device = "cpu"
    """cpu, or cuda: an NVIDIA GPU with numba-cuda (`pip install 'proba-sfm[cuda]'`)."""
    checkpoint_seconds: float = 10.0
    """Time between checkpoints, seconds."""

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.weights_every < 1:
            raise ValueError("iterations and weights_every must be at least 1")
        if self.start_fov_sides == "both" and self.square_pixels:
            raise ValueError("start_fov_sides both needs two focal lengths a camera: turn square_pixels off")
        if self.poses == "absolute" and self.hypotheses == "portfolio" and self.two_view_world:
            raise ValueError("absolute poses cannot start from two-view geometry: turn two_view_world off")


def value_at(steps: tuple[tuple[float, float], ...], share: float) -> float:
    """The value of a piecewise constant schedule."""
    value = steps[0][1]
    for begin, later in steps:
        if share >= begin:
            value = later
    return value
