"""`proba doctor`: a wrong kernel is called wrong, and nothing that fails ends the examination."""

from dataclasses import replace
from pathlib import Path

import pytest

import proba
from proba.bench import doctor
from proba.cli import main
from proba.kernels import evaluator


def test_the_compiled_kernel_is_right_and_a_broken_one_is_noticed():
    kernel = evaluator("cpu")
    assert doctor.difference(kernel) < doctor.TOLERANCE / 100

    def broken(problem):
        result = kernel(problem)
        return replace(result, grad_pose=result.grad_pose * 1.01)

    assert doctor.difference(broken) > doctor.TOLERANCE


def test_the_report_is_a_block_and_names_nothing_private(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "LOOP_ITERATIONS", 10)
    monkeypatch.setattr(doctor, "LEAST_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)
    main(["doctor", "--threads", "1"])
    text = capsys.readouterr().out
    assert text.startswith("```\n") and text.rstrip().endswith("```")
    assert "kernel: right" in text and "iterations a second" in text and "sift: ready" in text
    assert not [place for place in (tmp_path, Path.home(), Path(proba.__file__).parents[2]) if f"{place}/" in text]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_that_fails_says_so_in_one_line(monkeypatch, device):
    def fails(_):
        raise RuntimeError("driver\nis broken")

    monkeypatch.setattr(doctor, "evaluator", lambda _: fails)
    state = doctor._device(device)["state"]
    assert state == "fails: RuntimeError: driver"
