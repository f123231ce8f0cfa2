"""How options that several commands have are written."""

from __future__ import annotations

import tyro


def default_hint(default: str) -> str:
    """What the help says about a default: nothing where an option is just left out."""
    return "" if default in ("None", "False") else f"(default: {default})"


OUT = tyro.conf.arg(aliases=("-o",), help_behavior_hint=default_hint)
"""Where a command writes to: `--out PATH` or `-o PATH`."""
NO_PREFIX = tyro.conf.arg(name="")
"""The settings of several stages at once: `--seed`, `--solver.iterations`."""
