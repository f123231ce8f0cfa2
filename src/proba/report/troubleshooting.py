"""Where the troubleshooting page is on this machine."""

from __future__ import annotations

from pathlib import Path

PAGE = "troubleshooting.md"
HERE = Path(__file__).parent


def troubleshooting_path() -> Path | None:
    """The page that the warnings name: beside this module in an installed wheel, in `docs` of a source checkout."""
    candidates = (HERE / PAGE, HERE.parents[2] / "docs" / PAGE)
    return next((path for path in candidates if path.is_file()), None)
