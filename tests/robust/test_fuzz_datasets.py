"""Scenes of public datasets, labels of mixed folders and rows of experiments that are damaged."""

import csv
import io
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzzing import counts, fuzz
from mutations import HOSTILE_NAMES, damaged_bytes, damaged_json

sys.path.insert(0, str(Path(__file__).parent.parent / "io"))
from exact_reconstruction import exact_reconstruction
from test_datasets import WRITERS

from proba.bench import baseline_gate, synthetic
from proba.bench.experiment import RunOptions
from proba.bench.experiments import EXPERIMENTS, load_experiment
from proba.bench.photo_sets import find_sets
from proba.bench.runner import load_rows as rows_of
from proba.bench.runner import run_list, write_page
from proba.evaluation.collection_score import score_collection
from proba.io.ground_truth import load_ground_truth, true_points
from proba.io.scene_labels import load_scenes
from proba.synthetic import make_scene

NUMBERS = ["nan", "inf", "-1", "0", "1e400", "9" * 40, "", "text", "\0", "../../x.png", "\xff"]


@pytest.fixture(scope="module")
def truth():
    return make_scene("object", n_images=3, seed=0, width=32, height=24).ground_truth(cloud=False)


def damaged_words(content: bytes, rng: np.random.Generator) -> bytes:
    """A text of numbers of which some are something else."""
    words = content.split(b" ")
    for _ in range(rng.integers(1, 4)):
        words[rng.integers(len(words))] = NUMBERS[rng.integers(len(NUMBERS))].encode("latin-1")
    return b" ".join(words)


@counts
@pytest.mark.parametrize("name", WRITERS)
def test_scenes(tmp_path, truth, name, count):
    """A file of the scene is damaged or gone; photos too."""
    root = tmp_path / "whole"
    scene = WRITERS[name](root, truth).relative_to(root)
    files = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    told = [path for path in files if path.suffix.lower() not in (".png", ".jpg")]  # of them the reader makes most

    def damaged_scene(rng):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy)
        some = told if rng.random() < 0.8 else files
        chosen = copy / some[rng.integers(len(some))]
        content = chosen.read_bytes()
        kind = rng.random()
        if kind < 0.1:
            chosen.unlink()
        elif kind < 0.5:
            chosen.write_bytes(damaged_words(content, rng))
        else:
            chosen.write_bytes(damaged_bytes(content, rng))
        true_points(load_ground_truth(copy / scene))
        for photos in find_sets(copy):
            photos.images(tmp_path / "cache")

    fuzz(count // 4, damaged_scene)


@counts
def test_labels(tmp_path, exact, count):
    """The two tables of a mixed folder."""
    numbers = lambda values: ";".join(f"{value:.6f}" for value in np.ravel(values))
    rec = exact
    rows = [["dataset", "scene", "image", "R", "t"]]
    for name, pose in zip(rec.image_names, rec.cam_from_world, strict=True):
        rows.append(["toy", "one", name, numbers(pose[:3, :3]), numbers(pose[:3, 3])])
    rows.append(["toy", "outliers", "other.png", "nan;" * 8 + "nan", "nan;nan;nan"])
    tables = {"labels.csv": rows, "thresholds.csv": [["dataset", "scene", "thresholds"], ["toy", "one", "0.1;0.2;0.5"]]}

    def damaged_labels(rng):
        for name, table in tables.items():
            table = [list(row) for row in table]
            if rng.random() < 0.6:
                row = table[rng.integers(len(table))]
                column = rng.integers(len(row))
                words = row[column].split(";")
                words[rng.integers(len(words))] = [*NUMBERS, *HOSTILE_NAMES][rng.integers(len(NUMBERS + HOSTILE_NAMES))]
                row[column] = ";".join(words)
            text = io.StringIO()
            csv.writer(text).writerows(table)
            content = text.getvalue().encode("utf-8", "surrogateescape")
            (tmp_path / name).write_bytes(damaged_bytes(content, rng) if rng.random() < 0.3 else content)
        score_collection([rec], load_scenes(tmp_path))

    fuzz(count, damaged_labels)


@pytest.fixture(scope="module")
def exact():
    return exact_reconstruction("object", 5)[1]


@counts
def test_rows_of_experiments(tmp_path, count):
    """Rows as the experiments' own plans name them, with results of all kinds."""
    results = {
        key: 99.0 for kind in ("rra", "rta", "auc", "acc", "comp", "sigma") for key in (f"{kind}@1", f"{kind}@5")
    }
    results |= {"registered": 5, "images": 5, "edges": 8, "total_s": 2.0, "seconds": {"match": 1.0, "solve": 1.0}}
    results |= {"focal_error_pct": 0.5, "points": 100, "share": 50.0, "wall_s": 2.0, "peak_rss_mb": 300.0}
    results |= {"smooth_acc": 50.0, "smooth_comp": 50.0, "acc": 50.0, "comp": 50.0, "marks": [], "curves": {}}
    every = [load_experiment(name) for name in EXPERIMENTS]
    planned = [(experiment, experiment.plan(RunOptions(quick=True))[:3]) for experiment in every]
    planned = [(experiment, plan) for experiment, plan in planned if plan]  # the others need photos

    def damaged_rows(rng):
        experiment, plan = planned[rng.integers(len(planned))]
        rows = [{**row.settings, **results} for row in plan]
        rows[-1] = {**plan[-1].settings, "error": "not computed", "wall_s": 1.0}
        file = tmp_path / f"{experiment.name}.json"
        file.write_text(damaged_json({"experiment": experiment.name, "rows": rows}, rng))
        write_page(experiment, rows_of(file), tmp_path)

    fuzz(count // 5, damaged_rows)


@counts
def test_plain_lists_of_rows(tmp_path, count):
    """Those of `proba bench synthetic` and of the gate, and the gate's baseline."""
    run = {"scene": "object", "seed": 0, "outliers": 0.1, "fov_deg": 50.0, "images": 3, "registered": 3}
    run |= dict.fromkeys(("rra@1", "rra@5", "rta@1", "rta@5", "auc@1", "focal_error_pct", "focal_std_pct"), 99.0)
    run |= {"seconds": 1.0}
    area = {"mean": 90.0, "scatter": 1.0}
    sets = {"toy": {"posed": 3, "seeds": 2, **dict.fromkeys(baseline_gate.AREAS, area), "time_ratio": 0.5}}
    now = baseline_gate.summarise(
        [{"set": "toy", "method": baseline_gate.PROBA, "registered": 3, **dict.fromkeys(baseline_gate.AREAS, 90.0)}]
    )

    def damaged_list(rng):
        file = tmp_path / "list.json"
        kind = rng.integers(3)
        if kind == 0:
            file.write_text(damaged_json([run], rng))
            synthetic.main(file, scenes=(), seeds=(), outliers=())
        elif kind == 1:
            file.write_text(damaged_json([run], rng))
            run_list([], file, line=str, markdown=str)
        else:
            file.write_text(damaged_json({"quick": {"machine": {}, "sets": sets}}, rng))
            baseline_gate.compare(baseline_gate.load_baseline(file, "quick"), now)

    fuzz(count, damaged_list)
