"""A camera that stands still while its subject turns."""

from pathlib import Path

import numpy as np
import pytest
from textures import noise, save, two_plane_views

from proba.io.matches_h5 import load_matches
from proba.matches import ImageInfo, PairMatches
from proba.matching import MatchOptions, match_folder
from proba.matching.background import BackgroundOptions, holds_pair, in_place, joins_subject
from proba.report.checks import matching_checks
from proba.report.matching import matching_facts

ROOM_PX = (520, 400)


@pytest.fixture(scope="module")
def turntable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six photos of a subject that moves in the middle of a room, which does not."""
    folder = tmp_path_factory.mktemp("turntable")
    room, rng = noise(*ROOM_PX, seed=7), np.random.default_rng(0)
    for k, view in enumerate(two_plane_views(6, width=240, height=180)):
        photo = room.copy()
        photo[110:290, 140:380] = view
        grain = rng.normal(0, 2, photo.shape)
        save(folder / f"{k}.png", (photo + grain).clip(0, 255).astype(np.uint8))
    return folder


def share_in_place(file: Path) -> float:
    """Of all matches, how many do not move."""
    matches = load_matches(file)
    moves = np.concatenate([np.hypot(*(pair.points_j - pair.points_i).T) for pair in matches.pairs.values()])
    return float((moves < 1.5).mean())


def test_the_subject_wins_over_a_room_that_stands_still(turntable: Path, tmp_path: Path) -> None:
    options = MatchOptions(matcher="sift", background=BackgroundOptions(enabled=False))
    before = match_folder(turntable, tmp_path / "room.h5", options, jobs=1)
    assert not before.subject_alone and share_in_place(tmp_path / "room.h5") > 0.8
    after = match_folder(turntable, tmp_path / "subject.h5", MatchOptions(matcher="sift"), jobs=1)
    assert after.subject_alone and after.pairs_kept >= 5
    assert share_in_place(tmp_path / "subject.h5") == 0
    for pair in load_matches(tmp_path / "subject.h5").pairs.values():
        assert (np.abs(pair.points_i - [260, 200]) < [121, 91]).all(axis=1).mean() > 0.95
    facts = matching_facts(tmp_path / "subject.h5")
    assert facts is not None and facts["subject_alone"] and facts["matchers"] == ["sift"]
    (check,) = matching_checks(facts)
    assert check.level == "check" and "--masks" in check.advice
    assert matching_checks(matching_facts(tmp_path / "room.h5")) == []


def test_photos_from_one_place_keep_their_matches(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for k in range(4):
        grain = noise(300, 240, seed=3) + rng.normal(0, 2, (240, 300, 3))
        save(tmp_path / "photos" / f"{k}.png", grain.clip(0, 255).astype(np.uint8))
    summary = match_folder(tmp_path / "photos", tmp_path / "m.h5", MatchOptions(matcher="sift"), jobs=1)
    assert not summary.subject_alone and summary.pairs_kept == 6
    assert share_in_place(tmp_path / "m.h5") > 0.9


def test_what_stays_in_place() -> None:
    small, large = ImageInfo(name="a", width=640, height=480), ImageInfo(name="b", width=4096, height=3072)
    points = np.array([[10, 10], [20, 20], [30, 30]], np.float32)
    moved = PairMatches(points, points + np.array([[1, 1], [0, 2], [0, 5]], np.float32), np.ones(3, np.float32))
    options = BackgroundOptions()
    assert in_place(moved, small, small, options).tolist() == [True, False, False]
    assert in_place(moved, large, large, options).tolist() == [True, True, True]
    assert not in_place(moved, small, large, options).any()
    assert holds_pair(np.arange(30) < 15, options) and not holds_pair(np.arange(40) < 15, options)
    assert not holds_pair(np.ones(10, bool), options)


def test_a_subject_joins_half_of_the_photos() -> None:
    options = BackgroundOptions()
    chain = {(0, 1): 50, (1, 2): 50}
    assert joins_subject(chain, 6, options) and not joins_subject(chain, 7, options)
    assert not joins_subject({}, 6, options)
