"""What is done for one pair of photos: a look, or a match with its verification. It is the same on every worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.spatial import cKDTree

from proba.io.images import Photo
from proba.matches import PairMatches
from proba.matching.background import BackgroundOptions, in_place, without_background
from proba.matching.features import FeatureCache
from proba.matching.matcher import Features, Matcher, empty_matches
from proba.matching.pairs import Pair
from proba.matching.store import Record
from proba.matching.verify import PREVIEW, VerifyOptions, verify


@dataclass(frozen=True, kw_only=True, eq=False)
class PairWork:
    """A matcher with the photos that it works on."""

    photos: Sequence[Photo]
    matcher: Matcher
    cache: FeatureCache
    key: str
    """Name of the settings that records are kept under."""
    bounds: VerifyOptions
    previews: bool
    """Whether the most telling features are looked at first, to leave hopeless pairs alone."""
    background: Mapping[int, cKDTree]
    """Places, by photo, of a background that is left out."""
    standing: BackgroundOptions

    def record(self, pair: Pair) -> Record:
        """The verified matches of a pair."""
        one, other = (self.photos[k] for k in pair)
        features = self.features(pair[0]), self.features(pair[1])
        if self._looks_hopeless(features, one, other):
            return Record(one.digest, other.digest, self.key, "none", empty_matches())
        raw = self.matcher.match(*features)
        if self.background:
            moves = ~in_place(raw, one.info, other.info, self.standing)  # [M]
            raw = PairMatches(*(column[moves] for column in raw))
        result = verify(raw, one.info, other.info, self.bounds)
        return Record(one.digest, other.digest, self.key, result.kind, result.matches)

    def look(self, pair: Pair, count: int) -> int:
        """How many matches the `count` most telling features of a pair have."""
        return len(self.matcher.match(*(first_features(self.features(k), count) for k in pair)).scores)

    def features(self, k: int) -> Features:
        """Features of photo k, without those of a background that is left out."""
        photo = self.photos[k]
        return without_background(self.cache.get(photo), self.background.get(k), photo.info, self.standing)

    def _looks_hopeless(self, features: tuple[Features, Features], one: Photo, other: Photo) -> bool:
        """Whether the pair's most telling features agree on nothing, which is cheap to find out."""
        count = self.matcher.preview
        if not self.previews or min(len(x["points"]) for x in features) < 2 * count:
            return False
        few = (first_features(x, count) for x in features)
        return verify(self.matcher.match(*few), one.info, other.info, PREVIEW).kind == "none"


def first_features(features: Features, count: int) -> Features:
    """The `count` most telling ones, which come first."""
    return {name: values[:count] for name, values in features.items()}
