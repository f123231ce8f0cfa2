"""`proba doctor`: a wrong kernel is called wrong, and nothing that fails ends the examination."""

from dataclasses import replace
from pathlib import Path

import pytest

import proba
from proba import kernels
from proba.bench import doctor
from proba.cli import main
from proba.kernels import machine
from proba.kernels.machine import Processor


def test_the_compiled_kernel_is_right_and_a_broken_one_is_noticed():
    works = machine("cpu")
    assert doctor.difference(works) < doctor.TOLERANCE / 100
    whole = works.evaluate

    def broken(problem):
        result = whole(problem)
        return replace(result, grad_pose=result.grad_pose * 1.01)

    works.evaluate = broken
    assert doctor.difference(works) > doctor.TOLERANCE


def test_a_loop_that_goes_elsewhere_is_noticed(monkeypatch):
    class Slow(Processor):
        def direction(self, grad, *arguments, **settings):
            super().direction(grad, *arguments, **settings)
            grad *= 0.99

    assert doctor.loop_difference("cpu") == 0
    monkeypatch.setattr(kernels, "machine", lambda device: Processor() if device == "cpu" else Slow())
    assert doctor.loop_difference("cuda") > doctor.TOLERANCE


def test_the_report_is_a_block_and_names_nothing_private(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "LOOP_ITERATIONS", 10)
    monkeypatch.setattr(doctor, "LOOP_IMAGES", (6,))
    monkeypatch.setattr(doctor, "LEAST_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)
    main(["doctor", "--threads", "1"])
    text = capsys.readouterr().out
    assert text.startswith("```\n") and text.rstrip().endswith("```")
    assert "kernel: right" in text and "iterations a second" in text and "sift: ready" in text
    assert not [place for place in (tmp_path, Path.home(), Path(proba.__file__).parents[2]) if f"{place}/" in text]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_that_fails_says_so_in_one_line(monkeypatch, device):
    class Broken(Processor):
        def evaluate(self, at, options=None):
            raise RuntimeError("driver\nis broken")

    monkeypatch.setattr(doctor, "machine", lambda _: Broken())
    state = doctor._device(device)["state"]
    assert state == "fails: RuntimeError: driver"
