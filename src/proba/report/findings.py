"""Warnings as people read them: everything that speaks against a photo stands in one entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proba.report.checks import LEVELS, Check, Level, name_list, plural, worst_level


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One warning: about a photo, about several with the same problems, or about the whole result."""

    level: Level
    fact: str
    """What is wrong, a sentence without a full stop."""
    reasons: tuple[str, ...]
    """The same without names, one for each check that failed."""
    advice: tuple[str, ...]
    """What to do, one for each check that failed."""
    topics: tuple[str, ...]
    """Sections of docs/troubleshooting.md, one for each check that failed."""
    images: tuple[str, ...] = ()
    """The photos it is about; empty: the whole result."""

    @property
    def text(self) -> str:
        """The warning in one line."""
        return ". ".join([self.fact, *dict.fromkeys(self.advice)])


def findings(checks: Sequence[Check]) -> list[Finding]:
    """The checks that did not pass, worst first. No photo is in two of them."""
    bad = [check for check in checks if check.level != "good"]
    groups: dict[tuple[int, ...], list[str]] = {}  # photos by the checks they failed
    for name in dict.fromkeys(name for check in bad for name in check.images):
        groups.setdefault(tuple(k for k, check in enumerate(bad) if name in check.images), []).append(name)
    for k, check in enumerate(bad):
        if not check.images:
            groups[(k,)] = []
    ordered = sorted(groups.items(), key=lambda item: item[0])
    found = [_finding([bad[k] for k in which], names) for which, names in ordered]
    return sorted(found, key=lambda finding: -LEVELS.index(finding.level))


def _finding(checks: list[Check], names: list[str]) -> Finding:
    alone = len(checks) == 1 and set(names) == set(checks[0].images)
    reasons = tuple(check.reason or check.fact for check in checks)
    return Finding(
        level=worst_level(checks),
        fact=checks[0].fact if alone else f"{name_list(names)}: {'; '.join(reasons)}",
        reasons=reasons,
        advice=tuple(check.advice for check in checks),
        topics=tuple(check.topic for check in checks),
        images=tuple(names),
    )


def verdict(checks: Sequence[Check], registered: int, images: int) -> str:
    """A sentence for people, made of the checks alone."""
    level = worst_level(checks)
    if level == "good":
        return f"Looks right: {registered} of {images} images are posed and all {len(checks)} checks pass."
    more = len(findings(checks)) - 1
    rest = f" ({more} more {plural('warning', more)} below)" if more else ""
    begin = {"check": "Check before use: ", "distrust": "Do not trust this result: "}[level]
    return f"{begin}{next(check.fact for check in checks if check.level == level)}{rest}."
