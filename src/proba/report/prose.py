"""The little Markdown of the troubleshooting page as HTML."""

from __future__ import annotations

import html
import re


def to_html(markdown: str) -> str:
    """Paragraphs and lists with code, emphasis and the words of links. Everything else is text."""
    blocks: list[tuple[str, str]] = []  # tag and text
    fresh = True
    for line in markdown.splitlines():
        if line.startswith("- "):
            blocks.append(("li", line[2:]))
        elif line.strip() and (fresh or not blocks):
            blocks.append(("p", line))
        elif line.strip():
            blocks[-1] = blocks[-1][0], f"{blocks[-1][1]} {line.strip()}"
        fresh = not line.strip()
    out = "".join(f"<{tag}>{_inline(text)}</{tag}>" for tag, text in blocks)
    return re.sub(r"(<li>.*?</li>)(?!<li>)", r"<ul>\1</ul>", out) if "<li>" in out else out


def _inline(text: str) -> str:
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", html.escape(text))
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"\*\*?([^*]+)\*\*?", r"<em>\1</em>", text)
