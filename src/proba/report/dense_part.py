"""What `proba dense` adds to report.html: how much of each photo has depth, and why the rest has none."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from proba.io.atomic import atomic_write_text
from proba.report.sections import END, with_section

LITTLE_DEPTH = 0.2
"""Photos with a smaller share of pixels with depth are named."""
REASONS = {
    "bare": "mostly bare surfaces",
    "contradicted": "other photos contradict: moving or shiny things",
    "lost": "seen in too few photos, or different in each",
}
MEANS = {
    "bare": "bare: no pattern that could be found again (walls, sky, water, glass)",
    "contradicted": "contradicted: another photo looks through the place (things that moved, mirrors, edges)",
    "lost": "lost: seen in too few photos, or different in each",
}
BEGIN = '<section id="dense">'
EMPTY = BEGIN + END
MOST_NAMED = 30


def main_reason(missing: Mapping[str, float]) -> str:
    """In words, what most of the pixels without depth lack."""
    return REASONS[max(REASONS, key=lambda reason: missing[reason])]


def tell_of_dense(folder: Path, pieces: Sequence[Mapping]) -> None:
    """Put what dense.json says of the pieces into the report of a folder, if it has one."""
    page = folder / "report.html"
    if page.is_file():
        atomic_write_text(page, with_dense(page.read_text(encoding="utf-8", errors="replace"), pieces))


def with_dense(page: str, pieces: Sequence[Mapping]) -> str:
    """A page with what dense.json says of the pieces; without pieces the section is empty."""
    return with_section(page, BEGIN, _section(pieces))


def _section(pieces: Sequence[Mapping]) -> str:
    blocks = [_piece(piece, f", piece {k}" if len(pieces) > 1 else "") for k, piece in enumerate(pieces)]
    return f"{BEGIN}{''.join(blocks)}{END}"


def _piece(piece: Mapping, which: str) -> str:
    images = piece["images"]
    means = {key: _mean(images, key) for key in ("share_with_depth", *REASONS)}
    told = "".join(f"<li>{means[key]:.0%} {html.escape(text)}</li>" for key, text in MEANS.items())
    few = sorted(
        (one["share_with_depth"], name) for name, one in images.items() if one["share_with_depth"] < LITTLE_DEPTH
    )
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{share:.0%}</td><td>{main_reason(images[name])}</td></tr>"
        for share, name in few[:MOST_NAMED]
    )
    more = f"<p>And {len(few) - MOST_NAMED} more; dense.json has all.</p>" if len(few) > MOST_NAMED else ""
    table = (
        f"<p>Photos with little depth:</p><table><tr><th>photo</th><th>with depth</th><th>most of the rest is</th></tr>"
        f"{rows}</table>{more}"
    )
    return (
        f"<h2>Dense depth{which}</h2><p>{piece['points']:,} points. {means['share_with_depth']:.0%} of all pixels have "
        f"a depth. The others:</p><ul>{told}</ul>{table if few else ''}"
    )


def _mean(images: Mapping[str, Mapping[str, float]], key: str) -> float:
    return sum(one[key] for one in images.values()) / max(1, len(images))
