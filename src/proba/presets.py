"""Named settings: the paper's, ours, and the ladder between them, each step of which takes over one of our changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from proba.errors import InputError
from proba.solve_options import DEFAULT, PAPER, SolveOptions


@dataclass(frozen=True, kw_only=True)
class Step:
    """One of our changes to the paper's method."""

    name: str
    """Of the preset that has this change and all before it."""
    adds: str
    """What changes, for tables."""
    fields: tuple[str, ...]
    """Settings that take their default from here on, e.g. `solver.gauge`."""


LADDER = (
    Step(
        name="1-gauge",
        adds="3D term per pixel-sized cube, and mean log-depth held at 0",
        fields=("solver.objective", "solver.gauge"),
    ),
    Step(
        name="2-graph",
        adds="8 neighbours, none below 30 matches; weights from the root of the similarity, normalised",
        fields=("graph", "solver.normalise_weights", "solver.weights_every"),
    ),
    Step(
        name="3-coarse-to-fine",
        adds="depth maps of 1 to 32 cells a side, one variance an image at first",
        fields=("solver.levels", "solver.variance_maps_from", "solver.step_sizes.depth", "solver.step_sizes.variance"),
    ),
    Step(
        name="4-focal",
        adds="one focal length a camera, square pixels, frozen at first",
        fields=(
            "cameras",
            "solver.start_fov_sides",
            "solver.square_pixels",
            "solver.step_sizes.focal",
            "solver.step_sizes.focal_separate",
        ),
    ),
    Step(
        name="5-pivot",
        adds="pose steps on the group, with turns about the scene",
        fields=("solver.pose_steps", "solver.step_sizes.pose"),
    ),
    Step(
        name="6-mirror",
        adds="exact mirror copies for 30 % of the iterations",
        fields=("solver.mirror", "solver.mirror_until"),
    ),
    Step(name="7-outliers", adds="an outlier alternative for each match", fields=("solver.outlier_margin",)),
    Step(name="8-roll", adds="photos on their side start with that quarter turn", fields=("solver.roll",)),
    Step(
        name="9-short",
        adds="1,200 iterations with a growing minibatch",
        fields=("solver.iterations", "solver.batch", "solver.max_matches", "solver.step_sizes"),
    ),
    Step(
        name="strict",
        adds="the refinement, pairs as judges of the worlds, and clusters of large sets",
        fields=("refine", "longer", "solver.select_by", "clusters", "scenes"),
    ),
    Step(
        name=DEFAULT,
        adds="six start fields of view and a two-view start instead of 45 degrees",
        fields=("solver.hypotheses", "solver.keep"),
    ),
)
"""From the paper's settings (`paper`) to ours (`default`). `strict` is ours from the paper's start."""

PRESETS = (PAPER, *(step.name for step in LADDER))
"""Names of all presets, in the order of the ladder."""


def preset(name: str) -> SolveOptions:
    """The settings of a name in `PRESETS`: `paper`, `strict`, `default`, or a step between them."""
    if name not in PRESETS:
        raise InputError(f"there is no preset {name}; there are {', '.join(PRESETS)}")
    options, ours = SolveOptions.paper(), SolveOptions()
    for step in LADDER[: PRESETS.index(name)]:
        for field in step.fields:
            options = _taken_over(options, ours, field.split("."))
    return replace(options, preset=name)


def _taken_over(options: Any, source: Any, path: list[str]) -> Any:
    """`options` with the field at the end of a path as in `source`."""
    first, *rest = path
    value = getattr(source, first)
    if rest:
        value = _taken_over(getattr(options, first), value, rest)
    return replace(options, **{first: value})
