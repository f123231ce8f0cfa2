"""The gate: a loss is found, scatter and other machines are none."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from proba.bench.baseline_gate import compare, findings_table, load_baseline, save_baseline, summarise
from proba.cli import main
from proba.errors import InputError


def rows(auc: tuple[float, float] = (90.0, 94.0), posed: int = 8, ours_s: float = 5.0) -> list[dict]:
    numbers = {"set": "a", "registered": posed, "total_s": ours_s, "images": 8}
    own = [
        {**numbers, "method": "proba default", "seed": seed, "auc@1": value, "auc@5": 99.0}
        for seed, value in enumerate(auc)
    ]
    return [*own, {**numbers, "method": "colmap incremental", "seed": 0, "auc@1": 50.0, "auc@5": 60.0, "total_s": 10.0}]


def verdicts(now: list[dict]) -> dict[str, str]:
    return {f.what: f.verdict for f in compare(summarise(rows()), summarise(now))}


def test_the_same_numbers_are_kept() -> None:
    assert set(verdicts(rows()).values()) == {"kept"}
    assert "4 of 4 numbers are kept" in findings_table(compare(summarise(rows()), summarise(rows())))


def test_losses_beyond_the_scatter_are_found() -> None:
    assert verdicts(rows(auc=(88.5, 88.5)))["auc@1"] == "kept"  # the seeds scatter by 2, the limit is 92 - 4
    assert verdicts(rows(auc=(87.5, 87.5)))["auc@1"] == "lost"
    assert verdicts(rows(posed=7))["posed"] == "lost"
    assert verdicts(rows(auc=(97, 97)))["auc@1"] == "gained"


def test_times_are_compared_with_colmap_in_the_same_run() -> None:
    assert verdicts(rows(ours_s=6.0))["time / COLMAP"] == "kept"
    assert verdicts(rows(ours_s=7.0))["time / COLMAP"] == "lost"
    slower_machine = [{**row, "total_s": 3 * row["total_s"]} for row in rows()]
    assert verdicts(slower_machine)["time / COLMAP"] == "kept"
    table = findings_table(compare(summarise(rows()), summarise(rows(ours_s=7.0))))
    assert "| a | time / COLMAP | 0.50 | 0.65 | 0.70 | lost |" in table


def test_a_failed_run_is_a_loss_and_a_set_that_is_not_there_is_none() -> None:
    failed = deepcopy(rows())
    failed[0] = {"set": "a", "method": "proba default", "seed": 0, "error": "crashed"}
    assert verdicts(failed)["auc@1"] == "lost" and verdicts(failed)["posed"] == "lost"
    assert {f.verdict for f in compare(summarise(rows()), {})} == {"missing"}


def test_baselines_of_both_kinds_live_in_one_file(tmp_path: Path) -> None:
    file = tmp_path / "baseline.json"
    save_baseline(file, "quick", summarise(rows()), 2)
    save_baseline(file, "full", summarise(rows(posed=5)), 2)
    assert load_baseline(file, "quick")["a"]["posed"] == 8 and load_baseline(file, "full")["a"]["posed"] == 5
    with pytest.raises(InputError, match="--update"):
        load_baseline(tmp_path / "none.json", "quick")


def test_the_command_fails_on_a_loss(tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("proba.bench.baseline_gate.run_gate", lambda *_, **__: rows(auc=(10, 10)))
    file = tmp_path / "baseline.json"
    save_baseline(file, "quick", summarise(rows()), 2)
    arguments = ["bench", "gate", "--baseline", str(file), "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 1 and "| a | auc@1 | 92.00 | 88.00 | 10.00 | lost |" in capsys.readouterr().out
    main([*arguments, "--update"])
    assert json.loads(file.read_text())["quick"]["sets"]["a"]["auc@1"]["mean"] == 10
    main(arguments)  # nothing is lost against itself
