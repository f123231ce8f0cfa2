"""Every command once, and what it says to bad input."""

import json

import h5py
import numpy as np
import pycolmap
import pytest
from failing import fails

import proba
from proba.cli import main
from proba.io.matches_h5 import save_matches
from proba.matches import ImageInfo, Matches

CONTRACT = {
    "images",
    "registered",
    "components",
    "hypotheses",
    "focal_px",
    "edges",
    "seconds",
    "peak_rss_mb",
    "iterations",
    "seed",
    "version",
}
METRICS = {f"{name}@{k}" for name in ("rra", "rta", "auc") for k in (1, 5, 10)} | {
    "images",
    "registered",
    "focal_error_pct",
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "out"
    main(["demo", "--out", str(out), "--n-images", "8", "--exact", "--quiet"])
    return out


def test_demo_writes_what_the_contract_names_and_is_right(demo):
    report = json.loads((demo / "report.json").read_text())
    assert report.keys() >= CONTRACT
    assert report["registered"] == report["images"] == 8
    assert sum(h["chosen"] for h in report["hypotheses"]) == 1
    assert all({"i", "j", "matches", "weight"} <= edge.keys() for edge in report["edges"])
    assert all(focal["std_px"] > 0 for focal in report["focal_px"])
    metrics = json.loads((demo / "eval.json").read_text())
    assert metrics["rra@5"] == metrics["rta@5"] == 100
    assert metrics["focal_error_pct"] < 2
    html = (demo / "report.html").read_text()
    assert "8 of 8 images posed" in html and "<svg" in html and "://" not in html
    assert not (demo / "checkpoint").exists()


def test_model_opens_in_colmap(demo):
    model = pycolmap.Reconstruction(str(demo / "sparse" / "0"))
    assert model.num_reg_images() == 8
    assert model.compute_mean_reprojection_error() < 3


def test_eval_writes_the_contract(demo, tmp_path):
    main(["eval", str(demo), "--gt", str(demo / "gt.json"), "--json", str(tmp_path / "m.json")])
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert metrics.keys() >= METRICS
    assert metrics["rta@5"] == 100


@pytest.mark.parametrize(("to", "flag"), [("colmap", "--out"), ("ply", "-o")])
def test_export(demo, tmp_path, to, flag):
    main(["export", str(demo), "--to", to, flag, str(tmp_path / to)])
    assert any((tmp_path / to).rglob("*.bin" if to == "colmap" else "*.ply"))


def test_solve_names_images_without_matches_and_keeps_pieces_apart(tmp_path, capsys):
    from proba.synthetic import make_scene, scene_matches

    first = scene_matches(make_scene("object", n_images=5, seed=0), grid=24, min_matches=20)
    both = Matches([ImageInfo(name=f"{p}/{info.name}", width=640, height=480) for p in "ab" for info in first.images])
    both.images.append(ImageInfo(name="alone.jpg", width=640, height=480))
    for (i, j), pair in first.pairs.items():
        both.add(i, j, *pair)
        if i < 4 and j < 4:
            both.add(i + 5, j + 5, *pair)
    save_matches(tmp_path / "m.h5", both)
    main(["solve", str(tmp_path / "m.h5"), "--out", str(tmp_path / "out"), "--quiet"])
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [len(c["images"]) for c in report["components"]] == [5, 4]
    assert "alone.jpg" in report["unmatched"]
    assert any("alone.jpg" in text for text in report["warnings"])
    assert (tmp_path / "out" / "sparse" / "1" / "cameras.bin").exists()
    assert "9 of 11 images posed in 2 pieces" in capsys.readouterr().out


def empty_matches(path):
    save_matches(path, Matches([ImageInfo(name=f"{k}.jpg", width=640, height=480) for k in range(3)]))
    return path


def test_bad_input_gets_one_line_and_code_2(tmp_path, demo, capsys):
    out = str(tmp_path / "out")
    assert "There is no matches file" in fails(capsys, "solve", str(tmp_path / "none.h5"), "--out", out)
    assert "matches" in fails(capsys, "solve", str(empty_matches(tmp_path / "empty.h5")), "--out", out)
    (tmp_path / "text.h5").write_text("not an h5 file")
    fails(capsys, "solve", str(tmp_path / "text.h5"), "--out", out)
    (tmp_path / "half.h5").write_bytes((demo / "matches.h5").read_bytes()[:20000])
    fails(capsys, "solve", str(tmp_path / "half.h5"), "--out", out)
    fails(capsys, "solve", str(tmp_path), "--out", out)
    fails(capsys, "eval", str(tmp_path), "--gt", str(demo / "gt.json"))
    fails(capsys, "eval", str(demo), "--gt", str(tmp_path / "none.json"))
    fails(capsys, "solve", str(demo / "matches.h5"), "--out", out, "--threads", "0")


def test_a_folder_of_other_things_is_not_written_into(tmp_path, demo, capsys):
    (tmp_path / "holiday.jpg").write_text("precious")
    text = fails(capsys, "solve", str(demo / "matches.h5"), "--out", str(tmp_path))
    assert "not a ProBA result" in text
    assert [p.name for p in tmp_path.iterdir()] == ["holiday.jpg"]


def test_demo_leaves_the_truth_of_a_real_set_alone(tmp_path, capsys):
    (tmp_path / "gt.json").write_text("surveyed")
    assert "not a ProBA result" in fails(capsys, "demo", "--out", str(tmp_path), "--exact")
    assert (tmp_path / "gt.json").read_text() == "surveyed"


def test_matches_with_nan_are_dropped(tmp_path, demo):
    path = tmp_path / "nan.h5"
    path.write_bytes((demo / "matches.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        name0 = next(name for name in file if not name.startswith("."))
        name1 = next(iter(file[name0]))
        data = file[name0][name1]["keypoints0"]
        values = data[:]
        values[: len(values) // 2] = np.nan
        data[:] = values
    with pytest.warns(UserWarning, match="left out"):
        from proba.io.matches_h5 import load_matches

        loaded = load_matches(path)
    assert all(np.isfinite(pair.points_i).all() for pair in loaded.pairs.values())


def test_usage_errors_exit_with_2(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["solve"])
    assert exit_info.value.code == 2
    with pytest.raises(SystemExit) as exit_info:
        main(["--help"])
    assert exit_info.value.code == 0
    main(["--version"])
    assert "proba 0." in capsys.readouterr().out


def test_interrupted_solve_writes_a_model_and_resumes(demo, tmp_path, monkeypatch):
    """Ctrl-C: a usable model and a checkpoint; --resume: the bits of a run that nobody disturbed."""
    from proba.cli.progress import ProgressBar

    def solve(name, *more):
        out = tmp_path / name
        main(["solve", str(demo / "matches.h5"), "--out", str(out), "--quiet", "--threads", "1", *more])
        return out, json.loads((out / "report.json").read_text())

    whole = tmp_path / "whole"
    proba.solve(demo / "matches.h5", out=whole, threads=1)  # the library gives the bits of the command

    def interrupt(self, progress):
        if progress.iteration >= 1000:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "iteration", interrupt)
        broken, report = solve("broken", "--solver.checkpoint-seconds", "0")
    assert report["interrupted"] and report["registered"] == 8 and report["iterations"] == 1000
    assert (broken / "checkpoint").exists()
    resumed, report = solve("broken", "--resume", "--solver.checkpoint-seconds", "0")
    assert not report["interrupted"]
    for name in ("cameras.bin", "images.bin", "points3D.bin"):
        assert (resumed / "sparse" / "0" / name).read_bytes() == (whole / "sparse" / "0" / name).read_bytes()
