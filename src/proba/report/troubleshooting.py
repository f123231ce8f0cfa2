"""Where the troubleshooting page is on this machine."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = "troubleshooting.md"
HERE = Path(__file__).parent


def troubleshooting_path() -> Path | None:
    """The page that the warnings name: beside this module in an installed wheel, in `docs` of a source checkout."""
    candidates = (HERE / PAGE, HERE.parents[2] / "docs" / PAGE)
    return next((path for path in candidates if path.is_file()), None)


def sections() -> dict[str, str]:
    """The text of every section by its title; empty where the page is missing."""
    path = troubleshooting_path()
    parts = re.split(r"^#{2,3} (.+)$", path.read_text(encoding="utf-8") if path else "", flags=re.MULTILINE)
    return {title.strip(): text.strip() for title, text in zip(parts[1::2], parts[2::2], strict=True)}
