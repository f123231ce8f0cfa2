"""How options that several commands have are written."""

from __future__ import annotations

import tyro

OUT = tyro.conf.arg(aliases=("-o",))
"""Where a command writes to: `--out PATH` or `-o PATH`."""
NO_PREFIX = tyro.conf.arg(name="")
"""The settings of several stages at once: `--seed`, `--solver.iterations`."""
