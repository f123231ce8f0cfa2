"""`proba view`: the saved page, the server, and what it says to bad input."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from failing import fails_in_one_line
from small_result import write_small_result

from proba.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_small_result(tmp_path_factory.mktemp("view") / "out")


def test_save_writes_one_file(folder, tmp_path, capsys):
    page = tmp_path / "page.html"
    main(["view", str(folder), "--gt", str(folder / "gt.json"), "--save", str(page)])
    assert str(page) in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert '"truth"' in text and "fov50" in text
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_save_works_without_history_and_photos(tmp_path, capsys):
    folder = write_small_result(tmp_path / "out", history=False)
    main(["view", str(folder), "--save", str(tmp_path / "page.html")])
    assert '"history": null' in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_server_prints_its_address_and_ends_on_ctrl_c(folder):
    # Who is started in the background of a script inherits that Ctrl-C is ignored.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from proba.cli import main; main()"
    command = [sys.executable, "-c", code, "view", str(folder), "--port", "18477"]
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", line)[0]
        with urllib.request.urlopen(url, timeout=120) as answer:
            assert b"<html" in answer.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0 and "Traceback" not in errors


def test_viewing_does_not_load_torch(folder, tmp_path):
    code = (
        "import sys; from proba.cli import main; "
        f"main(['view', {str(folder)!r}, '--save', {str(tmp_path / 'p.html')!r}]); print('torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split()[-1] == "False"


def test_bad_input_is_refused(folder, tmp_path, capsys):
    assert "no reconstruction" in fails_in_one_line(capsys, "view", str(tmp_path))
    assert "no folder" in fails_in_one_line(capsys, "view", str(folder), "--images", str(tmp_path / "nothing"))
    assert "no ground truth" in fails_in_one_line(capsys, "view", str(folder), "--gt", str(tmp_path / "nothing.json"))
    assert "65535" in fails_in_one_line(capsys, "view", str(folder), "--port", "70000")
