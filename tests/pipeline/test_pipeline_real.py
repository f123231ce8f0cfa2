"""Real photos from a strict cold start: SIFT matches in, accurate poses out, intrinsics never told."""

import pytest

from proba.evaluation import evaluate
from proba.io.ground_truth import load_ground_truth
from proba.io.matches_h5 import load_matches
from proba.matching import MatchOptions, match_folder
from proba.pipeline import solve_matches

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
