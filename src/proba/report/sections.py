"""Parts of report.html that are written anew later than the page."""

from __future__ import annotations

END = "</section>"


def with_section(page: str, begin: str, section: str) -> str:
    """A page with another text for the section that starts with the tag `begin`; as it is where there is none."""
    before, found, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    return before + section + after if found and end else page
