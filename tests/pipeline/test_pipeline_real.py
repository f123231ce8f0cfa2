"""Real photos from a strict cold start: SIFT matches in, accurate poses out, intrinsics never told."""

import subprocess
import sys
from pathlib import Path

import pytest

from proba.evaluation import evaluate
from proba.io.ground_truth import load_ground_truth
from proba.io.matches_h5 import load_matches
from proba.pipeline import solve_matches

SCRIPT = Path(__file__).parents[2] / "scripts" / "sift_matches.py"
COLMAP_AUC_1 = {"strecha_herzjesu_p8": 71.9, "strecha_fountain_p11": 66.0, "strecha_entry_p10": 63.3}
"""Measured with `proba.bench.colmap.run_colmap`: incremental mapping, SIMPLE_PINHOLE, one unknown camera."""


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
    matches = tmp_path / "matches.h5"
    subprocess.run([sys.executable, str(SCRIPT), str(data_root / name / "images"), "--out", str(matches)], check=True)
    result = solve_matches(load_matches(matches))
    metrics = evaluate(result.reconstructions, load_ground_truth(data_root / name / "gt.json"), cloud=False)
    assert metrics["registered"] == metrics["images"]
    assert metrics["rta@1"] == metrics["rra@1"] == 100
    assert metrics["auc@1"] > COLMAP_AUC_1[name]
    assert metrics["focal_error_pct"] < 0.3
