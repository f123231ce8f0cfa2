"""Settings of all stages after matching, and the paper's values of them."""

from __future__ import annotations

from dataclasses import dataclass, field, is_dataclass
from typing import TypeVar, get_args, get_type_hints

from proba.cameras import CameraOptions
from proba.errors import InputError
from proba.graph import ClusterOptions, GraphOptions
from proba.known_poses import KnownPoseOptions
from proba.objective import ObjectiveOptions
from proba.refine import RefineOptions
from proba.rigs import PanoramaOptions, RigOptions
from proba.scenes import SceneOptions
from proba.solver import SolverOptions, StepSizes

Settings = TypeVar("Settings")
DEFAULT = "default"
PAPER = "paper"
PAPER_STEP = 2e-3
"""Step size of every unknown in the paper's preset; the paper is silent, docs/paper.md has the measurement."""


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """Settings of all stages after matching. `preset` is only a name here: `proba.preset(NAME)` makes its settings."""

    preset: str = DEFAULT
    """What all settings begin as: default, strict, paper."""
    seed: int = 0
    """Seed of everything random. Same seed and threads: same bits."""
    cameras: CameraOptions = field(default_factory=CameraOptions)
    """What is known or assumed of the cameras."""
    known: KnownPoseOptions = field(default_factory=KnownPoseOptions)
    """What is known of the poses."""
    rigs: RigOptions = field(default_factory=RigOptions)
    """What is known of cameras that moved together."""
    panoramas: PanoramaOptions = field(default_factory=PanoramaOptions)
    """Into which pinhole views panoramas are cut."""
    graph: GraphOptions = field(default_factory=GraphOptions)
    """Which pairs the solver looks at."""
    clusters: ClusterOptions = field(default_factory=ClusterOptions)
    """How large sets are divided."""
    solver: SolverOptions = field(default_factory=SolverOptions)
    """From a cold start to a rough reconstruction."""
    refine: RefineOptions = field(default_factory=RefineOptions)
    """From a rough reconstruction to an accurate one."""
    scenes: SceneOptions = field(default_factory=SceneOptions)
    """When photos that matches join are taken for several scenes."""
    longer: int = 2
    """Where no two worlds agree, the solver starts again with this many times the iterations; 1 turns that off."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"The seed must be 0 or more, not {self.seed}.")

    @classmethod
    def paper(cls) -> SolveOptions:
        """The settings of the paper, where it gives them; docs/paper.md has its sentence beside each."""
        return cls(
            preset=PAPER,
            cameras=CameraOptions(share="none"),
            graph=GraphOptions(n_neig=20, min_matches=1, weight_power=1.0, aux_factor=None),
            solver=_paper_solver(),
            refine=RefineOptions(enabled=False),
            scenes=SceneOptions(enabled=False),
            longer=1,
            clusters=ClusterOptions(count="off"),
        )


def _paper_solver() -> SolverOptions:
    step = ((0.0, PAPER_STEP),)
    return SolverOptions(
        iterations=30_000,
        hypotheses="cold",
        cold_fov_deg=45.0,
        start_fov_sides="both",
        keep=(),
        map_size=32,
        levels=((0.0, 32),),
        variance_maps_from=0.0,
        batch=((0.0, 64),),
        max_matches=64 * 64,
        step_sizes=StepSizes(pose=step, depth=step, variance=step, focal=step, focal_separate=step),
        poses="relative",
        pose_steps="twist",
        mirror="regularise",
        mirror_until=2000 / 30_000,
        mirror_lambda=100.0,
        adaptive_weights=True,
        weights_from=5000 / 30_000,
        weights_gain=1e-4 * 30_000,
        weights_every=1,
        normalise_weights=False,
        gauge=False,
        select_by="loss",
        outlier_margin=None,
        roll=False,
        square_pixels=False,
        objective=ObjectiveOptions(measure="paper", w_3d=1.0, z_min=1e-3),
    )


def settings_from(kind: type[Settings], values: dict) -> Settings:
    """Option dataclasses from what `asdict` and JSON made of them; fields that no longer exist are left out."""
    hints = get_type_hints(kind)
    known = {name: value for name, value in values.items() if name in hints}
    return kind(
        **{
            name: settings_from(hints[name], value) if is_dataclass(hints[name]) else _tuples(value, hints[name])
            for name, value in known.items()
        }
    )


def _tuples(value, kind=None):
    """Lists as tuples, of option dataclasses where the field's `kind` is such a sequence."""
    if not isinstance(value, (list, tuple)):
        return value
    inner = next((part for part in get_args(kind) if isinstance(part, type) and is_dataclass(part)), None)
    return tuple(_tuples(item) if inner is None else settings_from(inner, item) for item in value)
