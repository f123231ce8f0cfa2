"""The example scripts, run as a reader would run them."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import proba
from proba.synthetic import make_scene
from proba.synthetic.render import render_images

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(monkeypatch, capsys, name: str, *arguments: object) -> str:
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


def test_photos_to_splats(tmp_path, monkeypatch, capsys):
    scene = make_scene("object", n_images=6, seed=0, width=400, height=300)
    render_images(scene, tmp_path / "photos")
    result = tmp_path / "result"
    said = run(monkeypatch, capsys, "from_photos.py", tmp_path / "photos", result)
    assert "focal" in said and "rotation +-" in said
    said = run(monkeypatch, capsys, "to_gaussian_splatting.py", result, tmp_path / "start.npz")
    assert "6 cameras" in said

    rec = proba.Reconstruction.load(result)
    start = np.load(tmp_path / "start.npz")
    assert list(start["names"]) == rec.image_names
    assert len(start["means"]) == len(start["scales"]) == len(rec.points.xyz)
    assert (start["scales"] > 0).all() and 0 <= start["colors"].min() < start["colors"].max() <= 1
    # The tensors put a point where it was observed, as far as a camera without distortion can.
    seen = np.flatnonzero(rec.points.obs_image == 2)
    xyz = start["means"][rec.points.obs_point[seen]]
    in_camera = xyz @ start["viewmats"][2, :3, :3].T + start["viewmats"][2, :3, 3]
    pixels = (in_camera / in_camera[:, 2:]) @ start["Ks"][2].T
    assert np.median(np.linalg.norm(pixels[:, :2] - rec.points.obs_xy[seen], axis=1)) < 2


def test_own_matches(tmp_path, monkeypatch, capsys):
    run(monkeypatch, capsys, "from_your_own_matches.py", tmp_path / "result")
    camera = proba.Reconstruction.load(tmp_path / "result").cameras[0]
    assert camera.focal_px[0] == pytest.approx(600, rel=0.01)


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_without_arguments_they_say_how_to_use_them(name, monkeypatch, capsys):
    with pytest.raises(SystemExit, match=f"python examples/{name}"):
        run(monkeypatch, capsys, name)
