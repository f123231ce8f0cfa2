"""Small scenes shared by the tests of the refinement."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from perturbed_world import exact_bundle

from proba.matches import Matches
from proba.refine.bundle import Bundle
from proba.synthetic import Scene, make_scene, scene_matches


@pytest.fixture(scope="session")
def room() -> Scene:
    return make_scene("room", n_images=8, seed=0)


@pytest.fixture(scope="session")
def room_matches(room: Scene) -> Matches:
    return scene_matches(room, grid=24, noise_px=0.6, seed=1)


@pytest.fixture(scope="session")
def bundle(room: Scene, room_matches: Matches) -> Bundle:
    return exact_bundle(room, room_matches)
