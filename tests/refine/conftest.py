"""Small scenes shared by the tests of the refinement."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from perturbed_world import perturbed_solution

from proba.matches import Matches
from proba.refine.bundle import Bundle, bundle_from_solution, unit_px, unit_tracks
from proba.refine.tracks import build_tracks
from proba.refine.triangulate import points_from_depth_maps
from proba.synthetic import Scene, make_scene, scene_matches


@pytest.fixture(scope="session")
def room() -> Scene:
    return make_scene("room", n_images=8, seed=0)


@pytest.fixture(scope="session")
def room_matches(room: Scene) -> Matches:
    return scene_matches(room, grid=24, noise_px=0.6, seed=1)


@pytest.fixture(scope="session")
def bundle(room: Scene, room_matches: Matches) -> Bundle:
    """The exact cameras of the room, with points at the depths of the maps."""
    exact = perturbed_solution(room, room_matches, rotation_deg=0, position=0, focal_factor=1, depth_noise=0)
    tracks = unit_tracks(build_tracks(room_matches, exact.graph), unit_px(room_matches, exact))
    return points_from_depth_maps(bundle_from_solution(room_matches, exact, tracks), exact.log_depth)
