"""A small result with photos and one image whose name tries to be a script."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from browser import NASTY

from proba import api
from proba.history.recorder import Recorder
from proba.io.ground_truth import save_ground_truth
from proba.pipeline import SolveOptions, SolveResult
from proba.refine import RefineOptions, TrackOptions
from proba.solver import SolverOptions
from proba.synthetic import make_scene, scene_matches
from proba.synthetic.render import render_images

ITERATIONS = 300


@dataclass(frozen=True)
class Result:
    """A result folder and what made it."""

    folder: Path
    images: Path
    gt: Path
    solved: SolveResult


@pytest.fixture(scope="session")
def result(tmp_path_factory) -> Result:
    root = tmp_path_factory.mktemp("viewer")
    world = make_scene("object", n_images=6, seed=3)
    matches = scene_matches(world, seed=3)
    names = [info.name for info in matches.images]
    render_images(world, root / "images")
    truth = world.ground_truth()
    (root / "images" / names[1]).rename(root / "images" / NASTY)
    matches.images[1] = replace(matches.images[1], name=NASTY)
    truth.names[truth.names.index(names[1])] = NASTY
    save_ground_truth(truth, root / "gt.json")
    options = SolveOptions(
        solver=SolverOptions(iterations=ITERATIONS, hypotheses="cold", keep=((0.5, 1),)),
        refine=RefineOptions(tracks=TrackOptions(adjusted=1000, final=1500, points=2000)),
    )
    solved = api.solve(matches, out=root / "out", images=root / "images", options=options, observer=Recorder())
    return Result(root / "out", root / "images", root / "gt.json", solved)
