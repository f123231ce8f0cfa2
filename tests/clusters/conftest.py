"""Lets the tests of this folder import what they share, also with the tests of workers."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tasks")]
