"""The verdict follows the facts, and every warning has a section in the documentation."""

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import proba.report.checks as checks_module
from proba.pipeline import SolveOptions
from proba.reconstruction import Camera, Edge, Note, NoteKind
from proba.refine import RollingShutter
from proba.report.checks import TOPICS, Check, worst_level
from proba.report.findings import findings, verdict
from proba.report.results import report_dict
from proba.scenes import SightCut

ROOT = Path(__file__).parents[2]


def topics(report, level=None):
    return [c["topic"] for c in report["checks"] if (c["level"] != "good" if level is None else c["level"] == level)]


def test_the_truth_looks_right(finished):
    report = finished.report()
    assert topics(report) == []
    assert report["verdict"]["level"] == "good" and report["warnings"] == []
    assert report["verdict"]["text"].startswith("Looks right: 8 of 8 images")


def test_a_wrong_pose_is_not_trusted_and_named(finished):
    finished.rec.cam_from_world[3, 0, 3] += 0.5
    report = finished.report()
    assert report["verdict"]["level"] == "distrust"
    found = next(c for c in report["checks"] if c["topic"] == "Contradicting images")
    assert found["images"] == ("003.png",)
    assert "Do not trust this result: " in report["verdict"]["text"]


def test_exif_is_a_witness(finished):
    def report(factor):
        told = [replace(image, focal_px=factor * finished.rec.camera(image.name).focal_px[0]) for image in images]
        finished.matches.images[:] = told
        return finished.report()

    images = list(finished.matches.images)
    assert topics(report(1.1)) == []
    assert topics(report(0.75), "check") == ["Focal length against EXIF"]


def test_a_wrong_group_is_not_trusted_though_it_agrees_in_itself(finished):
    moved = [0, 1, 2]
    finished.rec.cam_from_world[moved, 0, 3] += 0.7
    found = next(c for c in finished.report()["checks"] if c["topic"] == "Contradicting images")
    assert found["level"] == "distrust" and found["images"]


def test_images_left_out(finished):
    finished.unmatched = ["x.jpg", "y.jpg"]
    finished.matches.images += [replace(finished.matches.images[0], name=name) for name in finished.unmatched]
    report = finished.report()
    assert topics(report) == ["Images left out"] and report["verdict"]["level"] == "check"
    assert "8 of 10 images posed (without matches: x.jpg and y.jpg)" in report["warnings"][0]
    extra = [replace(finished.matches.images[0], name=f"{k}.jpg") for k in range(10)]
    finished.matches.images += extra
    assert finished.report()["verdict"]["level"] == "distrust"


def test_an_image_that_hangs_by_few_matches(finished):
    """All but 60 matches of the last image are taken away, in one pair."""
    last = 7
    for i, j in list(finished.matches.pairs):
        if last in (i, j):
            pair = finished.matches.pairs.pop((i, j))
            kept = type(pair)(*(column[:60] for column in pair))
    finished.matches.pairs[i, j] = kept
    names = finished.rec.image_names
    pairs = {(names[a], names[b]): len(p.points_i) for (a, b), p in finished.matches.pairs.items()}
    finished.rec.edges = [
        Edge(i=a, j=b, matches=count, weight=0.8, explainable=1.0, explained=1.0) for (a, b), count in pairs.items()
    ]
    report = finished.report()
    assert topics(report) == ["Weak link"]
    assert "in 1 pair hold 007.png to the other 7 images" in report["warnings"][0]


def test_little_parallax(finished):
    """All cameras in nearly one place."""
    centre = finished.rec.centres.mean(axis=0)
    inverse = np.linalg.inv(finished.rec.cam_from_world)
    inverse[:, :3, 3] = centre + (inverse[:, :3, 3] - centre) * 0.005
    finished.rec.cam_from_world = np.linalg.inv(inverse)
    assert "Pure rotation" in topics(finished.report(), "distrust")


@pytest.mark.parametrize("kind", get_args(NoteKind))
def test_notes_of_the_refinement_become_checks(finished, kind):
    finished.rec.notes = [Note(kind=kind, text="something was found", advice="do something", images=("000.png",))]
    report = finished.report()
    assert topics(report) == [TOPICS[kind]]
    assert report["warnings"] == ["something was found. Do something"]
    found = next(check for check in report["checks"] if check["level"] != "good")
    assert found["images"] == ("000.png",)


def test_many_rough_poses_spoil_the_rest(finished):
    note = Note(kind="rough poses", text="rough", advice="leave them out", images=("000.png",))
    finished.rec.notes = [note]
    assert finished.report()["verdict"]["level"] == "check"
    finished.rec.notes = [replace(note, images=("000.png", "001.png", "002.png"))]
    assert finished.report()["verdict"]["level"] == "distrust"


def test_a_camera_for_every_image_and_uncertain_rotations(finished):
    one = finished.rec.cameras[0]
    finished.rec.cameras = [Camera(**vars(one)) for _ in range(8)]
    finished.rec.camera_of_image = np.arange(8)
    finished.rec.pose_std[5, 1] = np.radians(2)
    assert topics(finished.report()) == ["Uncertain poses", "A focal length for every image"]


def test_noisy_or_few_observations(finished):
    points = finished.rec.points
    points.obs_xy[points.obs_image == 4] += np.float32(4)
    keep = (points.obs_image != 2) | (np.arange(len(points.obs_image)) % 40 == 0)
    points.obs_point, points.obs_image, points.obs_xy = (
        values[keep] for values in (points.obs_point, points.obs_image, points.obs_xy)
    )
    report = finished.report()
    by_topic = {c["topic"]: c["images"] for c in report["checks"] if c["level"] != "good"}
    assert by_topic["Large residuals"] == ("004.png",) and by_topic["Few observations"] == ("002.png",)


def test_interrupted(finished):
    finished.interrupted = True
    assert topics(finished.report()) == ["Interrupted"]


def test_the_worst_check_decides():
    checks = [
        Check(topic="A", fact="first", wanted=""),
        Check(topic="B", fact="second", wanted="", level="check"),
        Check(topic="C", fact="third", wanted="", level="distrust"),
    ]
    assert worst_level([]) == "good" and worst_level(checks[:2]) == "check" and worst_level(checks) == "distrust"
    assert verdict(checks, 2, 2) == "Do not trust this result: third (1 more warning below)."


def test_warnings_about_one_photo_are_one():
    """a fails two checks, b one of them, and the third is about no photo."""
    checks = [
        Check(topic="A", fact="all is well", wanted=""),
        Check(topic="B", fact="a and b see little", wanted="", level="check", images=("a", "b"), reason="sees little"),
        Check(topic="C", fact="too slow", wanted="", level="check", advice="Wait"),
        Check(
            topic="D", fact="a is wrong", wanted="", level="distrust", advice="Drop it", images=("a",), reason="wrong"
        ),
    ]
    first, *others = findings(checks)
    assert (first.level, first.images, first.topics) == ("distrust", ("a",), ("B", "D"))
    assert first.fact == "a: sees little; wrong" and first.reasons == ("sees little", "wrong")
    assert [(finding.fact, finding.images) for finding in others] == [("b: sees little", ("b",)), ("too slow", ())]
    assert verdict(checks, 2, 2) == "Do not trust this result: a is wrong (2 more warnings below)."


def test_photos_with_one_problem_in_common_stay_together():
    check = Check(
        topic="B", fact="a and b see little", wanted="", level="check", images=("a", "b"), reason="sees little"
    )
    (found,) = findings([check])
    assert found.fact == "a and b see little" and found.images == ("a", "b")


def test_the_report_warns_of_a_photo_once(finished):
    finished.rec.cam_from_world[3, 0, 3] += 0.5
    finished.rec.pose_std[3, 1] = np.radians(2)
    report = finished.report()
    about = [finding for finding in report["findings"] if "003.png" in finding["images"]]
    assert len(about) == 1 and {"Contradicting images", "Uncertain poses"} <= set(about[0]["topics"])
    assert len(report["warnings"]) == len(report["findings"])


def test_the_choice_tells_by_how_much(finished):
    choice = finished.report()["choice"]
    assert choice["name"] == "fov50" and choice["next"] == "fov50-mirror"
    assert choice["margin"] == pytest.approx(0.28)


def test_every_topic_has_a_section():
    source = Path(checks_module.__file__).read_text()
    named = set(re.findall(r'topic="([^"]+)"', source)) | set(TOPICS.values())
    assert len(named) > 10
    sections = set(re.findall(r"^#+ (.+)$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE))
    assert named <= sections


def test_quoted_messages_are_those_of_the_program():
    """Words in back quotes at the heads of the error lists, as the program would print them."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    errors = page[page.index("## Errors") : page.index("## Slow?")]
    quoted = [
        q for head in re.findall(r"^- ((?:`[^`]+`(?:, )?)+)", errors, re.MULTILINE) for q in head.split("`")[1::2]
    ]
    assert len(quoted) > 20
    own = {"No space left on device"}  # the operating system's words
    printed = _literals(Path(checks_module.__file__).parents[1])
    assert [q for q in quoted if q not in own and q not in printed] == []


def _literals(folder):
    """All string literals of the program, with a blank for what is filled in."""
    texts = []
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(v.value if isinstance(v, ast.Constant) else "\0" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_images_that_share_too_little_are_named(finished):
    result = finished.result()
    n = len(finished.rec)
    side = np.arange(n) < 3
    for seen, level in ((150.0, "check"), (800.0, "good")):
        result.pieces[0].weakest = SightCut(side=side, other=~side, expected=1000.0, seen=seen, most=1.0)
        report = report_dict(finished.matches, result, SolveOptions())
        (check,) = (check for check in report["checks"] if check["topic"] == "Look-alikes")
        assert check["level"] == level
        assert list(check["images"]) == (finished.rec.image_names[:3] if level == "check" else [])
        assert ("25 %" if level == "check" else f"{seen / 10:.0f} %") in check["fact"]
        assert report["components"][0]["least_shared"] == pytest.approx(seen / 1000)
    result.pieces[0].lone = finished.rec.image_names[4:5]
    (check,) = (
        c for c in report_dict(finished.matches, result, SolveOptions())["checks"] if c["topic"] == "Look-alikes"
    )
    assert check["level"] == "check" and list(check["images"]) == finished.rec.image_names[4:5]


@pytest.mark.parametrize(("bend_px", "level"), [(2.0, "check"), (0.3, "good"), (0.0, "good")])
def test_a_rolling_shutter_is_named(finished, bend_px, level):
    result = finished.result()
    result.pieces[0].shutter = RollingShutter(
        images=np.arange(8),
        motion=np.zeros((8, 6)),
        ratio=5.0,
        chance=1e-9,
        readout=0.6,
        readout_std=0.01,
        bend_px=bend_px,
        ordered=True,
        found=bend_px > 0,
    )
    report = report_dict(finished.matches, result, SolveOptions())
    found = next(c for c in report["checks"] if c["topic"] == "Rolling shutter")
    assert found["level"] == level
    assert ("60.0 % of the time between photos" in found["fact"]) == (bend_px > 0)
    assert report["components"][0]["rolling_shutter"]["bend_px"] == bend_px
