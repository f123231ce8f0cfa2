"""Commands that must fail: exit code 2 and a text for people."""

from __future__ import annotations

import pytest

from proba.cli import main


def fails(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """All that a failing command says."""
    with pytest.raises(SystemExit) as exit_info:
        main(list(argv))
    assert exit_info.value.code == 2
    text = capsys.readouterr().err.strip()
    assert text and "Traceback" not in text
    return text


def fails_in_one_line(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The only line that a failing command says."""
    text = fails(capsys, *argv)
    assert text.startswith("proba: ") and len(text.splitlines()) == 1
    return text


def fails_after_warnings(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The last line that a failing command says."""
    text = fails(capsys, *argv)
    assert text.startswith("proba: ")
    return text.splitlines()[-1]
