"""A set with ground truth, as the benchmarks read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proba.io.ground_truth import save_ground_truth
from proba.io.matches_h5 import save_matches
from proba.synthetic import make_scene, scene_matches


@pytest.fixture(scope="package")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the set toy, whose matches are already in the folder cache."""
    root = tmp_path_factory.mktemp("data")
    scene = make_scene("object", n_images=5, seed=0)
    (root / "toy" / "images").mkdir(parents=True)
    save_ground_truth(scene.ground_truth(cloud=False), root / "toy" / "gt.json")
    (root / "cache").mkdir()
    save_matches(root / "cache" / "toy.auto.h5", scene_matches(scene, grid=24, noise_px=0.5, outliers=0.2, seed=1))
    return root
