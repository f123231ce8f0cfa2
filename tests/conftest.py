"""Shared by all tests: one core for each worker, reproducible property tests, and the folder of real image sets."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Beside other workers each keeps to one core (`make test` starts a worker for each). The kernels may still be asked for
# more threads than that, so that what several threads do to the result is tested everywhere.
if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and hasattr(os, "sched_setaffinity"):
    cores = sorted(os.sched_getaffinity(0))
    os.environ.setdefault("NUMBA_NUM_THREADS", str(max(2, len(cores))))
    os.sched_setaffinity(0, {cores[int(worker.removeprefix("gw")) % len(cores)]})

# No deadline: the first call of a kernel compiles it. Derandomised: a failure in CI can be repeated.
settings.register_profile("proba", deadline=None, derandomize=True)
settings.load_profile("proba")


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of the real image sets; tests that need it are skipped where it is absent."""
    folder = os.environ.get("PROBA_DATA")
    if not folder:
        pytest.skip("set PROBA_DATA to the folder of the real image sets to run this test")
    if not Path(folder).is_dir():
        pytest.skip(f"PROBA_DATA={folder} is not a folder")
    return Path(folder)
