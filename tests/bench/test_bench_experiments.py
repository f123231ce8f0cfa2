"""The experiments at the smallest sizes: damage is as announced, tables and pictures hold what was computed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proba.bench.baseline_gate import run_gate, summarise
from proba.bench.disturb import with_noise, with_outliers
from proba.bench.experiment import RunOptions
from proba.bench.experiments import EXPERIMENTS, aggregate, calibration, lenses, load_experiment, noise, outliers
from proba.bench.measure import Source, regime
from proba.bench.methods import rows_of_real, with_rows
from proba.bench.results_page import fill_blocks, make_results
from proba.errors import InputError
from proba.io.reading import read_json
from proba.synthetic import make_scene, scene_matches


def moved(before, after) -> np.ndarray:  # [M] distances of the targets of all matches
    return np.concatenate(
        [np.linalg.norm(after.pairs[key].points_j - pair.points_j, axis=1) for key, pair in before.pairs.items()]
    )


def test_damage_is_as_announced_and_repeatable() -> None:
    matches = scene_matches(make_scene("object", n_images=4, seed=0), grid=24, seed=0)
    noisy = moved(matches, with_noise(matches, 0.25, 30.0, seed=1))
    assert np.mean(noisy > 0) == pytest.approx(0.25, abs=0.01)
    assert np.sqrt(np.mean(noisy[noisy > 0] ** 2) / 2) == pytest.approx(30, rel=0.1)
    wild = with_outliers(matches, 0.8, seed=1)
    assert np.mean(moved(matches, wild) > 0) == pytest.approx(0.8, abs=0.01)
    again = with_outliers(matches, 0.8, seed=1)
    assert moved(wild, again).max() == 0
    assert all(np.array_equal(wild.pairs[key].points_i, pair.points_i) for key, pair in matches.pairs.items())


def test_regimes_can_be_unrefined() -> None:
    assert regime("strict", 3).solver.hypotheses == "cold" and regime("strict", 3).seed == 3
    assert not regime("default unrefined", 0).refine.enabled and regime("default", 0).refine.enabled
    with pytest.raises(InputError, match="no preset"):
        regime("lax", 0)


def test_normalised_errors_of_an_exact_result_are_zero_and_grow_with_the_error() -> None:
    scene = make_scene("object", n_images=5, seed=0)
    found = exact(scene)
    errors = calibration.normalised_errors(found, scene)
    assert errors["rotation"]["rms"] < 1e-3 and errors["centre"]["rms"] < 1e-3 and errors["focal"]["within_1"] == 100
    assert errors["points"]["count"] > 100 and errors["points"]["rms"] < 0.01
    rng = np.random.default_rng(0)
    found.points.xyz += rng.normal(0, 2 * found.points.sigma[:, None], found.points.xyz.shape)
    points = calibration.normalised_errors(found, scene)["points"]
    assert points["rms"] == pytest.approx(2, rel=0.1) and points["within_2"] == pytest.approx(68, abs=4)


def exact(scene):
    """The truth as a reconstruction whose points are seen at places of the grid."""
    from proba.reconstruction import Camera, Points, Reconstruction

    pixels, n = scene.grid(calibration.GRID, calibration.GRID), scene.n_images
    fx, _, cx, cy = scene.intrinsics[0]
    depth, _ = scene.cast(0, pixels)
    seen = np.flatnonzero(np.isfinite(depth))
    xyz = scene.centre(0) + depth[seen, None] * scene.rays(0, pixels[seen])
    points = Points(
        xyz=xyz,
        rgb=np.zeros((len(xyz), 3), np.uint8),
        sigma=np.full(len(xyz), 0.01),
        error_px=np.zeros(len(xyz)),
        obs_point=np.arange(len(xyz)),
        obs_image=np.zeros(len(xyz), np.int64),
        obs_xy=pixels[seen].astype(np.float32),
    )
    camera = Camera(
        model="SIMPLE_PINHOLE",
        width=scene.width,
        height=scene.height,
        params=np.array([fx, cx, cy]),
        focal_std_px=1.0,
    )
    return Reconstruction(
        image_names=scene.image_names,
        cameras=[camera],
        camera_of_image=np.zeros(n, np.int64),
        cam_from_world=scene.cam_from_world.copy(),
        pose_std=np.full((n, 6), 1e-3),
        points=points,
    )


def test_a_cell_of_the_grids_is_one_solve(monkeypatch) -> None:
    monkeypatch.setitem(Source.load.__globals__, "SMALL", {"n_images": 5, "grid": 24})
    options = RunOptions(threads=1)
    clean = noise.measure(Source(name="object"), "default unrefined", 0.0, 0, 0, options)
    wild = outliers.measure(Source(name="object"), "default unrefined", 1.0, 0, options)
    assert clean["rra@10"] == 100 and wild.get("rra@10", 0) < 50


def fake(settings: dict) -> dict:
    """Results that need no computation."""
    methods = {"proba default": 90.0, "proba strict": 70.0}
    value = methods.get(settings["method"], 50.0) - settings["seed"]
    scores = {f"{name}@{x}": value for name in ("rra", "rta", "auc") for x in (1, 5, 10)}
    total = 4.0 if settings["method"].startswith("proba") else 8.0
    return {**scores, "images": 5, "registered": 5, "focal_error_pct": 0.1, "total_s": total, "seconds": {"map": total}}


def test_tables_of_sets_show_the_worst_seed_and_the_better_one_in_bold(toy_data: Path, tmp_path: Path) -> None:
    options = RunOptions(quick=True, data=toy_data, cache=tmp_path)
    rows = [{**row.settings, **fake(dict(row.settings))} for row in aggregate.plan(options)]
    assert "| toy | 5 | 5, 5 | **89.0**, 50.0 | **89.0**, 50.0 | 0.10 % | **4**, 8 |" in aggregate.by_set(rows)
    assert "| toy: proba default | 1 | 89.5 | 89.5 |" in aggregate.by_dataset(rows)
    failed = [{**rows[0], "error": "crashed"}, *rows[1:]]
    for key in [key for key in failed[0] if "@" in key or key in ("registered", "total_s")]:
        del failed[0][key]
    assert "0, **5** | 0.0, **50.0**" in aggregate.by_set(failed)


def test_the_page_is_made_from_rows_and_says_what_is_missing(toy_data: Path, tmp_path: Path) -> None:
    options = RunOptions(quick=True, data=toy_data, cache=tmp_path / "cache")
    out, page, readme = tmp_path / "out", tmp_path / "docs" / "results.md", tmp_path / "README.md"
    experiment = load_experiment("aggregate")
    planned = experiment.plan(options)
    out.mkdir()
    rows = [{**row.settings, **fake(dict(row.settings))} for row in planned]
    (out / "aggregate.json").write_text(json.dumps({"rows": rows}))
    readme.write_text("before\n<!-- results: by-set -->\nstale\n<!-- end of results -->\nafter\n")
    page.parent.mkdir()
    make_results(out, page, [readme], options, only=(), minutes=0)
    text = page.read_text()
    assert "Machine:" in text and "numpy" in text and "## Not run, or not whole" in text
    assert all(f"`proba bench {name}`" in text for name in EXPERIMENTS)
    assert (
        "| toy: proba default | 1 | 89.5 |" in text and "*Quoted, not measured here* (the paper, Table 1, DTU)" in text
    )
    assert "](images/results/aggregate.png)" in text and (tmp_path / "docs/images/results/aggregate.png").is_file()
    filled = readme.read_text()
    assert (
        filled.startswith("before\n") and filled.endswith("after\n") and "stale" not in filled and "| toy |" in filled
    )
    assert "[All results](docs/results.md)" in filled
    fill_blocks(readme, page, out, options)
    assert readme.read_text() == filled  # filling again changes nothing
    assert len(read_json(out / "aggregate.json")["rows"]) == len(planned)
    stored = read_json(out / "aggregate.json")
    (out / "aggregate.json").write_text(json.dumps({**stored, "rows": stored["rows"][1:]}))
    readme.write_text("<!-- results: by-set -->\nstale\n<!-- end of results -->\n")
    fill_blocks(readme, page, out, options)
    assert "stale" in readme.read_text()  # half a table does not replace a whole one


def test_rows_of_the_benchmark_on_photos_are_taken_over(toy_data: Path, tmp_path: Path, monkeypatch) -> None:
    real, out = tmp_path / "real.json", tmp_path / "out"
    options = RunOptions(quick=True, data=toy_data, cache=tmp_path / "cache")
    scores = {f"{name}@{x}": 80.0 for name in ("rra", "rta", "auc") for x in (1, 5, 10)}
    common = {**scores, "set": "toy", "images": 5, "registered": 5, "focal_error_pct": 0.1, "seconds": {"a": 1, "b": 2}}
    methods = [("proba portfolio", 0), ("proba portfolio", 1), ("proba cold", 0), ("colmap incremental", 0)]
    real.write_text(json.dumps([{**common, "method": method, "seed": seed} for method, seed in methods]))
    taken = rows_of_real(real)
    assert [row["method"] for row in taken] == ["proba default"] * 2 + ["colmap incremental"]
    assert taken[0]["total_s"] == 3 and taken[0]["dataset"] == "toy"
    own = {**taken[0], "auc@1": 10.0}
    assert with_rows([own], taken) == [own, *taken[1:]]  # what was computed here stays
    make_results(out, tmp_path / "results.md", [], options, only=(), minutes=0, real=real)
    text = (tmp_path / "results.md").read_text()
    assert "| toy: proba default | 1 | 80.0 |" in text and "3 of 6 rows were computed" in text
    monkeypatch.setattr("proba.bench.baseline_gate.SCENES", ())
    both = replace(options, quick=False, seeds=(0, 1))
    rows = run_gate(tmp_path / "gate", both, resume=False, real=real)
    assert len(rows) == 3 and summarise(rows)["toy"]["time_ratio"] == 1.0  # nothing was computed
    alone = run_gate(tmp_path / "alone", both, resume=False, real=real, colmap=False)
    assert [row["method"] for row in alone] == ["proba default"] * 2
    mixed = summarise([{**row, "taken_from": None} if row["method"].startswith("colmap") else row for row in rows])
    assert "time_ratio" not in mixed["toy"]  # of two runs
    assert "**80.0**" not in aggregate.by_set(taken) and "| 3, 3 |" in aggregate.by_set(taken)
    real.write_text('[{"set": "toy"}]')
    with pytest.raises(InputError, match="--json"):
        rows_of_real(real)


def test_unknown_experiments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no experiment nonsense"):
        make_results(tmp_path, tmp_path / "r.md", [], RunOptions(), only=("nonsense",), minutes=0)


def test_a_grid_that_is_not_whole_shows_what_is_there() -> None:
    row = {"scene": "room", "regime": "strict", "seed": 0, "r": 1.0, "rra@10": 100.0, "rta@10": 98.0}
    rows = [{**row, "sigma_px": 10}, {**row, "r": 0.5, "sigma_px": 50}]
    lines = noise.tables(rows).splitlines()
    assert "| r = 50 % | - / - | 98 / 100 |" in lines and "| r = 100 % | 98 / 100 | - / - |" in lines


def test_errors_of_a_lens_are_in_its_standard_deviations() -> None:
    true = make_scene("room", n_images=3, seed=0, fov_deg=70, model="OPENCV").camera(0)
    std = np.array([2.0, 2.0, 1.0, 0.0, 0.01, 0.01, 1e-3, 1e-3])
    found = replace(true, params=true.params + np.array([4, 4, -1, 0, 0, 0.02, 0, 0]), params_std=std)
    off = lenses.errors_in_sigmas(found, true)
    assert off == pytest.approx({"fx": 2, "cx": -1, "k1": 0, "k2": 2, "p1": 0, "p2": 0})
    assert lenses.ray_error_px(true, true) < 1e-9 < 0.1 < lenses.ray_error_px(found, true)
    row = {
        **{"scene": "room", "lens": "OPENCV", "fov": 70.0, "seed": 0, "images": 12, "registered": 12},
        **{"camera_model": "OPENCV", "parameters": 6, "within": 5, "worst": "k2", "worst_sigmas": 3.2, "ray_px": 0.05},
    }
    assert "| room, OPENCV 70 | 0 | OPENCV | 12 of 12 | - | - | - | 5 of 6 | k2 +3.2 | 0.05 | - |" in lenses.tables(
        [row]
    )
