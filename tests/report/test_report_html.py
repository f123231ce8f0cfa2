"""report.html: whole, offline, escaped, and with pictures where there are photos."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from proba.cli.align import main as align
from proba.io.reconstruction_folder import load_reconstruction
from proba.pipeline import SolveOptions
from proba.report import folder_summary, write_results
from proba.report.facts import PairFacts
from proba.report.figures import graph_matrix, scene_view, view_axes
from proba.report.html import SCENES
from proba.report.pictures import MAX_THUMBNAILS, thumbnails, worst_pairs
from proba.report.prose import to_html
from proba.report.words import duration, focal_range, stage_times

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Checker(HTMLParser):
    """Tags must close in order; what would load or run something is noted."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.loads, self.text = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href") and not value.startswith("data:"):
                self.loads.append(value)
            assert not name.startswith("on")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def write(finished, folder, **more):
    write_results(folder, finished.matches, finished.result(), SolveOptions(), **more)
    page = Checker()
    page.feed((folder / "report.html").read_text())
    assert page.open == [] and page.loads == []
    return page, json.loads((folder / "report.json").read_text())


def photos(finished, folder):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for info in finished.matches.images:
        Image.fromarray(rng.integers(0, 256, (120, 160, 3), dtype=np.uint8)).save(folder / info.name)
    return folder


def test_without_photos(finished, tmp_path):
    page, report = write(finished, tmp_path)
    assert report["image_folder"] is None and report["matching"] is None
    assert report["verdict"]["text"] in page.text
    assert page.tags.count("svg") >= 5 and "image" not in page.tags and "script" not in page.tags
    assert all({"median_px", "agreeing", "explained", "explainable"} <= edge.keys() for edge in report["edges"])
    assert [image["name"] for image in report["per_image"]] == finished.rec.image_names
    assert "Looks right" in folder_summary(tmp_path)


def test_with_photos(finished, tmp_path):
    folder = photos(finished, tmp_path / "photos")
    matching = {"matchers": ["sift"], "pairs_tried": 28, "pairs_kept": 20, "matches": 5000}
    page, report = write(finished, tmp_path / "out", image_folder=folder, matching=matching)
    assert report["image_folder"] == str(folder)
    assert page.tags.count("image") == 8  # four pairs of two
    assert page.tags.count("img") == 8  # the table of images
    assert "Matched with sift: 20 of 28 pairs kept" in page.text
    assert (tmp_path / "out" / "report.html").stat().st_size < 1_500_000


def test_unreadable_photos_do_not_stop_the_report(finished, tmp_path):
    folder = photos(finished, tmp_path / "photos")
    for path in folder.iterdir():
        path.write_bytes(b"\x89PNG no more")
    page, _ = write(finished, tmp_path / "out", image_folder=folder)
    assert "image" not in page.tags and "img" not in page.tags


def test_file_names_are_text(finished, tmp_path):
    evil = '<script>alert("x")</script>&amp;"onload="y.jpg'
    old = finished.rec.image_names[0]
    finished.rec.image_names[0] = evil
    finished.matches.images[0] = type(finished.matches.images[0])(name=evil, width=640, height=480)
    finished.rec.edges = [
        replace(edge, **{key: evil for key in "ij" if getattr(edge, key) == old}) for edge in finished.rec.edges
    ]
    finished.rec.cam_from_world[0, 0, 3] += 0.5  # so that the name is in warnings and pictures too
    page, report = write(finished, tmp_path)
    assert evil in report["verdict"]["text"] and evil in page.text
    assert "script" not in page.tags


def test_nothing_runs_and_nothing_is_loaded(finished, tmp_path):
    write(finished, tmp_path)
    page = (tmp_path / "report.html").read_text()
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
    assert f'<meta http-equiv="Content-Security-Policy" content="{policy}">' in page.partition("<style>")[0]
    assert "prefers-color-scheme:dark" in page


def test_warnings_bring_their_section_of_the_troubleshooting_page(finished, tmp_path):
    finished.interrupted = True
    page, _ = write(finished, tmp_path)
    assert "Interrupted: what it means and what helps" in page.text
    assert "You pressed Ctrl-C" in page.text and "--resume" in page.text


def test_little_markdown_becomes_html():
    text = "Two\nlines with `a < b`.\n- *one* [page](x.md)\n  goes on\n- two\n\nThe end."
    assert to_html(text) == (
        "<p>Two lines with <code>a &lt; b</code>.</p><ul><li><em>one</em> page goes on</li><li>two</li></ul>"
        "<p>The end.</p>"
    )


def test_focal_lengths_of_all_cameras():
    def focal(focal_px, std_px):
        return {"focal_px": focal_px, "std_px": std_px}

    assert focal_range([focal(762.81, 4.04)]) == ("762.8 ± 4.0 px", "focal length")
    assert focal_range([focal(762.81, None)])[0] == "762.8 ± unknown px"
    several = [focal(762.8, 4.0), focal(1393.3, 27.4), focal(750.8, None), focal(1099.7, 6.07)]
    assert focal_range(several) == ("751 to 1393 px", "focal lengths of 4 cameras, typically ± 6.1 px")


def test_stages_have_names_and_times():
    assert stage_times({"match": 2.0, "solve": 1.0}) == [("matching", 2.0), ("cold start search", 1.0)]
    assert duration({"match": 60.0, "solve": 30.4}) == "90 s" and duration({"match": 186.4}) == "3 min 6 s"


def test_hundreds_of_photos_keep_the_page_small(finished, tmp_path):
    folder = photos(finished, tmp_path / "photos")
    small = thumbnails([finished.rec] * 50, folder)
    assert max(len(photo.jpeg_base64) for photo in small.values()) * MAX_THUMBNAILS < 3e6  # of noise, the worst case
    assert all(max(photo.width, photo.height) == 80 for photo in small.values())


def test_lines_of_a_wrong_pair_are_red(finished):
    finished.rec.cam_from_world[3, 0, 3] += 0.5
    edges = [PairFacts(**edge) for edge in finished.report()["edges"]]
    pictures = worst_pairs(finished.matches, [finished.rec], edges, None)
    assert len(pictures) == 4
    for picture in pictures:
        assert "003.png" in (picture.edge.i, picture.edge.j)
        assert picture.agrees.mean() < 0.5
        assert (picture.left.width, picture.left.height) == (400, 300)
        assert np.abs(picture.lines).max() < 500


def test_an_uncertain_world_is_written_as_unknown(finished, tmp_path):
    """JSON has no NaN, and a page must not show it."""
    finished.rec.pose_std[:] = np.nan
    finished.rec.cameras[0].focal_std_px = float("nan")
    page, report = write(finished, tmp_path)
    assert report["focal_px"][0]["std_px"] is None
    assert "unknown" in page.text and "nan" not in page.text.lower().split()


def test_aligning_redraws_the_scene_and_nothing_else(finished, tmp_path):
    write(finished, tmp_path)
    before = (tmp_path / "report.html").read_text()
    first, second = finished.rec.image_names[:2]
    align(tmp_path, up="-y", baseline=(first, second, 2.5))
    after = (tmp_path / "report.html").read_text()
    page = Checker()
    page.feed(after)
    assert page.open == [] and f"{first} and {second} are 2.5 apart; up was -y" in page.text
    begin, end = ([text.partition(mark)[k] for text in (before, after)] for mark, k in ((SCENES, 0), ("</section>", 2)))
    assert begin[0] == begin[1] and end[0] == end[1]
    assert before.count("<svg") == after.count("<svg")
    rec = load_reconstruction(tmp_path)[0]
    np.testing.assert_allclose(view_axes(rec, z_up=True)[1], [0, 0, -1])
    assert scene_view(rec, (), from_above=True, z_up=True) in after


@pytest.mark.parametrize(("count", "labels"), [(1, 1), (24, 24), (25, 13), (150, 15), (1000, 10)])
def test_axes_have_room_for_their_numbers(count, labels):
    svg = graph_matrix([f"{k}.jpg" for k in range(count)], [])
    assert svg.count("<text") == 2 * labels
