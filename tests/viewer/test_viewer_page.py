"""The page and the viewer in a real browser."""

import json
import re

import numpy as np
import pytest
from browser import CHROMIUM, NASTY, different, drawn, open_page, pixels

from proba.viewer.drawing import frustums
from proba.viewer.page import write_page
from proba.viewer.raster import Canvas, Eye
from proba.viewer.scene import load_scene
from proba.viewer.server import Viewer

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
CONTROLS_PX = 260  # the panel on the left of the page


@pytest.fixture(scope="module")
def page_file(result, tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "page.html"
    write_page(file, load_scene(result.folder, gt=result.gt), title="</script><b>t")
    return file


def content(page_file) -> dict:
    text = page_file.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])


def test_page_is_one_file_without_links(page_file):
    text = page_file.read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)\s*=\s*["\']?(?:https?:)?//', text)
    assert page_file.stat().st_size < 4e6


def test_page_holds_the_result_and_no_name_can_break_it(page_file, result):
    piece = content(page_file)["pieces"][0]
    assert piece["names"] == result.solved.best.image_names and NASTY in piece["names"]
    assert piece["arrays"]["pose"]["length"] == 12 * 6
    assert page_file.read_text(encoding="utf-8").count("<img") == 0
    assert piece["arrays"]["truth"] is not None and len(piece["history"]["labels"]) == 2


def test_fewer_points_make_a_smaller_page(result, tmp_path):
    large, small = (
        write_page(tmp_path / "p.html", load_scene(result.folder, max_points=n), title="t") for n in (10**6, 50)
    )
    assert small < large - 10 * (len(result.solved.best.points.xyz) - 50)


@needs_browser
def test_page_in_the_browser(page_file):
    with open_page(page_file.as_uri()) as page:
        page.wait_for_selector("body[data-photos='6']", state="attached")
        page.wait_for_timeout(1000)
        full = pixels(page)
        assert drawn(full[:560, CONTROLS_PX:]) > 3000
        page.uncheck("#show-cameras")
        page.uncheck("#show-edges")
        page.wait_for_timeout(1000)
        bare = pixels(page)
        assert different(full, bare) > 0.005  # the cameras were there
        assert drawn(bare[:560, CONTROLS_PX:]) > 1000  # and the points still are
        page.select_option("#colour", "sigma")
        page.wait_for_timeout(1000)
        assert different(bare, pixels(page)) > 0.002
        page.check("#show-cameras")

        x, y, _ = page.evaluate("proba.at(1)")
        page.mouse.click(x, y)
        chosen = page.evaluate("proba.selected")
        assert chosen >= 0
        assert page.inner_text("#camera-name") == content(page_file)["pieces"][0]["names"][chosen]
        assert "±" in page.inner_text("#facts") and page.locator("#edges tbody tr").count() >= 2
        page.keyboard.press("Escape")
        assert page.is_hidden("#camera")

        page.evaluate("() => { const s = document.getElementById('slider'); s.value = 0; s.oninput(); }")
        assert "iteration 0" in page.inner_text("#title")
        page.wait_for_timeout(1000)
        start = pixels(page)
        assert different(full, start) > 0.02 and drawn(start[:560, CONTROLS_PX:]) > 3000
        page.click("#play")
        for _ in range(100):
            if page.evaluate("proba.position") > 0.1:
                break
            page.wait_for_timeout(100)
        assert page.evaluate("proba.position") > 0.1
        page.select_option("#world", "1")
        assert "fov45-mirror" in page.inner_text("#title")
        page.mouse.move(600, 300)
        page.mouse.down()
        page.mouse.move(700, 330)
        page.mouse.up()
        assert page.evaluate("proba.selected") == -1  # a drag is no click


@needs_browser
def test_names_are_shown_as_text(page_file):
    with open_page(page_file.as_uri()) as page:  # fails on any dialog
        page.wait_for_selector("body[data-ready]", state="attached")
        names = content(page_file)["pieces"][0]["names"]
        page.evaluate(f"select({names.index(NASTY)})")
        assert page.inner_text("#camera-name") == NASTY
        assert page.inner_text("h1") == "</script><b>t"


def place_on_screen(scene, image: int) -> tuple[float, float]:
    """Where the first view shows a camera, in pixels of `open_page`'s window."""
    eye = Eye(scene.framing.eye, scene.framing.focus, scene.framing.up)
    shape = frustums(scene.rec.world_from_cam, scene.tan, scene.aspect, scene.framing.frustum)[image]
    xy, _ = Canvas(1000, 640, eye, oversample=1).project(shape[1:].mean(0)[None])
    return float(xy[0, 0]), float(xy[0, 1])


@needs_browser
def test_viewer_in_the_browser(result):
    viewer = Viewer(port=18_437)
    try:
        assert viewer.url.startswith("http://127.0.0.1:")
        pieces = load_scene(result.folder, gt=result.gt)
        viewer.show(pieces)
        with open_page(viewer.url) as page:
            page.wait_for_selector("text=click a camera")
            page.wait_for_timeout(6000)
            end = pixels(page)
            assert drawn(end[150:, :650]) > 3000
            page.mouse.click(*place_on_screen(pieces[0], 1))
            page.wait_for_selector("text=rotation std")
            assert page.get_by_text(NASTY, exact=False).count() >= 1
            viewer.go_to(0)
            page.wait_for_selector("text=iteration 0")
            page.wait_for_timeout(4000)
            assert different(end[150:, :650], pixels(page)[150:, :650]) > 0.02
    finally:
        viewer.stop()


def test_viewer_answers_only_on_this_machine(result):
    viewer = Viewer(port=18_457)
    try:
        assert viewer.server.get_host() == "127.0.0.1"
        viewer.show(load_scene(result.folder))
        show = viewer._show
        assert len(show.stage.cameras) == 6 and show.refined
        picture = show.overlay(0)
        photo = show.scene.photos(0, 640)
        assert picture.shape == photo.shape and (picture != photo).any(-1).sum() > 200
        assert "&lt;img" in show._tables(0) and "<img" not in show._tables(0)
        viewer.go_to(0)
        assert not show.refined and "iteration 0" in show.title.content
        before = np.array(show.stage.cameras[2].position)
        viewer.go_to(5)
        assert np.linalg.norm(np.array(show.stage.cameras[2].position) - before) > 1e-3
    finally:
        viewer.stop()
