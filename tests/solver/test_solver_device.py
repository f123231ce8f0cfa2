"""On a device, the loop asks it for nothing and brings it nothing but the minibatches of some iterations at once."""

import subprocess
import sys
from pathlib import Path


def test_an_iteration_stays_on_the_device():
    script = Path(__file__).with_name("device_loop.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("transfers: 2\n") == 3, done.stdout  # ten iterations, five at once
