"""From a folder to a matches file: verification, pair choice, store, resume."""

import json
from dataclasses import replace

import h5py
import numpy as np
import pytest
from PIL import Image
from scipy.sparse import csr_array
from textures import noise, save, transfer, two_plane_views

from proba.errors import GeometryError, InputError
from proba.io.images import find_photos
from proba.io.matches_h5 import load_matches
from proba.matches import ImageInfo, PairMatches
from proba.matching import MatcherEntry, MatchOptions, PairOptions, VerifyOptions, match_folder, matchers, register
from proba.matching.features import FeatureCache
from proba.matching.folder import fixed_bytes, weak_photos
from proba.matching.pairs import (
    Candidates,
    choose_pairs,
    likely_pairs,
    most_alike,
    signature,
    unit_sample,
    vocabulary,
    without_common,
)
from proba.matching.sift import SELECTIVE, Sift, SiftOptions
from proba.matching.store import MatchStore, Record, join_matches
from proba.matching.verify import log10_chance, verify
from proba.memory import Budget

INFO = ImageInfo(name="a", width=640, height=480)
OPTIONS = MatchOptions(matcher="sift")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos")
    for k, view in enumerate(two_plane_views(4)):
        save(path / f"{k}.png", view)
    return path


@pytest.fixture
def counted(monkeypatch):
    """A matcher that counts what it is asked to do."""

    class Counted(Sift):
        extracted = matched = 0

        def extract(self, pixels):
            Counted.extracted += 1
            return super().extract(pixels)

        def match(self, one, other):
            Counted.matched += 1
            if Counted.matched == Counted.stop_at:
                raise KeyboardInterrupt
            return super().match(one, other)

    Counted.stop_at = -1
    monkeypatch.setattr("proba.matching.matcher._entries", matchers())
    register("counted", MatcherEntry(summary="", make=lambda _: Counted(SiftOptions(features=800)), missing=lambda: ""))
    return Counted


def two_views(count: int, outliers: int, seed: int = 0) -> PairMatches:
    """Points of a cube seen by two cameras, and random pairs of points."""
    random = np.random.default_rng(seed)
    xyz = random.uniform([-2, -1.5, 4], [2, 1.5, 8], (count, 3))
    one = xyz[:, :2] / xyz[:, 2:] * 500 + [320, 240]
    moved = xyz + np.array([0.7, 0.1, 0.2])
    other = moved[:, :2] / moved[:, 2:] * 500 + [320, 240]
    noise_px = random.normal(0, 0.3, other.shape)
    one = np.vstack([one, random.uniform(0, [640, 480], (outliers, 2))]).astype(np.float32)
    other = np.vstack([other + noise_px, random.uniform(0, [640, 480], (outliers, 2))]).astype(np.float32)
    return PairMatches(one, other, np.ones(len(one), np.float32))


def test_verification_keeps_the_inliers():
    result = verify(two_views(120, 80), INFO, INFO)
    assert result.kind == "general" and result.log10_chance < -50
    assert 110 <= len(result.matches.scores) <= 130


def test_photos_of_different_cameras_keep_matches_farther_from_the_epipolar_lines():
    good, off = two_views(150, 0), two_views(40, 0, seed=1)
    off = PairMatches(off.points_i, off.points_j + np.float32([0, 3.5]), off.scores)  # the lines are nearly level
    pair = PairMatches(*(np.concatenate(columns) for columns in zip(good, off, strict=True)))
    other = replace(INFO, width=641)
    assert len(verify(pair, INFO, INFO).matches.scores) < 160
    assert len(verify(pair, INFO, other).matches.scores) > 180
    assert len(verify(pair, INFO, other, VerifyOptions(wide_from=160)).matches.scores) < 160


@pytest.mark.parametrize("count", [10, 60, 400])
def test_random_matches_are_refused(count):
    for seed in range(3):
        assert len(verify(two_views(0, count, seed), INFO, INFO).matches.scores) == 0


def test_matches_of_one_cell_are_one_witness():
    pair = two_views(25, 20)
    twins = PairMatches(*(np.repeat(column, 4, axis=0) for column in pair))
    alone, together = (verify(x, INFO, INFO, VerifyOptions(cell_px=1.0)).log10_chance for x in (pair, twins))
    assert together == pytest.approx(alone, abs=1.0)
    assert verify(twins, INFO, INFO).log10_chance < 2 * alone


def test_a_homography_is_flagged_as_planar():
    random = np.random.default_rng(0)
    one = random.uniform(0, [640, 480], (200, 2)).astype(np.float32)
    other = transfer(np.array([[1, 0.1, 5], [-0.1, 1, 3], [1e-4, 0, 1.0]]), one).astype(np.float32)
    result = verify(PairMatches(one, other, np.ones(200, np.float32)), INFO, INFO)
    assert result.kind == "planar" and len(result.matches.scores) > 190


def test_chance_falls_with_support_and_rises_with_trials():
    assert log10_chance(100, 50, 0.01) < log10_chance(100, 20, 0.01) < log10_chance(1000, 20, 0.01)
    assert log10_chance(100, 7, 0.01) == np.inf


def test_pairs_of_small_large_and_sequential_sets():
    assert len(choose_pairs(10, PairOptions())) == 45
    near = choose_pairs(50, PairOptions(mode="sequential", window=3))
    assert {j - i for i, j in near} == {1, 2, 3, 6, 12, 24, 48}
    angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)  # a ring of views
    signatures = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    pairs = most_alike(signatures, 4).pairs
    assert len(pairs) == 200 and all(min(j - i, 100 - (j - i)) <= 2 for i, j in pairs)


def test_likely_pairs_go_where_photos_overlap_and_leave_nobody_alone():
    alike = np.random.default_rng(0).uniform(0, 1, (30, 30))
    alike += alike.T
    alike[:10, :10] += 5  # ten photos of one thing, twenty of others
    rows = np.argwhere(np.triu(np.ones((30, 30)), 1))
    found = Candidates(rows, alike[tuple(rows.T)])
    pairs = likely_pairs(found, 30, PairOptions(candidates=1, pairs_per_photo=2.5))
    assert len(pairs) == 75 and {(i, j) for i in range(10) for j in range(i + 1, 10)} <= set(pairs)
    assert set(np.unique(pairs)) == set(range(30))


@pytest.mark.parametrize(("n", "rows"), [(2, 1), (60, 7), (60, 1000)])
def test_pairs_found_in_blocks_are_those_of_the_whole_matrix(monkeypatch, n, rows):
    monkeypatch.setattr("proba.matching.pairs.ROWS_AT_A_TIME", rows)
    signatures = np.random.default_rng(n).integers(-3, 4, (n, 8)).astype(np.float32)  # many are equally alike
    alike = signatures @ signatures.T
    np.fill_diagonal(alike, -np.inf)
    near = {tuple(sorted((i, int(j)))) for i in range(n) for j in np.argsort(-alike[i], kind="stable")[: min(5, n - 1)]}
    every = np.argwhere(np.triu(np.ones((n, n)), 1))
    best = every[np.argsort(-alike[tuple(every.T)], kind="stable")[: 2 * n]]
    assert most_alike(signatures, 5).pairs.tolist() == sorted(map(list, near))
    found = most_alike(signatures, 5, of_all=2 * n)
    assert found.pairs.tolist() == sorted(map(list, near | {tuple(pair) for pair in best.tolist()}))
    np.testing.assert_array_equal(found.alike, alike[tuple(found.pairs.T)])


def test_a_sequence_that_comes_back_closes_its_loop(tmp_path):
    """Frames along a path and back: those of one place are matched though they are far from each other in time."""
    way = two_plane_views(9)
    frames = [*way, *way[::-1]]
    for k, view in enumerate(frames):
        brighter = np.clip(view.astype(np.int16) + k, 0, 255).astype(np.uint8)  # copies would be left out
        save(tmp_path / "photos" / f"{k:02d}.png", brighter)
    options = PairOptions(mode="sequential", window=2, loops=2, exhaustive_below=10)
    match_folder(tmp_path / "photos", tmp_path / "m.h5", MatchOptions(matcher="sift", pairs=options), jobs=1)
    same_place = {(k, 17 - k) for k in range(6)}
    assert len(same_place & set(choose_pairs(18, options))) <= 2
    assert same_place <= set(load_matches(tmp_path / "m.h5").pairs)


def test_alike_pairs_of_near_places_are_left_out():
    signatures = np.eye(8, 4, dtype=np.float32) + 1
    found = most_alike(signatures, 3, apart=2).pairs
    assert len(found) and (np.diff(found, axis=1) > 2).all()
    assert len(most_alike(signatures, 3, apart=8).pairs) == 0


def test_little_memory_means_one_photo_at_a_time_and_the_same_matches(folder, tmp_path, monkeypatch):
    under_way, most = [], []

    class Watched(Sift):
        def extract(self, pixels):
            under_way.append(pixels.name)
            most.append(len(under_way))
            features = super().extract(pixels)
            under_way.remove(pixels.name)
            return features

    monkeypatch.setattr("proba.matching.shards.make_matcher", lambda *_: Watched())
    found = []
    for gigabytes in (0.56, 8):
        monkeypatch.setattr("proba.memory._chosen", gigabytes)
        match_folder(folder, tmp_path / f"{gigabytes}.h5", OPTIONS, jobs=4)
        found.append(load_matches(tmp_path / f"{gigabytes}.h5").pairs)
    assert most[:4] == [1, 1, 1, 1]
    assert found[0].keys() == found[1].keys()
    for pair, matches in found[0].items():
        for one, other in zip(matches, found[1][pair], strict=True):
            np.testing.assert_array_equal(one, other)


def test_what_does_not_fit_into_memory_is_refused_before_the_first_pair(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("proba.memory._chosen", 0.51)
    with pytest.raises(InputError, match=r"4 photos needs 0\.53 GB of memory, 0\.51 GB are allowed.*--memory"):
        match_folder(folder, tmp_path / "m.h5", OPTIONS)
    assert not list(tmp_path.iterdir())
    assert fixed_bytes(10_000, MatchOptions()) < 2e9
    assert fixed_bytes(10_000, MatchOptions(pairs=PairOptions(mode="exhaustive"))) > 1e10
    assert fixed_bytes(10_000, MatchOptions(pairs=PairOptions(mode="sequential", loops=0))) < 2e8


def test_signatures_tell_scenes_apart():
    random = np.random.default_rng(0)
    scenes = [random.normal(size=(40, 32)) for _ in range(3)]
    images = [
        unit_sample(scene[random.integers(0, 40, 200)] + 0.2 * random.normal(size=(200, 32)), 200, random)
        for scene in scenes
        for _ in range(3)
    ]
    centres = vocabulary(np.concatenate(images), 16)
    alike = np.stack([signature(image, centres) for image in images])
    alike = alike @ alike.T - 2 * np.eye(9)
    assert all(k // 3 == near // 3 for k, near in enumerate(alike.argmax(axis=1)))


def test_photos_that_show_only_what_all_share_are_not_like_every_other():
    """Six scenes before one and the same hedge, and photos of the hedge alone."""
    random = np.random.default_rng(0)
    hedge, *scenes = random.normal(size=(7, 512)).astype(np.float32)
    photos = [hedge + 0.8 * scene + 1.3 * random.normal(size=512) for scene in scenes for _ in range(3)]
    photos += [hedge + 0.2 * random.normal(size=512) for _ in range(6)]
    signatures = np.stack(photos).astype(np.float32)
    signatures /= np.linalg.norm(signatures, axis=1, keepdims=True)

    def of_their_scene():
        alike = (signatures @ signatures.T - 2 * np.eye(24))[:18]
        return sum(k // 3 == near // 3 for k, near in enumerate(alike.argmax(axis=1)))

    assert of_their_scene() < 6
    without_common(signatures)
    assert of_their_scene() == 18
    assert np.isfinite(without_common(np.ones((3, 4), np.float32))).all()


def test_matches_of_a_folder(folder, tmp_path):
    summary = match_folder(folder, tmp_path / "m.h5", OPTIONS)
    assert summary.photos == 4 and summary.pairs_kept == 6 and not summary.alone
    matches = load_matches(tmp_path / "m.h5")
    assert [image.name for image in matches.images] == ["0.png", "1.png", "2.png", "3.png"]
    assert matches.counts().sum() // 2 == summary.matches > 600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.h5"]  # neither journal nor features stay


def test_a_shortlist_finds_the_scene_among_others(folder, tmp_path):
    for scene, views in (
        ("a", two_plane_views(3)),
        ("b", [np.ascontiguousarray(v[:, ::-1]) for v in two_plane_views(3)]),
    ):
        for k, view in enumerate(views):
            save(tmp_path / "photos" / f"{scene}{k}.png", view)
    pairs = PairOptions(mode="shortlist", candidates=2, pairs_per_photo=1, words=16)
    summary = match_folder(tmp_path / "photos", tmp_path / "m.h5", MatchOptions(matcher="sift", pairs=pairs))
    assert summary.pairs_tried < 15 and set(load_matches(tmp_path / "m.h5").pairs) == {
        (0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)
    }  # fmt: skip


def test_resume_after_an_interruption_and_after_changes(folder, tmp_path, counted):
    photos = tmp_path / "photos"
    for path in folder.iterdir():
        save(photos / path.name, np.asarray(Image.open(path)))
    out, options = tmp_path / "m.h5", MatchOptions(matcher="counted")
    counted.stop_at = 4
    with pytest.raises(KeyboardInterrupt):
        match_folder(photos, out, options, jobs=1)
    assert not out.exists() and out.with_name("m.h5.partial").exists()
    finished = counted.matched
    counted.stop_at, counted.matched, counted.extracted = -1, 0, 0
    match_folder(photos, out, options, resume=True, jobs=1)
    assert 3 <= counted.matched < 6 and finished + counted.matched >= 6 and counted.extracted == 0
    counted.matched = 0
    match_folder(photos, out, options, resume=True)
    assert counted.matched == 0
    before = load_matches(out)
    save(photos / "3.png", noise(400, 300, seed=9))  # another picture under the same name, which matches nothing
    match_folder(photos, out, options, resume=True)
    assert counted.matched == 3
    after = load_matches(out)
    assert set(after.pairs) == {(0, 1), (0, 2), (1, 2)}
    np.testing.assert_array_equal(after.pairs[0, 1].points_i, before.pairs[0, 1].points_i)
    match_folder(photos, out, options, resume=True)
    assert counted.matched == 3  # pairs without matches are remembered too
    stricter = MatchOptions(matcher="counted", verify=VerifyOptions(min_inliers=20))
    match_folder(photos, out, stricter, resume=True)
    assert counted.matched == 9
    match_folder(photos, out, options)
    assert counted.matched == 15


def test_a_torn_journal_loses_only_its_last_pair(folder, tmp_path):
    photos = find_photos(folder)
    pair = two_views(20, 0)
    with MatchStore(tmp_path / "m.h5", photos) as store:
        for j in (1, 2):
            store.append(Record(photos[0].digest, photos[j].digest, "s", "general", pair))
    partial = tmp_path / "m.h5.partial"
    partial.write_bytes(partial.read_bytes()[:-7])
    with MatchStore(tmp_path / "m.h5", photos, resume=True) as store:
        assert store.has(photos[0], photos[1], "s") and not store.has(photos[0], photos[2], "s")
        assert not store.has(photos[0], photos[1], "other settings")
        store.append(Record(photos[0].digest, photos[3].digest, "s", "general", pair))
        assert store.finish(["s"], {}) == 2
    loaded = load_matches(tmp_path / "m.h5")
    np.testing.assert_allclose(loaded.pairs[0, 3].points_j, pair.points_j, atol=1e-4)


def test_a_damaged_file_cannot_be_resumed(folder, tmp_path):
    match_folder(folder, tmp_path / "m.h5", OPTIONS)
    content = (tmp_path / "m.h5").read_bytes()
    (tmp_path / "m.h5").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match="Delete it"):
        match_folder(folder, tmp_path / "m.h5", OPTIONS, resume=True)


def test_auto_adds_xfeat_where_sift_is_weak(folder, tmp_path):
    options = MatchOptions(weak_below=10**6, enough=10**6, pairs=PairOptions(mode="sequential", window=1))
    auto = match_folder(folder, tmp_path / "auto.h5", options)
    sift = match_folder(folder, tmp_path / "sift.h5", MatchOptions(matcher="sift", pairs=options.pairs))
    assert auto.matches > sift.matches
    with h5py.File(tmp_path / "auto.h5") as file:
        origin = json.loads(file[".proba/matching"][()])
    assert {entry["matcher"] for entry in origin["settings"].values()} == {"sift", "xfeat"}
    assert all(len(parts) == 2 for _, _, parts in origin["pairs"])
    many_in_all = match_folder(folder, tmp_path / "enough.h5", replace(options, enough=100))
    assert many_in_all.matches == sift.matches


def test_auto_is_more_selective_between_pieces(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("proba.matching.matcher._entries", matchers())
    indiscriminate = Sift(SiftOptions(ratio=1.0), VerifyOptions(min_share=0.99))  # joins nothing
    register("sift", MatcherEntry(summary="", make=lambda _: indiscriminate, missing=lambda: ""))
    summary = match_folder(folder, tmp_path / "m.h5", MatchOptions(weak_below=1))
    assert summary.pairs_kept == 6 and not summary.alone
    with h5py.File(tmp_path / "m.h5") as file:
        origin = json.loads(file[".proba/matching"][()])
    assert sorted(entry["ratio"] for entry in origin["settings"].values()) == [SELECTIVE.ratio, 1.0]


def test_auto_adds_xfeat_for_a_piece_apart(folder, tmp_path):
    photos = tmp_path / "photos"
    for path in folder.iterdir():
        save(photos / f"scene{path.name}", np.asarray(Image.open(path)))
    for k in range(2):
        save(photos / f"other{k}.png", noise(460, 300, seed=9)[:, 30 * k : 400 + 30 * k])
    summary = match_folder(photos, tmp_path / "m.h5", MatchOptions(weak_below=1))
    assert not summary.alone and summary.pairs_kept == 7  # six of the scene, one of the other: two pieces
    with h5py.File(tmp_path / "m.h5") as file:
        origin = json.loads(file[".proba/matching"][()])
    assert {entry["matcher"] for entry in origin["settings"].values()} == {"sift", "xfeat"}


def test_matches_do_not_depend_on_the_number_of_jobs(folder, tmp_path):
    options = MatchOptions(weak_below=10**6, enough=10**6)  # so that XFeat works on all pairs as well
    one, three = tmp_path / "one.h5", tmp_path / "three.h5"
    match_folder(folder, one, options, jobs=1)
    match_folder(folder, three, options, jobs=3)
    one, three = load_matches(one), load_matches(three)
    assert set(one.pairs) == set(three.pairs) and len(one.pairs) == 6
    for pair, matches in one.pairs.items():
        for column, same in zip(matches, three.pairs[pair], strict=True):
            np.testing.assert_array_equal(column, same)


def test_a_first_look_spares_hopeless_pairs(folder, tmp_path, monkeypatch):
    photos = tmp_path / "photos"
    for k in range(3):
        save(photos / f"{k}.png", noise(400, 300, seed=k))
    for path in folder.iterdir():
        save(photos / f"scene{path.name}", np.asarray(Image.open(path)))
    sizes = []

    class Small(Sift):
        preview = 150

        def match(self, one, other):
            sizes.append(len(one["points"]))
            return super().match(one, other)

    monkeypatch.setattr("proba.matching.matcher._entries", matchers())
    register("small", MatcherEntry(summary="", make=lambda _: Small(), missing=lambda: ""))
    summary = match_folder(photos, tmp_path / "m.h5", MatchOptions(matcher="small", preview_from=2))
    assert sizes.count(150) == 21  # every pair is looked at
    assert 6 <= len(sizes) - 21 < 15  # the six pairs of the scene, and hardly any other, are matched in full
    assert summary.pairs_kept == 6


def test_photos_without_overlap_are_refused(tmp_path):
    for k in range(3):
        save(tmp_path / "photos" / f"{k}.png", noise(300, 200, seed=k))
    with pytest.raises(GeometryError, match="no two of the 3 images"):
        match_folder(tmp_path / "photos", tmp_path / "m.h5")
    assert not (tmp_path / "m.h5").exists()


def test_names_that_collide_are_refused(tmp_path):
    save(tmp_path / "a" / "b.png", noise(64, 64, seed=1))
    save(tmp_path / "a-b.png", noise(64, 64, seed=2))
    with pytest.raises(InputError, match="Rename"):
        match_folder(tmp_path, tmp_path.parent / "clash.h5", OPTIONS)


def test_feature_cache_is_bounded(folder, tmp_path):
    cache = FeatureCache(Sift(SiftOptions(features=200)), tmp_path / "features", "k", held_bytes=0, budget=Budget(0))
    photos = find_photos(folder)
    first = cache.get(photos[0])
    for photo in photos:
        cache.get(photo)
    assert len(cache._held) == 2
    np.testing.assert_array_equal(cache.get(photos[0])["points"], first["points"])
    cache.clear()
    assert not (tmp_path / "features").exists()


def test_joined_matches():
    one, other = two_views(5, 0), two_views(7, 0)
    assert len(join_matches([one, other]).scores) == 12
    assert len(join_matches([]).scores) == 0


def test_strangers_do_not_make_all_photos_weak():
    chain = np.diag(np.full(19, 500), 1) + np.diag(np.full(19, 500), -1)  # 20 photos in a row, all strong
    chain[[0, 1], [1, 0]] = 150  # the first has few matches
    counts = np.zeros((26, 26), int)
    counts[:20, :20] = chain
    options = MatchOptions(weak_share=0.2)
    assert np.flatnonzero(weak_photos(csr_array(counts), options)).tolist() == [0, *range(20, 26)]
    counts[:20, :20] = np.minimum(chain, 60)  # the set itself has little texture
    assert weak_photos(csr_array(counts), options).all()
    assert weak_photos(csr_array((3, 3), dtype=int), options).all()
