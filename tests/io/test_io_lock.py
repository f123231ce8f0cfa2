"""Two processes cannot write to one folder; a process that died holds nothing."""

import os
import signal
import subprocess
import sys

import pytest

from proba.errors import InputError
from proba.io.lock import LOCK_FILE, locked

HOLD = """
import sys, time
from proba.io.lock import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_the_second_process_is_told_who_holds_the_folder(holder, tmp_path):
    with pytest.raises(InputError, match=f"in use: process {holder.pid} on") as refusal, locked(tmp_path):
        pass
    assert "\n" not in str(refusal.value)


def test_a_killed_process_holds_nothing(holder, tmp_path):
    holder.send_signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    holder.wait()
    with locked(tmp_path):
        assert (tmp_path / LOCK_FILE).exists()
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_lock_whose_holder_cannot_be_read_still_holds(holder, tmp_path):
    (tmp_path / LOCK_FILE).write_text("")
    with pytest.raises(InputError, match="another process writes to it"), locked(tmp_path):
        pass
