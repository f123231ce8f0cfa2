"""What the experiments on the solver share: scenes and photo sets, the paper's schedule in fewer iterations, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from proba.bench.experiment import RunOptions
from proba.bench.measure import cached_matches, solve_and_score
from proba.bench.photo_sets import PhotoSet
from proba.evaluation import accuracy, match_names
from proba.evaluation.poses import relative_errors_deg, relative_motions
from proba.io.ground_truth import GroundTruth
from proba.matches import Matches
from proba.solve_options import PAPER_STEP, SolveOptions
from proba.synthetic import make_scene, scene_matches
from proba.threads import set_threads

SCENE_IMAGES = {"object": 16, "ring": 24, "room": 16}
"""Synthetic scenes, and how many images of each: as few as still overlap well, since 30,000 iterations take long."""
PHOTOS = ("dtu_scan24", "dtu_scan37", "eth3d_pipes")
QUICK_ITERATIONS = 3000
QUICK_STEP = 1e-2
"""Step size where the paper's schedule runs in a tenth of its iterations; measured in docs/paper.md."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A synthetic scene, whose geometry, lens and noise depend on the seed, or a set of photos."""

    name: str
    photos: PhotoSet | None = None
    """None: synthetic."""
    images: int | None = None
    """Of a synthetic scene."""

    @property
    def kind(self) -> str:
        return "synthetic" if self.photos is None else "photos"

    def load(self, seed: int, cache: Path, threads: int) -> tuple[Matches, GroundTruth]:
        """Matches and truth."""
        if self.photos is not None:
            matches, _ = cached_matches(self.name, self.photos.images(cache), "auto", cache, threads)
            return matches, self.photos.truth()
        scene = make_scene(self.name, n_images=self.images, seed=seed)
        return scene_matches(scene, noise_px=1.0, seed=seed), scene.ground_truth(cloud=False)


def cases(
    options: RunOptions, scenes: Sequence[str] = tuple(SCENE_IMAGES), photos: Sequence[str] = PHOTOS
) -> list[Case]:
    """Scenes and, where there is a data folder, photo sets; only those that the user named, if any."""
    wanted = [name for name in scenes if not options.sets or any(word in name for word in options.sets)]
    synthetic = [Case(name=name, images=SCENE_IMAGES[name]) for name in wanted]
    found = options.photo_sets(photos) if photos else []
    return synthetic + [Case(name=one.name, photos=one) for one in found]


def shortened(options: SolveOptions, *, quick: bool) -> SolveOptions:
    """With `quick` the paper's schedule in a tenth of its iterations, and its step sizes five times as large.

    Settings that are not the paper's are left alone.
    """
    if not quick:
        return options
    sizes, paper = options.solver.step_sizes, ((0.0, PAPER_STEP),)
    names = ("pose", "depth", "variance", "focal", "focal_separate")
    larger: dict[str, Any] = {name: ((0.0, QUICK_STEP),) for name in names if getattr(sizes, name) == paper}
    iterations = min(options.solver.iterations, QUICK_ITERATIONS)
    return replace(options, solver=replace(options.solver, iterations=iterations, step_sizes=replace(sizes, **larger)))


def with_solver(options: SolveOptions, **changes) -> SolveOptions:
    """The same with other settings of the solver."""
    return replace(options, solver=replace(options.solver, **changes))


def with_w_3d(options: SolveOptions, w_3d: float) -> SolveOptions:
    """The same with another weight of the 3D term."""
    return with_solver(options, objective=replace(options.solver.objective, w_3d=w_3d))


def solve_case(case: Case, options: SolveOptions, cache: Path, threads: int) -> dict:
    """One solve of a case against its truth."""
    set_threads(threads)
    matches, truth = case.load(options.seed, cache, threads)
    images = None if case.photos is None else case.photos.images(cache)
    return solve_and_score(matches, truth, options, images=images, cloud=False)


def pose_scores(names: Sequence[str], cam_from_world: np.ndarray, truth: GroundTruth) -> dict[str, float]:
    """rra@x and rta@x of poses [N, 4, 4] over all pairs of the truth; a pair without both poses is wrong."""
    poses = np.full((len(truth.names), 4, 4), np.nan)
    for pose, n in zip(cam_from_world, match_names(names, truth.names), strict=True):
        if n is not None:
            poses[n] = pose
    i, j = np.triu_indices(len(poses), 1)  # [P]
    known = ~np.isnan(poses[i, 0, 0] + poses[j, 0, 0])
    i, j, share = i[known], j[known], float(known.mean())
    errors = relative_errors_deg(relative_motions(poses, i, j), relative_motions(truth.cam_from_world, i, j))
    return {
        f"{name}@{x}": share * accuracy(angle, x)
        for name, angle in zip(("rra", "rta"), errors, strict=True)
        for x in (1, 5, 10)
    }
