"""From photos to verified pairwise matches. `register` adds a matcher of your own."""

from proba.matching.builtin import register_builtin
from proba.matching.folder import MatchOptions, MatchSummary, check_match_options
from proba.matching.matcher import Features, Matcher, MatcherEntry, make_matcher, matchers, register
from proba.matching.pairs import PairFilter, PairOptions
from proba.matching.roles import match_folder
from proba.matching.verify import VerifyOptions

register_builtin()

__all__ = [
    "Features",
    "MatchOptions",
    "MatchSummary",
    "Matcher",
    "MatcherEntry",
    "PairFilter",
    "PairOptions",
    "VerifyOptions",
    "check_match_options",
    "make_matcher",
    "match_folder",
    "matchers",
    "register",
]
