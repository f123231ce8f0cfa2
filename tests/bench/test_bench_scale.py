"""`proba bench scale`: rows, exponents, and what a file already holds."""

import json

import pytest

from proba.bench import scale
from proba.bench.scale import exponents, judged, make_set, run_set
from proba.bench.sharing_out import compare_workers
from proba.graph import ClusterOptions
from proba.solve_options import SolveOptions
from proba.solver import SolverOptions


def row(images: int, seconds: float, mb: float) -> dict:
    times = {"wall_s": 2 * seconds, "processor_s": seconds, "refine_processor_s": seconds / 2}
    memory = {"program_mb": 500, "peak_mb": 500 + mb}
    scores = {"rra@5": 100.0, "rta@5": 99.0, "auc@5": 90.0}
    return {"images": images, "seed": 0, "threads": 1, "edges": 4 * images} | times | memory | scores


def test_exponents_are_powers_of_the_edges():
    rows = [row(n, 1e-3 * n**1.5, 2.0 * n) for n in (100, 300, 1000)]
    assert exponents(rows) == {"time_exponent": 1.5, "wall_exponent": 1.5, "memory_exponent": 1.0}
    assert exponents(rows[:1]) == {"time_exponent": None, "wall_exponent": None, "memory_exponent": None}


def test_rows_of_the_file_are_kept_and_so_is_what_others_wrote(tmp_path, monkeypatch, capsys):
    file, made = tmp_path / "scale.json", []
    file.write_text(json.dumps({"ranks_agree": True, "rows": [row(100, 1, 10)]}))

    def measured(n_images: int, **_) -> dict:
        made.append(n_images)
        return row(n_images, 0.01 * n_images, 0.1 * n_images)

    monkeypatch.setattr(scale, "measure", measured)
    scale.main(file, sizes=(100, 300), threads=1, seed=0)
    table = json.loads(file.read_text())
    assert made == [300] and [each["images"] for each in table["rows"]] == [100, 300]
    assert table["ranks_agree"] is True and table["speedup_2"] is None
    assert table["time_exponent"] == pytest.approx(1.0, abs=0.01)
    assert "memory 1.0" in capsys.readouterr().out


@pytest.mark.slow
def test_a_small_city_has_a_row(tmp_path):
    make_set(tmp_path, 24, 0)
    facts = run_set(tmp_path, 1, 0) | judged(tmp_path)
    assert facts["edges"] >= 24 and facts["peak_mb"] >= facts["program_mb"] > 100
    assert facts["processor_s"] > facts["refine_processor_s"] > 0
    assert facts["images"] == facts["registered"] == 24 and facts["rra@5"] > 90


@pytest.mark.slow
def test_two_workers_agree_with_one():
    options = SolveOptions(
        clusters=ClusterOptions(count=2), solver=SolverOptions(iterations=200, hypotheses="cold"), longer=1
    )
    found = compare_workers(32, threads=1, seed=0, options=options)
    assert found["ranks_agree"] is True and found["speedup_2"] > 0


def test_workers_are_compared_once(tmp_path, monkeypatch, capsys):
    file = tmp_path / "scale.json"
    answers = iter([{"ranks_agree": True, "speedup_2": 1.7}])
    monkeypatch.setattr(scale, "_elsewhere", lambda call: next(answers))
    monkeypatch.setattr(scale, "measure", lambda n, **_: row(n, 0.01 * n, 0.1 * n))
    for _ in range(2):
        table = scale.main(file, sizes=(100, 300), threads=1, seed=0, workers_images=32)
    assert (table["ranks_agree"], table["speedup_2"]) == (True, 1.7)
    assert json.loads(file.read_text())["speedup_2"] == 1.7
    assert "the same bits as one, 1.7 times as fast" in capsys.readouterr().out
