"""Quarter turns of images, on projections of a scene in which some cameras were physically turned."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from proba.graph import build_view_graphs, image_rolls, roll_rotation
from proba.graph.roll import similarity_2d
from proba.matches import ImageInfo, Matches

WIDTH, HEIGHT, FOCAL_PX = 800, 600, 700.0


def turned_size(quarter_turns: int) -> tuple[int, int]:
    return (WIDTH, HEIGHT) if quarter_turns % 2 == 0 else (HEIGHT, WIDTH)


def project(points: np.ndarray, world_from_cam: np.ndarray, centre: np.ndarray, size: tuple) -> np.ndarray:
    in_cam = (points - centre) @ world_from_cam  # rows times R are R^T times columns
    return FOCAL_PX * in_cam[:, :2] / in_cam[:, 2:] + np.array(size) / 2


def turned_scene(rolls: list[int], seed: int = 0, outliers: float = 0.0, tilt_deg: float = 8.0) -> Matches:
    """Cameras in a row with a little free rotation, camera k turned by rolls[k]; neighbours are matched."""
    rng = np.random.default_rng(seed)
    points = rng.uniform([-4, -1.5, 4], [4, 1.5, 8], (400, 3))
    sizes = [turned_size(q) for q in rolls]
    xy = []
    for k, q in enumerate(rolls):
        tilt = Rotation.from_rotvec(np.radians(tilt_deg) * rng.normal(size=3) / np.sqrt(3)).as_matrix()
        centre = np.array([0.3 * (k - len(rolls) / 2), 0, 0])
        xy.append(project(points, tilt @ roll_rotation(q), centre, sizes[k]))
    images = [ImageInfo(name=f"{k}.jpg", width=w, height=h) for k, (w, h) in enumerate(sizes)]
    matches = Matches(images)
    for i in range(len(rolls)):
        for j in range(i + 1, min(i + 3, len(rolls))):
            target = xy[j].copy()
            wrong = rng.random(len(points)) < outliers
            target[wrong] = rng.uniform(0, 1, (wrong.sum(), 2)) * sizes[j]
            n = len(points) - 40 * (j - i)
            matches.add(i, j, xy[i][:n], target[:n])
    return matches


def rolls_of(matches: Matches) -> list[int]:
    (graph,), _ = build_view_graphs(matches)
    return image_rolls(matches, graph).tolist()


@pytest.mark.parametrize("q", range(4))
def test_roll_rotation_is_what_rot90_does_to_a_picture(q):
    """The picture of the turned camera is np.rot90(picture, q), pixel by pixel."""
    row, col = 40, 130
    picture = np.zeros((HEIGHT, WIDTH), bool)
    picture[row, col] = True
    turned_row, turned_col = np.argwhere(np.rot90(picture, q))[0]
    ray = np.array([[(col + 0.5 - WIDTH / 2) / FOCAL_PX, (row + 0.5 - HEIGHT / 2) / FOCAL_PX, 1.0]])
    xy = project(ray, roll_rotation(q), np.zeros(3), turned_size(q))
    np.testing.assert_allclose(xy[0], [turned_col + 0.5, turned_row + 0.5])


@pytest.mark.parametrize("q", range(4))
@pytest.mark.parametrize("turned", [0, 2, 4])
def test_one_turned_image_is_found(q, turned):
    rolls = [0] * 5
    rolls[turned] = q
    assert rolls_of(turned_scene(rolls)) == rolls


def test_many_turned_images_and_outliers():
    rolls = [0, 2, 0, 1, 0, 3, 2, 0, 0]
    assert rolls_of(turned_scene(rolls, outliers=0.4)) == rolls


def test_the_majority_is_upright():
    assert rolls_of(turned_scene([2, 2, 2, 0, 2])) == [0, 0, 0, 2, 0]


def test_small_turns_do_not_add_up_to_a_quarter():
    """A camera that turns by 20 degrees from image to image needs no quarter turn between any two of them."""
    points = np.random.default_rng(0).uniform([-2, -2, 4], [2, 2, 8], (100, 3))
    matches = Matches([ImageInfo(name=f"{k}.jpg", width=WIDTH, height=HEIGHT) for k in range(10)])
    turn = [Rotation.from_euler("z", 20 * k, degrees=True).as_matrix() for k in range(10)]
    xy = [project(points, R, np.zeros(3), (WIDTH, HEIGHT)) for R in turn]
    for k in range(9):
        matches.add(k, k + 1, xy[k], xy[k + 1])
    assert rolls_of(matches) == [0] * 10


def test_the_order_of_a_pair_does_not_matter():
    matches = turned_scene([0, 0, 1, 0])
    swapped = Matches(matches.images[::-1])
    for (i, j), pair in matches.pairs.items():
        swapped.add(3 - i, 3 - j, pair.points_i, pair.points_j)
    assert rolls_of(swapped) == rolls_of(matches)[::-1] == [0, 1, 0, 0]


def test_similarity_2d_is_exact_and_robust():
    rng = np.random.default_rng(1)
    source = rng.normal(size=100) + 1j * rng.normal(size=100)
    truth = 1.7 * np.exp(2.5j)
    target = truth * source + (3 - 2j)
    target[:35] = 5 * (rng.normal(size=35) + 1j * rng.normal(size=35))
    assert abs(similarity_2d(source, target) - truth) < 1e-3


def test_matches_in_one_place_mean_no_turn():
    assert similarity_2d(np.ones(5, complex), np.ones(5, complex)) == 1
    matches = Matches([ImageInfo(name=name, width=10, height=10) for name in "ab"])
    matches.add(0, 1, np.ones((1, 2)), np.ones((1, 2)))
    assert rolls_of(matches) == [0, 0]
