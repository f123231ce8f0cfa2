"""The benchmark on photos with ground truth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pycolmap
import pytest
from PIL import Image

from proba.bench import measure
from proba.bench.colmap import cached_database
from proba.bench.measure import pairs_for_colmap
from proba.bench.photo_sets import find_sets
from proba.bench.real import RealOptions, markdown, perfect_matches, run_proba
from proba.cli import main
from proba.errors import InputError
from proba.io.matches_h5 import save_matches
from proba.synthetic import make_scene, scene_matches


def test_sets_are_found_by_name(toy_data: Path) -> None:
    assert [found.name for found in find_sets(toy_data, [])] == ["toy"]
    (toy,) = find_sets(toy_data / "toy", ["to"])
    assert toy.images(toy_data) == toy_data / "toy" / "images" and len(toy.truth().names) == 5
    with pytest.raises(InputError, match="nothing"):
        find_sets(toy_data, ["nothing"])


def test_run_is_recorded_and_not_repeated(toy_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = toy_data / "out.json"
    arguments = ["bench", "real", "--data", str(toy_data), "--json", str(file), "--cache", str(toy_data / "cache")]
    main([*arguments, "--seeds", "0", "--no-colmap"])
    (run,) = json.loads(file.read_text())
    assert (run["set"], run["registered"], run["rra@5"], run["rta@5"]) == ("toy", 5, 100.0, 100.0)
    assert run["peak_rss_mb"] > 100 and run["seconds"]["solve"] > 0
    capsys.readouterr()
    main([*arguments, "--seeds", "0", "--no-colmap"])
    assert len(json.loads(file.read_text())) == 1
    assert "| toy | proba portfolio | 5 of 5 |" in capsys.readouterr().out
    assert file.with_suffix(".md").read_text().startswith("| set |")


def test_colmap_gets_the_pairs_of_a_large_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)  # the same in all photos, shifted
    image = np.asarray(Image.fromarray(noise).resize((480, 320), Image.Resampling.BICUBIC))
    images = tmp_path / "images"
    images.mkdir()
    matches = scene_matches(make_scene("object", n_images=5, seed=0), grid=16)
    for k, info in enumerate(matches.images):
        Image.fromarray(np.roll(image, 8 * k, axis=1)).save(images / info.name)
    assert pairs_for_colmap("toy", images, tmp_path, 1) is None
    save_matches(tmp_path / "toy.auto.h5", matches)
    monkeypatch.setattr(measure, "ALL_PAIRS", 4)
    pairs = pairs_for_colmap("toy", images, tmp_path, 1)
    assert pairs and len(pairs) == len(matches.pairs)
    database, _ = cached_database(
        "toy", images, tmp_path, 1, camera_model="SIMPLE_PINHOLE", shared=True, pairs=pairs[:2]
    )
    with pycolmap.Database.open(database) as file:
        assert len(file.read_all_matches()[0]) == 2


def test_perfect_matches_are_those_on_their_true_lines(toy_data: Path) -> None:
    scene = make_scene("object", n_images=5, seed=0)
    clean, dirty = (scene_matches(scene, grid=24, noise_px=0.0, outliers=share, seed=1) for share in (0.0, 0.3))
    count = [
        sum(len(pair.scores) for pair in perfect_matches(matches, scene.ground_truth(cloud=False)).pairs.values())
        for matches in (clean, dirty)
    ]
    total = sum(len(pair.scores) for pair in clean.pairs.values())
    assert count[0] == total
    assert 0.65 * total < count[1] < 0.75 * total


def test_table_shows_the_worst_seed_and_failures() -> None:
    good = {
        "set": "a", "method": "m", "seed": 0, "images": 3, "registered": 3, "focal_error_pct": 0.1,
        **dict.fromkeys(("rra@1", "rra@5", "rta@1", "rta@5", "auc@1", "auc@5"), 100.0),
        "seconds": {"solve": 1.0}, "peak_rss_mb": 5.0,
    }  # fmt: skip
    worse = {**good, "seed": 1, "rta@1": 40.0, "seconds": {"solve": 9.0}}
    failed = {"set": "b", "method": "m", "seed": 0, "error": "no overlap"}
    lines = markdown([good, worse, failed]).splitlines()
    assert "worst of 2 seeds" in lines[2] and "40/100" in lines[2] and "9 (solve 9)" in lines[2]
    assert "no overlap" in lines[3]


def test_unusable_matches_are_a_result_not_a_crash(toy_data: Path, tmp_path: Path) -> None:
    matches = scene_matches(make_scene("object", n_images=5, seed=0), grid=24, seed=1)
    random = np.random.default_rng(0)
    for pair in matches.pairs.values():
        pair.points_j[:] = random.permutation(pair.points_j)
    matches.pairs.clear()
    save_matches(tmp_path / "toy.auto.h5", matches)
    result = run_proba(find_sets(toy_data)[0], 0, "portfolio", RealOptions(cache=tmp_path, threads=1))
    assert result["registered"] == 0 and "error" in result
