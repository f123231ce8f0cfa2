"""What `proba dense` adds to report.html."""

from proba.report import with_dense
from proba.report.dense_part import EMPTY

LOST = {"share_with_depth": 0.1, "bare": 0.1, "contradicted": 0.2, "lost": 0.6}
WHOLE = {"share_with_depth": 0.9, "bare": 0.06, "contradicted": 0.04, "lost": 0.0}
PAGE = f"<p>before</p>{EMPTY}<section><p>after</p></section>"


def test_photos_with_little_depth_are_named_with_the_reason():
    page = with_dense(PAGE, [{"points": 1200, "images": {"<b>.jpg": LOST, "whole.jpg": WHOLE}}])
    assert "1,200 points. 50% of all pixels have a depth" in page
    assert "&lt;b&gt;.jpg</td><td>10%</td><td>seen in too few photos" in page
    assert "<td>whole.jpg" not in page
    assert page.startswith("<p>before</p>") and page.endswith("<section><p>after</p></section>")


def test_a_second_run_replaces_the_first_and_moved_cameras_take_it_away():
    pieces = [{"points": 7, "images": {"a.jpg": WHOLE}}, {"points": 8, "images": {"b.jpg": WHOLE}}]
    once = with_dense(PAGE, pieces)
    assert once.count("Dense depth, piece") == 2 and with_dense(once, pieces) == once
    assert with_dense(once, ()) == PAGE


def test_pages_of_older_versions_stay_as_they_are():
    assert with_dense("<p>page</p>", [{"points": 7, "images": {"a.jpg": WHOLE}}]) == "<p>page</p>"
