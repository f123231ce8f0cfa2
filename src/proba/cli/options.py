"""How options that several commands have are written."""

from __future__ import annotations

import tyro


def default_hint(default: str) -> str:
    """What the help says about a default: nothing where an option is just left out."""
    if default in ("None", "False", ""):
        return ""
    return "(default: on)" if default == "True" else f"(default: {default})"  # beside a flag that switches it off


OUT = tyro.conf.arg(aliases=("-o",), help_behavior_hint=default_hint)
"""Where a command writes to: `--out PATH` or `-o PATH`."""
NO_PREFIX = tyro.conf.arg(name="")
"""The settings of several stages at once: `--seed`, `--solver.iterations`."""
RESULT = tyro.conf.arg(metavar="RESULT")
"""A folder that `proba run` wrote."""
PHOTOS = tyro.conf.arg(metavar="PHOTOS")
"""A folder of photos."""
