"""`proba match`, `proba run` and `proba import`, and what they say to bad input."""

import json
import sqlite3
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "matching"))
from failing import fails_after_warnings
from textures import noise, save, two_plane_views

from proba.cli import main
from proba.io.matches_h5 import load_matches


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for k, view in enumerate(two_plane_views(5)):
        save(folder / f"{k}.png", view)
    return folder


@pytest.fixture(scope="module")
def result(photos, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "out"
    masks = out.with_name("masks")
    for path in photos.iterdir():
        save(masks / path.name, np.full((30, 40), 255, np.uint8))  # all of each photo counts
    main(["run", str(photos), "--out", str(out), "--masks", str(masks), "--matcher", "sift", "--quiet"])
    return out


def test_run_poses_all_photos_and_reports_the_time_of_matching(result):
    report = json.loads((result / "report.json").read_text())
    assert report["registered"] == report["images"] == 5
    assert next(iter(report["seconds"])) == "match" and report["seconds"]["match"] > 0
    assert (result / "sparse" / "0" / "images.bin").exists() and (result / "points.ply").exists()
    # Width 400 and focal 400: the texture is real, the focal only known within what two planes tell.
    assert report["focal_px"][0]["focal_px"] == pytest.approx(400, rel=0.1)


def test_the_report_tells_later_commands_where_photos_and_masks_are(photos, result):
    report = json.loads((result / "report.json").read_text())
    assert report["image_folder"] == str(photos) and report["matching"]["masks"] == str(result.with_name("masks"))


def test_points_have_the_colours_of_the_photos(result):
    from proba.io.ply import read_ply

    colours = read_ply(result / "points.ply")["rgb"]
    assert len(np.unique(colours, axis=0)) > 50


def test_match_then_resume(photos, tmp_path, capsys):
    out = tmp_path / "m.h5"
    main(["match", str(photos), "--out", str(out), "--matcher", "sift", "--pairs", "sequential", "--quiet"])
    first = capsys.readouterr().out
    assert "5 images, 10 of 10 pairs kept" in first
    main(["match", str(photos), "--out", str(out), "--matcher", "sift", "--resume", "--quiet"])
    assert "5 images, 10 of 10 pairs kept" in capsys.readouterr().out


def test_match_shows_the_matchers(capsys):
    main(["match", "--list"])
    text = capsys.readouterr().out
    for name in ("sift", "xfeat", "disk-lightglue", "aliked-lightglue", "loftr", "dkm", "roma", "romav2", "auto"):
        assert f"\n{name} " in f"\n{text}"


@pytest.mark.filterwarnings("ignore:left out")
def test_bad_input_gets_one_line_and_code_2(tmp_path, photos, capsys):
    out = str(tmp_path / "out")
    (tmp_path / "empty").mkdir()
    save(tmp_path / "one" / "a.png", noise(64, 64))
    save(tmp_path / "tiny" / "a.png", noise(2, 2))
    for k in range(2):
        save(tmp_path / "apart" / f"{k}.png", noise(200, 150, seed=k))
    (tmp_path / "bad").mkdir()
    for k in range(2):
        (tmp_path / "bad" / f"{k}.jpg").write_text("no photo")
    assert "it is empty" in fails_after_warnings(capsys, "run", str(tmp_path / "empty"), "--out", out)
    assert "at least two" in fails_after_warnings(capsys, "run", str(tmp_path / "one"), "--out", out)
    assert "0 usable images" in fails_after_warnings(capsys, "run", str(tmp_path / "tiny"), "--out", out)
    assert "0 usable images" in fails_after_warnings(capsys, "run", str(tmp_path / "bad"), "--out", out)
    assert "overlap" in fails_after_warnings(capsys, "run", str(tmp_path / "apart"), "--out", out, "--quiet")
    assert "no matcher 'nope'" in fails_after_warnings(capsys, "match", str(photos), "--out", out, "--matcher", "nope")
    assert "--out" in fails_after_warnings(capsys, "match", str(photos))
    assert "--jobs" in fails_after_warnings(capsys, "match", str(photos), "--out", out, "--jobs", "0")
    fails_after_warnings(capsys, "match", str(photos), "--out", "/proc/none/m.h5", "--quiet")
    (tmp_path / "half.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    assert "Delete it" in fails_after_warnings(
        capsys, "match", str(photos), "--out", str(tmp_path / "half.h5"), "--resume"
    )


def test_run_does_not_write_into_a_folder_of_other_things(tmp_path, photos, capsys):
    (tmp_path / "holiday.jpg").write_text("precious")
    assert "not a ProBA result" in fails_after_warnings(capsys, "run", str(photos), "--out", str(tmp_path))


def colmap_database(path: Path) -> Path:
    """A database with three images of one camera, and matches of one pair verified."""
    database = sqlite3.connect(path)
    database.executescript(
        "CREATE TABLE cameras (camera_id INTEGER, model INTEGER, width INTEGER, height INTEGER, params BLOB,"
        " prior_focal_length INTEGER);"
        "CREATE TABLE images (image_id INTEGER, name TEXT, camera_id INTEGER);"
        "CREATE TABLE keypoints (image_id INTEGER, rows INTEGER, cols INTEGER, data BLOB);"
        "CREATE TABLE matches (pair_id INTEGER, rows INTEGER, cols INTEGER, data BLOB);"
        "CREATE TABLE two_view_geometries (pair_id INTEGER, rows INTEGER, cols INTEGER, data BLOB);"
    )
    database.execute("INSERT INTO cameras VALUES (1, 0, 640, 480, ?, 1)", [np.array([500.0, 320, 240]).tobytes()])
    for image in (1, 2, 3):
        points = np.arange(60, dtype=np.float32).reshape(10, 6) + image
        database.execute("INSERT INTO images VALUES (?, ?, 1)", [image, f"sub/{4 - image}.jpg"])
        database.execute("INSERT INTO keypoints VALUES (?, 10, 6, ?)", [image, points.tobytes()])
    chosen = np.array([[0, 1], [2, 3]], np.uint32)
    database.execute("INSERT INTO two_view_geometries VALUES (?, 2, 2, ?)", [2147483647 * 1 + 3, chosen.tobytes()])
    database.execute("INSERT INTO two_view_geometries VALUES (?, 0, 2, NULL)", [2147483647 * 1 + 2])
    database.commit()
    database.close()
    return path


def test_import_of_a_colmap_database(tmp_path, capsys):
    main(["import", str(colmap_database(tmp_path / "c.db")), "--out", str(tmp_path / "m.h5")])
    assert "3 images, 1 pairs, 2 matches" in capsys.readouterr().out
    matches = load_matches(tmp_path / "m.h5")
    assert [image.name for image in matches.images] == ["sub/1.jpg", "sub/2.jpg", "sub/3.jpg"]
    assert matches.images[0].focal_px == 500 and matches.images[0].width == 640
    pair = matches.pairs[0, 2]  # image 3 is called 1.jpg and image 1 is called 3.jpg
    np.testing.assert_allclose(pair.points_j, [[1, 2], [13, 14]])  # COLMAP's pixels are ours
    np.testing.assert_allclose(pair.points_i, [[9, 10], [21, 22]])


def test_import_of_sparse_and_dense_hloc_files(tmp_path, capsys):
    with h5py.File(tmp_path / "features.h5", "w") as file:
        for name in ("db/a.jpg", "db/b.jpg"):
            file[f"{name}/keypoints"] = np.arange(8, dtype=np.float32).reshape(4, 2)
            file[f"{name}/image_size"] = np.array([640, 480])
    with h5py.File(tmp_path / "matches.h5", "w") as file:
        file["db-a.jpg/db-b.jpg/matches0"] = np.array([-1, 0, -1, 3])
    argv = ["import", str(tmp_path / "matches.h5"), "--keypoints", str(tmp_path / "features.h5")]
    main([*argv, "--out", str(tmp_path / "m.h5")])
    pair = load_matches(tmp_path / "m.h5").pairs[0, 1]
    np.testing.assert_allclose(pair.points_i, [[2.5, 3.5], [6.5, 7.5]])  # hloc's pixels have integer centres
    np.testing.assert_allclose(pair.points_j, [[0.5, 1.5], [6.5, 7.5]])
    main(["import", str(tmp_path / "m.h5"), "--out", str(tmp_path / "again.h5")])
    assert "2 images, 1 pairs, 2 matches" in capsys.readouterr().out
    assert "second file" in fails_after_warnings(capsys, *argv[:2], "--out", str(tmp_path / "x.h5"))


def test_import_of_other_things(tmp_path, capsys):
    assert "no file" in fails_after_warnings(capsys, "import", str(tmp_path / "none.db"), "--out", "x.h5")
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + bytes(50))
    assert "COLMAP database" in fails_after_warnings(capsys, "import", str(tmp_path / "broken.db"), "--out", "x.h5")
    sqlite3.connect(tmp_path / "other.db").executescript("CREATE TABLE a (b INTEGER);")
    assert "COLMAP database" in fails_after_warnings(capsys, "import", str(tmp_path / "other.db"), "--out", "x.h5")
    (tmp_path / "text.h5").write_text("hello")
    fails_after_warnings(capsys, "import", str(tmp_path / "text.h5"), "--out", "x.h5")


def first_with_the_rest(images, pairs):
    """A pair filter, found by its name."""
    return [(i, j) for i, j in pairs if images[i].name == "0.png"]


def test_pairs_from_a_file_and_through_a_filter(photos, tmp_path, capsys, monkeypatch):
    (tmp_path / "pairs.txt").write_text("0.png 1.png\n1.png 4.png\n")
    argv = ["match", str(photos), "--out", str(tmp_path / "m.h5"), "--matcher", "sift", "--quiet"]
    main([*argv, "--pairs-file", str(tmp_path / "pairs.txt")])
    assert "2 of 2 pairs kept" in capsys.readouterr().out
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    main([*argv, "--pair-filter", f"{Path(__file__).stem}:first_with_the_rest"])
    assert "4 of 4 pairs kept" in capsys.readouterr().out
