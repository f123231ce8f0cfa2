"""Matches survive the disk, hloc's files are understood, and damaged ones are refused with advice."""

import h5py
import numpy as np
import pytest

from proba.errors import InputError
from proba.io import atomic_path, load_matches, save_matches
from proba.matches import ImageInfo, Matches


@pytest.fixture
def matches():
    rng = np.random.default_rng(0)
    images = [
        ImageInfo(name="left/0.jpg", width=640, height=480, camera_key="canon", focal_px=700.5),
        ImageInfo(name="left/1.jpg", width=640, height=480),
        ImageInfo(name="lonely.jpg", width=320, height=240),
        ImageInfo(name="a.jpg", width=640, height=480),
    ]
    result = Matches(images=images)
    for i, j in ((0, 1), (1, 3)):
        result.add(i, j, rng.uniform(0, 480, (50, 2)), rng.uniform(0, 480, (50, 2)), rng.uniform(0, 1, 50))
    return result


def assert_equal(one, other):
    assert one.images == other.images
    assert one.pairs.keys() == other.pairs.keys()
    for key, pair in one.pairs.items():
        for a, b in zip(pair, other.pairs[key], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4)
            assert b.dtype == np.float32


def test_round_trip(tmp_path, matches):
    save_matches(tmp_path / "m.h5", matches)
    assert_equal(matches, load_matches(tmp_path / "m.h5"))
    assert [p.name for p in tmp_path.iterdir()] == ["m.h5"]


def test_layout_is_hlocs(tmp_path, matches):
    save_matches(tmp_path / "m.h5", matches)
    with h5py.File(tmp_path / "m.h5") as file:
        group = file["left-0.jpg/left-1.jpg"]
        # hloc puts integers at pixel centres and adds 0.5 for COLMAP.
        np.testing.assert_allclose(group["keypoints0"][:] + 0.5, matches.pairs[0, 1].points_i, atol=1e-4)
        assert group["scores"].shape == (50,)


def test_hloc_file_without_sizes(tmp_path):
    from PIL import Image

    with h5py.File(tmp_path / "m.h5", "w") as file:
        for pair in ("x-b.png/a.png", "a.png/c.png"):
            file[f"{pair}/keypoints0"] = np.array([[0.0, 0.0], [638.5, 400.0]])
            file[f"{pair}/keypoints1"] = np.array([[5.0, 479.2], [3.0, 3.0]])
            file[f"{pair}/scores"] = np.ones(2, np.float16)
    with pytest.warns(UserWarning, match="639 x 480"):
        guessed = load_matches(tmp_path / "m.h5")
    assert [image.name for image in guessed.images] == ["a.png", "c.png", "x-b.png"]
    np.testing.assert_allclose(guessed.pairs[0, 2].points_j[0], [0.5, 0.5])  # swapped: a.png is image 0

    for name in ("a.png", "c.png", "x/b.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (700, 500)).save(tmp_path / "images" / name)
    known = load_matches(tmp_path / "m.h5", images=tmp_path / "images")
    assert [(image.name, image.width, image.height) for image in known.images][2] == ("x/b.png", 700, 500)

    (tmp_path / "images" / "c.png").unlink()
    with pytest.raises(InputError, match=r"c\.png"):
        load_matches(tmp_path / "m.h5", images=tmp_path / "images")


@pytest.mark.parametrize("stored", [False, True])
def test_hloc_points_are_those_of_the_photo_as_shown(tmp_path, stored):
    from PIL import Image

    turn = Image.Exif()
    turn[0x0112] = 6  # a quarter turn clockwise
    (tmp_path / "images").mkdir()
    Image.new("L", (60, 40)).save(tmp_path / "images" / "flat.png")
    Image.new("L", (60, 40)).save(tmp_path / "images" / "turned.png", exif=turn)
    shown = np.array([[10.0, 50.0], [30.0, 20.0]], np.float32)  # of turned.png, 40 x 60 as shown
    in_file = np.stack([shown[:, 1], 40 - 1 - shown[:, 0]], 1) if stored else shown
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["flat.png/turned.png/keypoints0"] = np.array([[50.0, 10.0], [20.0, 30.0]])
        file["flat.png/turned.png/keypoints1"] = in_file
    matches = load_matches(tmp_path / "m.h5", images=tmp_path / "images")
    assert [(image.width, image.height) for image in matches.images] == [(60, 40), (40, 60)]
    np.testing.assert_allclose(matches.pairs[0, 1].points_i, [[50.5, 10.5], [20.5, 30.5]])
    np.testing.assert_allclose(matches.pairs[0, 1].points_j, shown + 0.5)


def test_not_numbers_are_left_out_with_a_warning(tmp_path, matches):
    matches.pairs[0, 1].points_i[3, 0] = np.nan
    matches.pairs[0, 1].points_j[5, 1] = np.inf
    save_matches(tmp_path / "m.h5", matches)
    with pytest.warns(UserWarning, match="2 matches"):
        loaded = load_matches(tmp_path / "m.h5")
    assert len(loaded.pairs[0, 1].points_i) == 48
    assert all(np.isfinite(part).all() for part in loaded.pairs[0, 1])


@pytest.mark.parametrize("keep", [0, 100, 0.5, 0.95])
def test_half_written_files_are_refused(tmp_path, matches, keep):
    save_matches(tmp_path / "m.h5", matches)
    whole = (tmp_path / "m.h5").read_bytes()
    (tmp_path / "cut.h5").write_bytes(whole[: keep if isinstance(keep, int) else int(keep * len(whole))])
    with pytest.raises(InputError, match="again"):
        load_matches(tmp_path / "cut.h5")


def test_missing_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="no matches file"):
        load_matches(tmp_path / "none.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["something"] = np.zeros(3)
    with pytest.raises(InputError, match="keypoints0"):
        load_matches(tmp_path / "other.h5")
    with h5py.File(tmp_path / "uneven.h5", "w") as file:
        file["a/b/keypoints0"], file["a/b/keypoints1"] = np.zeros((3, 2)), np.zeros((4, 2))
    with pytest.raises(InputError, match="damaged"):
        load_matches(tmp_path / "uneven.h5")


def test_names_that_collide_are_refused(tmp_path):
    images = [ImageInfo(name=name, width=1, height=1) for name in ("a/b.png", "a-b.png")]
    with pytest.raises(InputError, match="Rename"):
        save_matches(tmp_path / "m.h5", Matches(images=images))


def test_npz(tmp_path, matches):
    layout = {
        "names": np.array([image.name for image in matches.images]),
        "sizes": np.array([[image.width, image.height] for image in matches.images]),
        "camera_keys": np.array([image.camera_key for image in matches.images]),
        "focal_px": np.array([image.focal_px or np.nan for image in matches.images]),
        "pairs": np.array(list(matches.pairs)),
        "counts": np.array([len(pair.points_i) for pair in matches.pairs.values()]),
        "points_i": np.concatenate([pair.points_i for pair in matches.pairs.values()]),
        "points_j": np.concatenate([pair.points_j for pair in matches.pairs.values()]),
        "scores": np.concatenate([pair.scores for pair in matches.pairs.values()]),
    }
    np.savez(tmp_path / "m.npz", **layout)
    assert_equal(matches, load_matches(tmp_path / "m.npz"))
    np.savez(tmp_path / "short.npz", **{**layout, "points_j": layout["points_j"][:-1]})
    (tmp_path / "cut.npz").write_bytes((tmp_path / "m.npz").read_bytes()[:500])
    for name in ("short.npz", "cut.npz"):
        with pytest.raises(InputError, match="again"):
            load_matches(tmp_path / name)


def test_an_interrupted_write_leaves_the_old_file(tmp_path):
    target = tmp_path / "file.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]
    with atomic_path(target) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"
