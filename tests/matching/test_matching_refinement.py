"""Sub-pixel search, densified fields, triplets, precomputed matches and lists of pairs."""

import numpy as np
import pytest
from textures import noise, save, transfer, two_plane_views, warped

from proba.errors import InputError
from proba.io.images import Pixels
from proba.io.matches_h5 import load_matches, save_matches
from proba.matches import ImageInfo, Matches, PairMatches
from proba.matching import MatchOptions, PairOptions, make_matcher, match_folder
from proba.matching.densify import Densifier, DensifyOptions, local_affine
from proba.matching.pairs import pairs_by_name, read_pairs_file
from proba.matching.sift import Sift
from proba.matching.triplets import false_pairs, triplet_cycles
from proba.subpixel import refine_places

SIZE = (320, 256)
HOMOGRAPHY = np.array([[1.1, 0.08, -6.0], [-0.06, 1.08, 9.0], [1e-4, -5e-5, 1.0]])


def pixels(image: np.ndarray, reduced_by: int = 1, mask=None) -> Pixels:
    return Pixels(rgb=image, mask=mask, width=image.shape[1] * reduced_by, height=image.shape[0] * reduced_by)


def jacobian(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:  # [M, 2, 2]
    step = 1e-3
    return np.stack(
        [(transfer(matrix, points + step * axis) - transfer(matrix, points)) / step for axis in np.eye(2)], axis=2
    )


def test_the_search_finds_a_fraction_of_a_pixel_in_spite_of_other_light():
    image = noise(*SIZE)
    other = warped(image, HOMOGRAPHY)
    grey_i, grey_j = (pixels(x).grey.astype(np.float32) for x in (image, other))
    random = np.random.default_rng(0)
    points = random.uniform(60, 200, (200, 2))  # corner0.5
    truth = transfer(HOMOGRAPHY, points)
    start = truth + random.uniform(-1.5, 1.5, truth.shape)
    found = refine_places(
        grey_i, 0.7 * grey_j + 30, points - 0.5, start - 0.5, jacobian(HOMOGRAPHY, points)
    )  # darker and flatter
    error = np.linalg.norm(found.points_j + 0.5 - truth, axis=1)
    assert found.good.mean() > 0.8 and np.median(error[found.good]) < 0.08


def test_the_search_distrusts_edges_plain_walls_and_other_things():
    step = np.zeros((100, 100), np.float32)
    step[:, 50:] = 200  # along the edge nothing can be told
    points = np.array([[50.0, 50.0], [20.0, 20.0], [1.0, 1.0]])
    found = refine_places(step, step, points, points, np.tile(np.eye(2), (3, 1, 1)))
    assert not found.good.any()
    one, other = (noise(100, 100, seed=k)[..., 0].astype(np.float32) for k in (1, 2))
    places = np.random.default_rng(0).uniform(20, 80, (50, 2))
    assert refine_places(one, other, places, places, np.tile(np.eye(2), (50, 1, 1))).good.mean() < 0.1


def test_local_affine_maps_follow_the_field_and_stop_at_its_end():
    random = np.random.default_rng(0)
    support = random.uniform(0, 100, (300, 2))
    points = np.array([[50.0, 50.0], [20.0, 70.0], [400.0, 400.0]])
    predicted, affine, sound = local_affine(support, transfer(HOMOGRAPHY, support), points, DensifyOptions())
    assert sound.tolist() == [True, True, False]
    np.testing.assert_allclose(predicted[:2], transfer(HOMOGRAPHY, points[:2]), atol=0.3)
    np.testing.assert_allclose(affine[:2], jacobian(HOMOGRAPHY, points[:2]), atol=0.05)


def test_densified_matches_are_more_and_as_right_as_those_they_come_from():
    image = noise(*SIZE)
    views = image, warped(image, HOMOGRAPHY)
    sift, densifier = Sift(), Densifier(DensifyOptions(grid=32))
    few = sift.match(*(sift.extract(pixels(view)) for view in views))
    right = np.abs(few.points_j - transfer(HOMOGRAPHY, few.points_i)).max(axis=1) < 2
    few = PairMatches(*(column[right][::6] for column in few))
    # The photos are twice as large as what is looked at: all places are in original pixels.
    doubled = PairMatches(few.points_i * 2, few.points_j * 2, few.scores)
    dense = densifier.densify(doubled, *(densifier.extract(pixels(view, reduced_by=2)) for view in views))
    error = np.linalg.norm(dense.points_j / 2 - transfer(HOMOGRAPHY, dense.points_i / 2), axis=1)
    assert len(dense.scores) > 4 * len(few.scores) and np.median(error) < 0.1 and np.quantile(error, 0.95) < 0.5
    mask = np.zeros(image.shape[:2], bool)
    mask[:, :100] = True
    assert densifier.extract(pixels(image, mask=mask))["points"][:, 0].max() < 100
    assert len(densifier.densify(PairMatches(*(x[:5] for x in doubled)), {}, {}).scores) == 0


def views_of_a_cloud(n_images: int, seed: int = 0) -> Matches:
    """Points seen from a row of cameras; all pairs are matched rightly."""
    random = np.random.default_rng(seed)
    xyz = random.uniform([-2, -1.5, 4], [2, 1.5, 8], (150, 3))
    images = [ImageInfo(name=f"{k}", width=640, height=480) for k in range(n_images)]
    seen = []
    for k in range(n_images):
        moved = xyz + np.array([0.3 * k, 0.02 * k * k, 0.0])
        seen.append(moved[:, :2] / moved[:, 2:] * 500 + [320, 240])
    matches = Matches(images)
    for i in range(n_images):
        for j in range(i + 1, n_images):
            matches.add(i, j, seen[i], seen[j])
    return matches


def test_triplets_find_the_pairs_of_repeated_structure():
    matches = views_of_a_cloud(6)
    assert not false_pairs(matches)
    assert all(cycles.agreeing == cycles.total == 150 for cycles in triplet_cycles(matches))
    for pair in ((0, 5), (1, 4)):  # as if the next window were taken for the right one
        right = matches.pairs[pair]
        matches.pairs[pair] = PairMatches(right.points_i, right.points_j + np.float32([60, 0]), right.scores)
    assert false_pairs(matches) == {(0, 5), (1, 4)}


def test_triplets_do_not_judge_without_detours():
    matches = views_of_a_cloud(3)
    for k, pair in enumerate(matches.pairs):  # each pair sees other points
        matches.pairs[pair] = PairMatches(*(column[50 * k : 50 * k + 50] for column in matches.pairs[pair]))
    right = matches.pairs[0, 2]
    matches.pairs[0, 2] = PairMatches(right.points_i, right.points_j + 60, right.scores)
    assert not false_pairs(matches)


def test_a_weak_pair_that_well_joined_neighbours_do_not_confirm():
    matches = views_of_a_cloud(6)
    random = np.random.default_rng(1)
    elsewhere = random.uniform(0, 480, (2, 60, 2)).astype(np.float32)
    matches.pairs[0, 5] = PairMatches(elsewhere[0], elsewhere[1], np.ones(60, np.float32))
    assert false_pairs(matches) == {(0, 5)}
    many = random.uniform(0, 480, (2, 200, 2)).astype(np.float32)  # too many matches to be dropped for silence
    matches.pairs[0, 5] = PairMatches(many[0], many[1], np.ones(200, np.float32))
    assert (0, 5) not in false_pairs(matches)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("photos")
    for k, view in enumerate(two_plane_views(4)):
        save(path / f"{k}.png", view)
    return path


def test_a_folder_with_densified_fields_and_a_resume(folder, tmp_path):
    options = MatchOptions(matcher="sift", densify=True)
    dense = match_folder(folder, tmp_path / "dense.h5", options)
    plain = match_folder(folder, tmp_path / "plain.h5", MatchOptions(matcher="sift"))
    assert dense.matches > 1.5 * plain.matches and dense.pairs_kept == plain.pairs_kept
    again = match_folder(folder, tmp_path / "dense.h5", options, resume=True)
    assert again == dense


def test_listed_and_filtered_pairs(folder, tmp_path):
    (tmp_path / "pairs.txt").write_text("# two a line\n0.png 1.png\n\n2.png 1.png\n1.png 2.png\n")
    listed = read_pairs_file(tmp_path / "pairs.txt")
    options = MatchOptions(matcher="sift", pairs=PairOptions(listed=listed))
    assert match_folder(folder, tmp_path / "m.h5", options).pairs_tried == 2
    assert set(load_matches(tmp_path / "m.h5").pairs) == {(0, 1), (1, 2)}

    def keep(images, pairs):
        return [(i, j) for i, j in pairs if images[j].name == "3.png"]

    match_folder(folder, tmp_path / "f.h5", MatchOptions(matcher="sift", pair_filter=keep))
    assert set(load_matches(tmp_path / "f.h5").pairs) == {(0, 3), (1, 3), (2, 3)}


def test_bad_lists_of_pairs(tmp_path):
    with pytest.raises(InputError, match="no pairs file"):
        read_pairs_file(tmp_path / "none.txt")
    (tmp_path / "three.txt").write_text("a b\na b c\n")
    with pytest.raises(InputError, match="pair 2: two image names"):
        read_pairs_file(tmp_path / "three.txt")
    (tmp_path / "binary.txt").write_bytes(bytes([255, 254, 0, 200]))
    with pytest.raises(InputError, match="not a text file"):
        read_pairs_file(tmp_path / "binary.txt")
    with pytest.raises(InputError, match=r"1 names .* e\.g\. z"):
        pairs_by_name([("a", "z")], ["a", "b"])


def test_precomputed_matches_are_verified_and_need_their_file(folder, tmp_path):
    match_folder(folder, tmp_path / "m.h5", MatchOptions(matcher="sift"))
    given = load_matches(tmp_path / "m.h5")
    random = np.random.default_rng(0)
    wrong = random.uniform(0, 300, (2, 100, 2))
    given.pairs[0, 3] = PairMatches(wrong[0], wrong[1], np.ones(100))
    save_matches(tmp_path / "theirs.h5", given)
    options = MatchOptions(matcher="precomputed", weights=tmp_path / "theirs.h5")
    summary = match_folder(folder, tmp_path / "ours.h5", options)
    ours = load_matches(tmp_path / "ours.h5")
    assert summary.pairs_kept == 5 and (0, 3) not in ours.pairs
    assert len(ours.pairs[0, 1].scores) > 0.9 * len(given.pairs[0, 1].scores)
    with pytest.raises(InputError, match="--weights FILE"):
        make_matcher("precomputed")
