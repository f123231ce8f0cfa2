"""The city: exact truth, one piece, wrong matches as asked, and work that grows with the number of images."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from proba.errors import InputError
from proba.geometry.epipolar import epipolar_lines, sampson
from proba.graph import build_view_graphs
from proba.synthetic import CityOptions, city_matches, make_city
from proba.synthetic.city import ALONG, ROUND


def epipolar_px(city, i, j, pair):
    """Epipolar distance [M] of matches by the true cameras, pixels."""
    centre = np.array(city.options.size_px) / 2
    rays = [np.c_[(xy - centre) / city.focal_px, np.ones(len(xy))] for xy in (pair.points_i, pair.points_j)]
    j_from_i = city.cam_from_world[j] @ np.linalg.inv(city.cam_from_world[i])
    lines = epipolar_lines(*rays, np.broadcast_to(j_from_i, (len(rays[0]), 4, 4)))
    return city.focal_px * sampson(rays[1], *lines)


def test_exact_matches_agree_with_the_cameras():
    city = make_city(CityOptions(images=60, noise_px=0.0, outliers=0.0, look_alike=0.0))
    matches = city_matches(city)
    worst = max(epipolar_px(city, *pair, points).max() for pair, points in matches.pairs.items())
    assert worst < 1e-3


def test_outliers_are_as_many_as_asked():
    city = make_city(CityOptions(images=60, noise_px=0.0, outliers=0.2, look_alike=0.0))
    wrong = np.concatenate([epipolar_px(city, *pair, points) > 1 for pair, points in city_matches(city).pairs.items()])
    assert 0.17 < wrong.mean() <= 0.21  # a few wrong ones lie on the epipolar line


@pytest.mark.parametrize("images", [100, 317])
def test_all_images_hang_together_and_are_as_many_as_asked(images):
    graphs, isolated = build_view_graphs(city_matches(make_city(CityOptions(images=images))))
    assert len(graphs) == 1 and not isolated
    assert graphs[0].n_images == images


def test_streets_close_loops():
    city = make_city(CityOptions(images=4 * (ROUND + ALONG), look_alike=0.0))  # four crossings
    linked = city_matches(city).sparse_counts() > 0
    left = np.r_[0:ROUND, ROUND + ALONG : city.n_images]  # without the first street
    assert connected_components(linked[left][:, left], directed=False)[0] == 1


def test_look_alikes_match_across_the_city_and_fit_among_themselves():
    options = CityOptions(images=300, noise_px=0.0, outliers=0.0, look_alike=0.4, look_alike_found=0.5)
    city = make_city(options)
    matches = city_matches(city)
    plain = city_matches(make_city(CityOptions(**{**vars(options), "look_alike": 0.0})))
    apart = [pair for pair in matches.pairs if np.linalg.norm(city.centre(pair[0]) - city.centre(pair[1])) > 80]
    assert len(apart) > 20
    assert not [pair for pair in plain.pairs if np.linalg.norm(city.centre(pair[0]) - city.centre(pair[1])) > 80]
    errors = np.concatenate([epipolar_px(city, *pair, matches.pairs[pair]) for pair in apart])
    assert np.median(errors) > 5  # wrong by the true cameras


def test_seed_repeats_and_varies():
    one, same, other = (make_city(CityOptions(images=40), seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.xy, same.xy)
    assert len(one.xy) != len(other.xy)


def test_keypoints_per_image_do_not_grow_with_the_city():
    small, large = (make_city(CityOptions(images=images)) for images in (100, 400))
    assert len(large.xy) / 400 < 1.2 * len(small.xy) / 100


def test_too_small_a_city_is_refused():
    with pytest.raises(InputError, match="at least 2"):
        CityOptions(images=1)
