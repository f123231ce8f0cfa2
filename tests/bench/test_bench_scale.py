"""`proba bench scale`: rows, exponents, and what a file already holds."""

import json

import pytest

from proba.bench import scale
from proba.bench.scale import exponents, judged, make_set, run_set


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
