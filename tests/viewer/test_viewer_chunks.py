"""Level of detail: chunks of a large cloud, and what is shown of them from near and far."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from browser import CHROMIUM, different, open_page, pixels

from proba.errors import InputError
from proba.io.ply import write_ply
from proba.viewer import server
from proba.viewer.chunks import CHUNK, cut
from proba.viewer.page import write_page
from proba.viewer.scene import load_scene
from proba.viewer.server import Viewer

POINTS = 60_000


@pytest.fixture(scope="module")
def cloud_file(result, tmp_path_factory):
    """A dense ball where the scene is."""
    framing = load_scene(result.folder)[0].framing
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(POINTS, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    xyz = framing.focus + 0.4 * framing.radius * direction
    xyz[7] = np.nan
    file = tmp_path_factory.mktemp("cloud") / "points.ply"
    write_ply(file, xyz, (127 + 127 * direction).astype(np.uint8), np.full(POINTS, 0.01))
    return file


def test_chunks_hold_every_point_once_and_are_boxes_in_space():
    xyz = np.random.default_rng(1).normal(size=(5 * CHUNK, 3))
    chunks = cut(xyz)
    assert np.array_equal(np.sort(chunks.order), np.arange(len(xyz)))
    assert np.diff(chunks.start).max() <= CHUNK and len(chunks.low) == 8
    for c, (begin, end) in enumerate(pairwise(chunks.start)):
        mine = xyz[chunks.order[begin:end]]
        assert (mine >= chunks.low[c]).all() and (mine <= chunks.high[c]).all()
        inside = ((xyz > chunks.low[c]) & (xyz < chunks.high[c])).all(1).sum()
        assert inside <= len(mine)
        assert np.abs(mine[: len(mine) // 8].mean(0) - mine.mean(0)).max() < 0.2 * mine.std(0).max()
    first = chunks.first(0.25)
    assert len(first) == pytest.approx(len(xyz) / 4, rel=0.01)
    assert all(begin in first and end - 1 not in first for begin, end in pairwise(chunks.start))


def test_few_or_no_points_are_cut_too():
    assert len(cut(np.zeros((0, 3))).order) == 0 and len(cut(np.zeros((0, 3))).first(1.0)) == 0
    assert len(cut(np.random.default_rng(0).normal(size=(100, 3)), 30).order) == 30


def test_far_chunks_are_thinned():
    chunks = cut(np.random.default_rng(1).uniform(-1, 1, (3 * CHUNK, 3)))
    near, far = (chunks.wanted(np.array([0, 0, z]), 1000.0, 2.0) for z in (10.0, 100.0))
    assert (far < near / 80).all() and (far > 0).all()
    assert np.isinf(chunks.wanted(chunks.low[0], 1000.0, 2.0)[0])


def test_scene_shows_a_cloud_from_a_file(result, cloud_file):
    scene = load_scene(result.folder, cloud=cloud_file, max_points=POINTS // 2)[0]
    assert len(scene.xyz) == POINTS // 2 and np.isfinite(scene.xyz).all()
    assert scene.points_text == "30,000 of 59,999\xa0points" and scene.colourings == ("photo", "sigma")
    with pytest.raises(InputError, match="max-points"):
        load_scene(result.folder, max_points=0)


def test_viewer_shows_more_of_a_near_cloud(result, cloud_file, monkeypatch):
    monkeypatch.setattr(server, "WHOLE_POINTS", 1000)
    viewer = Viewer(port=18_477)
    try:
        scene = load_scene(result.folder, cloud=cloud_file)[0]
        viewer.show([scene])
        show = viewer._show
        camera = SimpleNamespace(image_height=800, fov=0.8)
        monkeypatch.setattr(viewer.server, "get_clients", lambda: {0: SimpleNamespace(camera=camera)})

        def shown(distance: float) -> int:
            camera.position = scene.framing.focus + np.array([0, 0, distance * scene.framing.radius])
            show.follow()
            return sum(len(layer.points) for layer in show.stage._clouds if layer.visible)

        assert shown(0.5) == POINTS - 1
        assert shown(1000) < POINTS / 10
        assert shown(0.5) == POINTS - 1
    finally:
        viewer.stop()


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_page_thins_what_is_far_and_nobody_sees_it(result, cloud_file, tmp_path):
    file = tmp_path / "page.html"
    write_page(file, load_scene(result.folder, cloud=cloud_file), title="dense")
    with open_page(file.as_uri()) as page:
        page.wait_for_selector("body[data-ready]", state="attached")
        assert page.locator("#colour option").all_inner_texts() == ["photo", "sigma"]

        def look(cover: str) -> tuple[np.ndarray, int]:
            page.evaluate(f"() => {{ proba.cover = {cover}; }}")
            page.wait_for_timeout(1500)
            return pixels(page), page.evaluate("proba.drawn")

        page.evaluate("zoom(4)")
        (thinned, few), (whole, all_points) = look("2"), look("Infinity")
        assert all_points == POINTS - 1 and few < POINTS / 4
        assert different(thinned, whole) < 0.01
        page.evaluate("zoom(0.1)")
        assert look("2")[1] > 2 * few
        page.evaluate("eye.focus = add(eye.focus, matrices().right, 100 * piece.framing.radius)")
        assert look("2")[1] == 0  # all of it is outside of the picture


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_page_draws_fewer_points_while_a_slow_machine_moves(result, cloud_file, tmp_path):
    file = tmp_path / "page.html"
    write_page(file, load_scene(result.folder, cloud=cloud_file), title="dense")
    move = """async () => { smoothMs = 1e-3; proba.cover = Infinity;
        for (let k = 0; k < 20; k++) { dirty = true; await new Promise(requestAnimationFrame); }
        return proba.drawn; }"""
    with open_page(file.as_uri()) as page:
        page.wait_for_selector("body[data-ready]", state="attached")
        assert page.evaluate(move) < POINTS / 2
        page.wait_for_function(f"() => proba.drawn === {POINTS - 1}")  # and all of them at rest
