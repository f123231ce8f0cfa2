"""What a matcher is, and the list of those that are known by name. Others can be added with `register`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from proba.errors import InputError
from proba.io.images import Pixels
from proba.matches import PairMatches
from proba.matching.verify import VerifyOptions

Features = Mapping[str, np.ndarray]
"""What a matcher knows of one image: arrays by name. `descriptors` [K, D], if there, also serve to shortlist pairs."""


class Extractor(Protocol):
    """Knows something of one image."""

    max_side_px: int
    """Photos are reduced to this longest side before `extract`."""
    keep_features: bool
    """Whether features are small enough to be kept on disk; otherwise they are made again when needed."""

    preview: int
    """Number of most telling features, which come first, that must agree before a pair is matched in full; 0: every
    pair is matched in full."""
    bounds: VerifyOptions
    """When its pairs count as verified, unless the user says otherwise."""

    def settings(self) -> dict[str, Any]:
        """All that the result depends on besides the photos, as plain JSON: matches made with others are stale."""

    def extract(self, pixels: Pixels) -> Features:
        """Features of one photo. Points are in original pixels, the centre of the first at (0.5, 0.5)."""


class Matcher(Extractor, Protocol):
    """Finds corresponding points. `match` and `extract` may run in several threads at once."""

    def match(self, one: Features, other: Features) -> PairMatches:
        """Matches of two photos, not verified, in original pixels."""


@dataclass(frozen=True, kw_only=True)
class MatcherEntry:
    """A line of the list of matchers."""

    summary: str
    make: Callable[[Path | None], Matcher]
    """Builds the matcher; the argument is the user's own weights file."""
    missing: Callable[[], str]
    """What has to be installed first, as text that says how; empty if nothing."""
    only_weights: bool = False
    """Whether only weights are missing then, so that a file of the user's own does as well."""


_entries: dict[str, MatcherEntry] = {}


def register(name: str, entry: MatcherEntry) -> None:
    """Make a matcher known by name, for `make_matcher` and `proba match --matcher NAME`."""
    _entries[name] = entry


def matchers() -> dict[str, MatcherEntry]:
    """All matchers that are known."""
    return dict(_entries)


def check_matcher(name: str, weights: Path | None = None) -> None:
    """Refuse a matcher that is not known or not installed, and weights that are not there."""
    if name not in _entries:
        raise InputError(f"There is no matcher {name!r}. Known: {', '.join(_entries)}. See `proba match --list`.")
    if weights is not None and not weights.exists():
        raise InputError(f"There is no weights file {weights}. Check the path.")
    missing = _entries[name].missing()
    if missing and not (_entries[name].only_weights and weights is not None):
        raise InputError(f"The matcher {name} is not installed: {missing}.")


def make_matcher(name: str, weights: Path | None = None) -> Matcher:
    """Build a matcher by its name."""
    check_matcher(name, weights)
    return _entries[name].make(weights)


def empty_matches() -> PairMatches:
    """No match at all."""
    return PairMatches(np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32), np.zeros(0, np.float32))
