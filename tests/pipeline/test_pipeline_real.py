"""Real photos from a strict cold start: SIFT matches in, accurate poses out, intrinsics never told."""

from dataclasses import replace

import pytest

from proba.cameras import CameraOptions
from proba.evaluation import evaluate
from proba.io.ground_truth import load_ground_truth
from proba.io.matches_h5 import load_matches
from proba.matching import MatchOptions, match_folder
from proba.pipeline import SolveOptions, solve_matches

COLMAP_AUC_1 = {"strecha_herzjesu_p8": 71.9, "strecha_fountain_p11": 66.0, "strecha_entry_p10": 63.3}
"""Measured with `proba bench real`: COLMAP's incremental mapping, SIMPLE_PINHOLE, one unknown camera."""


@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    [
        "strecha_herzjesu_p8",
        pytest.param("strecha_fountain_p11", marks=pytest.mark.slow),
        pytest.param("strecha_entry_p10", marks=pytest.mark.slow),
    ],
)
def test_every_photo_is_posed_more_accurately_than_by_colmap(data_root, tmp_path, name):
    match_folder(data_root / name / "images", tmp_path / "matches.h5", MatchOptions(matcher="sift"))
    result = solve_matches(load_matches(tmp_path / "matches.h5"))
    metrics = evaluate(result.reconstructions, load_ground_truth(data_root / name / "gt.json"), cloud=False)
    assert metrics["registered"] == metrics["images"]
    assert metrics["rta@1"] == metrics["rra@1"] == 100
    assert metrics["auc@1"] > COLMAP_AUC_1[name]
    assert metrics["focal_error_pct"] < 0.3


@pytest.mark.real
def test_focals_that_are_known_are_held_and_the_others_found(data_root, tmp_path):
    folder = data_root / "strecha_herzjesu_p8"
    truth = load_ground_truth(folder / "gt.json")
    match_folder(folder / "images", tmp_path / "matches.h5", MatchOptions(matcher="sift"))
    matches = load_matches(tmp_path / "matches.h5")
    true_px = float(truth.intrinsics[0, 0])
    matches.images[:3] = [replace(info, camera_key="told", focal_px=true_px) for info in matches.images[:3]]
    options = SolveOptions(cameras=CameraOptions(focal="fixed"))
    with pytest.warns(UserWarning, match="is not known"):
        result = solve_matches(matches, options)
    held, free = (result.best.camera(matches.images[k].name) for k in (0, 7))
    assert held.focal_px[0] == pytest.approx(true_px, rel=1e-9) and held.focal_std_px == 0
    assert free.focal_px[0] == pytest.approx(true_px, rel=0.005) and free.focal_std_px > 0
    assert evaluate(result.reconstructions, truth, cloud=False)["rta@1"] == 100
