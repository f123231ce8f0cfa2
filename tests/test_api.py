"""The library as a user calls it."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import proba
from proba.errors import InputError
from proba.io.lock import locked
from proba.pipeline import Observer
from proba.report import judge
from proba.synthetic import make_scene, scene_matches


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """Matches, result and folder of one small solve."""
    matches = scene_matches(make_scene("object", n_images=5, seed=0), grid=24, min_matches=20)
    out = tmp_path_factory.mktemp("api") / "out"
    return matches, proba.solve(matches, out=out), out


def test_import_is_light():
    """Seconds of torch and numba are only spent by those who solve."""
    code = "import sys, proba; proba.Reconstruction, proba.Matches; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_exists():
    assert {"reconstruct", "solve", "Reconstruction", "load_matches"} <= set(proba.__all__)
    for name in proba.__all__:
        assert getattr(proba, name) is not None
    assert set(proba.__all__) <= set(dir(proba))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        proba.nonsense  # noqa: B018


class Watcher(Observer):
    def __init__(self):
        self.seen = []

    def piece(self, index, total, graph):
        self.seen.append(("piece", index, total))

    def iteration(self, progress):
        self.seen.append(("iteration", progress.iteration))

    def stage(self, text):
        self.seen.append(("stage", text))


def test_solve_writes_the_folder(solved):
    _, result, out = solved
    assert len(result.best) == 5
    report = json.loads((out / "report.json").read_text())
    assert report["registered"] == 5 and report["image_folder"] is None


def test_solve_is_quiet_tells_observers_and_repeats_itself(solved, capfd):
    matches, result, _ = solved
    watcher = Watcher()
    again = proba.solve(matches, observer=watcher)
    assert capfd.readouterr() == ("", "")
    assert np.array_equal(again.best.cam_from_world, result.best.cam_from_world)
    assert watcher.seen[0] == ("piece", 0, 1)
    assert watcher.seen[-1] == ("stage", "writing")
    steps = [item[1] for item in watcher.seen if item[0] == "iteration"]
    assert len(steps) > 10 and steps == sorted(steps)


def test_results_show_themselves_in_one_line(solved):
    matches, result, _ = solved
    points, total = result.best.points, sum(len(pair.scores) for pair in matches.pairs.values())
    assert repr(matches) == f"Matches(images=5, pairs={len(matches.pairs)}, matches={total})"
    assert repr(result) == f"SolveResult(images=5, pieces=1, unmatched=0, verdict={result.verdict.level!r})"
    assert repr(result.best) == f"Reconstruction(images=5, cameras=1, points={len(points.xyz)})"
    assert repr(points) == f"Points(points={len(points.xyz)}, observations={len(points.obs_point)})"
    camera = result.best.cameras[0]
    assert repr(camera).startswith(f"Camera({camera.model}, 640 x 480, focal {camera.focal_px[0]:.1f} +- ")


def test_verdict_is_that_of_the_report(solved):
    matches, result, out = solved
    told = json.loads((out / "report.json").read_text())["verdict"]
    assert {"level": result.verdict.level, "text": result.verdict.text} == told and str(result.verdict) == told["text"]
    assert judge(matches, result) == result.verdict


def test_export_is_a_method_of_the_result(solved, tmp_path):
    rec = solved[1].best
    rec.export("tum", out=tmp_path / "tum")
    assert len((tmp_path / "tum" / "trajectory.txt").read_text().splitlines()) >= 5
    with pytest.raises(proba.InputError, match="needs the folder of the photos"):
        rec.export("nerfstudio", out=tmp_path / "nerf")
    with pytest.raises(proba.InputError, match="no export to 'usd'"):
        rec.export("usd", out=tmp_path / "usd")


def test_reconstruction_answers_by_name_and_by_number(solved):
    rec = solved[1].best
    name = rec.image_names[3]
    assert rec.index(name) == rec.index(3) == rec.index(-2) == 3
    assert np.array_equal(rec.poses[name], rec.cam_from_world[3])
    assert np.array_equal(rec.depth(name), rec.depth(3)) and rec.depth(3).ndim == 2
    assert rec.camera(name) is rec.cameras[rec.camera_of_image[3]]
    for wrong in ("nobody.jpg", 5, -6):
        with pytest.raises(proba.InputError, match="The reconstruction has"):
            rec.index(wrong)


def test_projection_and_depth_agree_with_the_observations(solved):
    rec = solved[1].best
    points = rec.points
    mine = points.obs_image == 2
    xyz, xy = points.xyz[points.obs_point[mine]], points.obs_xy[mine]
    assert np.median(np.linalg.norm(rec.project(2, xyz) - xy, axis=1)) < 2
    depth = (xyz @ rec.cam_from_world[2, :3, :3].T + rec.cam_from_world[2, :3, 3])[:, 2]
    assert np.median(np.abs(rec.depth(2, xy) / depth - 1)) < 0.05
    assert (rec.depth_sigma(2, xy) > 0).all()
    rays = rec.camera(2).rays(xy)
    assert np.allclose(rec.camera(2).project(rays * depth[:, None]), xy, atol=1e-3)
    assert np.isnan(rec.camera(2).project(np.array([0.0, 0.0, -1.0]))).all()
    assert np.allclose(rec.centres, rec.world_from_cam[:, :3, 3])


def test_save_and_load(solved, tmp_path):
    rec = solved[1].best
    rec.save(tmp_path / "saved")
    back = proba.Reconstruction.load(tmp_path / "saved")
    assert back.image_names == rec.image_names and back.edges == rec.edges
    assert np.allclose(back.cam_from_world, rec.cam_from_world, atol=1e-9)
    assert np.allclose(back.pose_std, rec.pose_std)
    with pytest.raises(proba.InputError, match="holds 1 reconstructions"):
        proba.Reconstruction.load(tmp_path / "saved", index=1)
    with pytest.raises(proba.InputError, match="no reconstruction"):
        proba.Reconstruction.load(tmp_path / "nothing")


def test_field_of_view_is_along_the_longest_side():
    upright = proba.Camera(model="PINHOLE", width=300, height=400, params=np.array([100.0, 200.0, 150.0, 200.0]))
    assert upright.fov_deg == pytest.approx(90)


def test_reconstruct_keeps_nothing_without_out(tmp_path, monkeypatch):
    """Photos that share nothing: an error that says what to do, and no file left behind."""
    photos = tmp_path / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for k in range(2):
        Image.fromarray(rng.integers(0, 256, (120, 160, 3), dtype=np.uint8)).save(photos / f"{k}.png")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(proba.GeometryError, match="check that they show the same scene"):
        proba.reconstruct(photos, match=proba.MatchOptions(matcher="sift"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos"]


@pytest.mark.parametrize("focal", ["init", "fixed"])
def test_photos_without_a_known_focal_are_refused_before_they_are_matched(tmp_path, focal):
    for k in range(3):
        pixels = np.random.default_rng(k).integers(0, 256, (48, 64, 3), dtype=np.uint8)
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{k}.png")
    options = proba.SolveOptions(cameras=proba.CameraOptions(focal=focal))
    with pytest.raises(proba.InputError, match=f"--focal {focal} needs a known focal length"):
        proba.reconstruct(tmp_path / "photos", out=tmp_path / "result", options=options)
    assert not (tmp_path / "result").exists()


def test_two_runs_cannot_share_a_folder(tmp_path):
    with locked(tmp_path), pytest.raises(InputError, match="in use"):
        proba.solve(proba.Matches(images=[]), out=tmp_path)
