"""What several commands call the same."""

from __future__ import annotations

import tyro

OUT = tyro.conf.arg(aliases=("-o",))
"""Where a command writes to: `--out PATH` or `-o PATH`."""
