"""Shared by all tests: reproducible property tests, and the folder of real image sets."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

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
