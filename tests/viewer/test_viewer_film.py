"""The software renderer, and films as files."""

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from proba.errors import InputError
from proba.viewer.film import FilmOptions, film, film_kind, write_film
from proba.viewer.palette import BACKGROUND
from proba.viewer.raster import Canvas, Eye
from proba.viewer.scene import load_scene

EYE = Eye(np.array([0.0, 0, -5]), np.zeros(3), np.array([0.0, -1, 0]))
RED, GREEN = np.array([[255, 0, 0]], np.uint8), np.array([[0, 255, 0]], np.uint8)


@pytest.fixture(scope="module")
def frames(result):
    scene = load_scene(result.folder)[0]
    return list(film(scene, FilmOptions(width=160, height=96, fps=4, seconds=2, ending=0.5)))


def test_the_nearer_point_hides_the_farther_whatever_the_order():
    for points in ([[0, 0, 0], [0, 0, 2]], [[0, 0, 2], [0, 0, 0]]):
        canvas = Canvas(40, 40, EYE)
        for point in points:
            canvas.points(np.array([point], float), GREEN if point[2] == 0 else RED, 2)
        assert tuple(np.asarray(canvas.finish())[20, 20]) == (0, 255, 0)


def test_x_is_right_and_y_is_down():
    canvas = Canvas(60, 60, EYE)
    canvas.points(np.array([[1.0, 0, 0]]), RED, 2)
    canvas.points(np.array([[0, 1.0, 0]]), GREEN, 2)
    rgb = np.asarray(canvas.finish()).astype(int)
    rows, columns = np.nonzero(rgb[..., 0] > 200)
    assert columns.mean() > 35 and abs(rows.mean() - 30) < 2
    rows, columns = np.nonzero(rgb[..., 1] > 200)
    assert rows.mean() > 35 and abs(columns.mean() - 30) < 2


def test_what_is_behind_the_eye_is_not_drawn():
    canvas = Canvas(40, 40, EYE)
    behind = np.array([[0.0, 0, -9]])
    canvas.points(behind, RED, 3)
    canvas.lines(behind, behind - 1, RED, 3)
    canvas.discs(behind, RED, np.array([1.0]), np.array([1.0]))
    assert (np.asarray(canvas.finish()) == BACKGROUND).all()


def test_a_line_reaches_from_end_to_end():
    canvas = Canvas(100, 100, EYE)
    canvas.lines(np.array([[-1.0, 0, 0]]), np.array([[1.0, 0, 0]]), RED, 2)
    row = np.asarray(canvas.finish())[50, :, 0]
    lit = np.flatnonzero(row > 200)
    assert len(lit) == np.ptp(lit) + 1 and lit[0] < 30 and lit[-1] > 70


def test_discs_blend():
    canvas = Canvas(40, 40, EYE)
    canvas.discs(np.zeros((1, 3)), RED, np.array([1.0]), np.array([0.5]))
    middle = np.asarray(canvas.finish())[20, 20]
    assert 120 < middle[0] < 160 and middle[1] == BACKGROUND[1] // 2


def test_film_shows_something_and_moves(frames):
    assert len(frames) == FilmOptions(fps=4, seconds=2, ending=0.5).n_frames == 10
    lit = [(np.abs(np.asarray(f).astype(int) - BACKGROUND).max(-1) > 30).mean() for f in frames]
    assert min(lit) > 0.02
    assert (np.asarray(frames[0]) != np.asarray(frames[4])).any(-1).mean() > 0.05


def test_mp4_plays(frames, tmp_path):
    write_film(tmp_path / "a.mp4", frames, 4)
    with av.open(str(tmp_path / "a.mp4")) as file:
        decoded = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert len(decoded) == len(frames)
    assert np.abs(decoded[-1].astype(int) - np.asarray(frames[-1])).mean() < 12


def test_gif_and_pictures_hold_every_frame(frames, tmp_path):
    done = []
    moving = frames[:8]  # a GIF joins equal neighbours
    write_film(tmp_path / "a.gif", moving, 4, progress=done.append)
    assert done == list(range(1, 9))
    with Image.open(tmp_path / "a.gif") as file:
        assert file.n_frames == len(moving) and file.info["duration"] == 250
    write_film(tmp_path / "pictures", frames, 4)
    assert len(list((tmp_path / "pictures").glob("*.png"))) == len(frames)


def test_wrong_films_are_refused():
    with pytest.raises(InputError, match=r"\.mp4, \.gif"):
        film_kind(Path("a.avi"))
    with pytest.raises(InputError, match="even"):
        FilmOptions(width=161)
    with pytest.raises(InputError, match="positive"):
        FilmOptions(seconds=0)


def test_unknown_world_is_refused_with_the_known_ones(result):
    scene = load_scene(result.folder)[0]
    with pytest.raises(InputError, match="fov45"):
        film(scene, FilmOptions(world="fov99"))
