"""Which pairs of photos are worth matching: all of a small set, likely ones of a large set, near ones of a video."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from proba.errors import InputError
from proba.graph.topology import strongest_of_rows
from proba.matches import ImageInfo

Pair = tuple[int, int]
PairFilter = Callable[[Sequence[ImageInfo], list[Pair]], list[Pair]]
"""Given all images and the pairs (i, j) about to be matched, the pairs to match; it may drop and add."""


class Candidates(NamedTuple):
    """Pairs of photos that may show the same."""

    pairs: np.ndarray  # [P, 2] int64, i < j
    alike: np.ndarray  # [P], how much the two look alike


PairMode = Literal["auto", "exhaustive", "shortlist", "sequential"]
COMMON = 0.8
"""Part of the mean of all signatures that is taken off each: where all photos show one scene, it is also what they
share."""
VOCABULARY_SEED = 0
"""The vocabulary is drawn the same way in every run, so that a resumed run finds the same pairs."""
ROWS_AT_A_TIME = 1024
"""Photos whose signatures are compared with all others at a time: 40 MB for 10,000 photos."""


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """How pairs are chosen."""

    mode: PairMode = "auto"
    """auto: all pairs of a small set, a shortlist of a large one, and near frames of a video. exhaustive: all pairs.
    shortlist: pairs that look alike. sequential: photos that are near in the order of their names."""
    file: Path | None = None
    """Text file with the pairs to match, instead of a mode: two image names on each line."""
    listed: tuple[tuple[str, str], ...] | None = None
    """Names of the photos of every pair to match, instead of a mode or a file."""
    exhaustive_below: int = 40
    """auto: sets with fewer photos are matched exhaustively."""
    candidates: int = 5
    """shortlist: each photo is matched with at least this many of those that look most like it ..."""
    pairs_per_photo: float = 11
    """... and then the pairs that look most alike of all follow, up to this many for each photo."""
    proposals: int = 80
    """shortlist: candidates of each photo, found by signature, that get a quick look to rank them."""
    look: int = 500
    """shortlist: features of an image that the quick look matches."""
    signature_weight: float = 100
    """shortlist: matches of the quick look that a signature's cosine of one is worth."""
    window: int = 10
    """sequential: each photo is matched with this many that follow, and with those 2, 4, 8 ... windows away ..."""
    loops: int = 4
    """... and with this many others that look most like it, so that a path that comes back to a place closes its loop;
    sets of fewer than `exhaustive_below` are short enough without."""
    one_place: tuple[str, ...] = ()
    """Beginnings of names: photos whose names are equal but for these were taken at one moment from one place, and are
    not matched with each other."""
    words: int = 64
    """shortlist: size of the visual vocabulary, made from the set's own features."""

    def __post_init__(self) -> None:
        if self.file is not None and self.listed is not None:
            raise ValueError("give the pairs to match as a file or as a list, not both")


def listed_pairs(options: PairOptions) -> tuple[tuple[str, str], ...] | None:
    """The pairs that the user names, if there are such."""
    return options.listed if options.file is None else read_pairs_file(Path(options.file))


def chooses_by_looks(n_photos: int, options: PairOptions) -> bool:
    """Whether `choose_pairs` needs signatures."""
    return options.mode == "shortlist" or (options.mode == "auto" and n_photos >= options.exhaustive_below)


def looks_for_loops(n_photos: int, options: PairOptions) -> bool:
    """Whether a sequence is so long that a photo may come back to a place beyond its window."""
    return (
        options.mode == "sequential"
        and options.loops > 0
        and n_photos >= max(options.exhaustive_below, 3 * options.window)
    )


def choose_pairs(n_photos: int, options: PairOptions) -> list[Pair]:
    """Pairs (i, j) with i < j that need no look at the photos."""
    if options.mode == "sequential":
        return _sequential(n_photos, options.window)
    return list(itertools.combinations(range(n_photos), 2))


def _sequential(n_photos: int, window: int) -> list[Pair]:
    near = set(range(1, window + 1))
    far = {window * 2**k for k in range(1, 32) if window * 2**k < n_photos}
    return [(i, i + step) for i in range(n_photos) for step in sorted(near | far) if i + step < n_photos]


def most_alike(signatures: np.ndarray, of_each: int, of_all: int = 0, *, apart: int = 0) -> Candidates:
    """The pairs of each photo and the `of_each` others whose signature [N, C] is most similar to its own, and the
    `of_all` most similar pairs of all; none of photos that are at most `apart` places from each other. Never are all
    N x N products in memory."""
    n = len(signatures)
    count = min(of_each, n - 1)
    best = _no_candidates()
    near = []
    for first in range(0, n, ROWS_AT_A_TIME):
        alike = signatures[first : first + ROWS_AT_A_TIME] @ signatures.T  # [R, N]
        row = np.arange(first, first + len(alike))  # [R]
        alike[np.abs(np.arange(n) - row[:, None]) <= apart] = -np.inf
        column = np.argsort(-alike, axis=1, kind="stable")[:, :count]  # [R, count]
        value = np.take_along_axis(alike, column, axis=1).reshape(-1)
        near.append(Candidates(np.stack([np.repeat(row, count), column.reshape(-1)], axis=1), value))
        if of_all:
            later = np.arange(n) > row[:, None]  # [R, N], i < j
            pairs = np.argwhere(later) + np.array([first, 0])
            best = _strongest(_joined([best, Candidates(pairs, alike[later])]), of_all)
    return _once(_possible(_joined([*near, best])))


def likely_pairs(found: Candidates, n_photos: int, options: PairOptions) -> list[Pair]:
    """The pairs that look most alike, some for every photo; the pairs of `found` are in order."""
    ends = np.concatenate([found.pairs, found.pairs[:, ::-1]])  # [2 P, 2]
    alike = np.concatenate([found.alike, found.alike])  # [2 P]
    near = strongest_of_rows(ends[:, 0], ends[:, 1], alike, options.candidates)
    chosen = {(min(pair), max(pair)) for pair in ends[near].tolist()}
    total = round(options.pairs_per_photo * n_photos)
    for i, j in found.pairs[np.argsort(-found.alike, kind="stable")].tolist():
        if len(chosen) >= total:
            break
        chosen.add((i, j))
    return sorted(chosen)


def places_of(names: Sequence[str], options: PairOptions) -> np.ndarray:  # [N] int
    """A number for each photo, equal for those of one moment and place."""
    prefixes = [next((prefix for prefix in options.one_place if name.startswith(prefix)), None) for name in names]
    labels = [name if p is None else f"/{name[len(p) :]}" for name, p in zip(names, prefixes, strict=True)]
    return np.unique(labels, return_inverse=True)[1].reshape(-1)


def from_other_places(found: Candidates, place: np.ndarray) -> Candidates:
    """The pairs of photos that were not taken at one place [N]."""
    kept = place[found.pairs[:, 0]] != place[found.pairs[:, 1]]
    return Candidates(found.pairs[kept], found.alike[kept])


def _possible(found: Candidates) -> Candidates:
    """Without the pairs that were ruled out."""
    possible = np.isfinite(found.alike)
    return Candidates(found.pairs[possible], found.alike[possible])


def _no_candidates() -> Candidates:
    return Candidates(np.zeros((0, 2), np.int64), np.zeros(0, np.float32))


def _joined(parts: list[Candidates]) -> Candidates:
    return Candidates(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _strongest(found: Candidates, count: int) -> Candidates:
    """The most similar ones, in the order in which they were; of equal ones the first."""
    kept = np.sort(np.argsort(-found.alike, kind="stable")[:count])
    return Candidates(found.pairs[kept], found.alike[kept])


def _once(found: Candidates) -> Candidates:
    """Each pair once, i < j, in order. Products of (i, j) and (j, i) may differ in the last bit: the first counts."""
    pairs, first = np.unique(np.sort(found.pairs, axis=1), axis=0, return_index=True)
    return Candidates(pairs, found.alike[first])


def read_pairs_file(path: Path) -> tuple[tuple[str, str], ...]:
    """Lines of two image names, as hloc and COLMAP write them; empty lines and those with # are skipped."""
    if not path.is_file():
        raise InputError(f"There is no pairs file {path}. Check the path.")
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file of image pairs. Give one with two names on each line.") from error
    for number, names in enumerate(lines, 1):
        if len(names) not in (0, 2):
            raise InputError(f"{path}, pair {number}: two image names are needed, found {' '.join(names)[:80]!r}.")
    return tuple((names[0], names[1]) for names in lines if names)


def pairs_by_name(listed: Sequence[tuple[str, str]], names: Sequence[str]) -> list[Pair]:
    """Indices of listed pairs, each once."""
    index = {name: k for k, name in enumerate(names)}
    unknown = sorted({name for pair in listed for name in pair} - index.keys())
    if unknown:
        raise InputError(
            f"{len(unknown)} names in the list of pairs are no images of the folder, e.g. {unknown[0]}. "
            "Names are paths relative to the image folder."
        )
    found = {(index[one], index[other]) for one, other in listed}
    return sorted({(min(pair), max(pair)) for pair in found if pair[0] != pair[1]})


def vocabulary(
    samples: np.ndarray, words: int, *, seed: int = VOCABULARY_SEED, rounds: int = 12
) -> np.ndarray:  # [words, D]
    """Cluster centres of unit descriptors [K, D] (spherical k-means)."""
    random = np.random.default_rng(VOCABULARY_SEED)
    words = min(words, len(samples))
    centres = samples[random.choice(len(samples), words, replace=False)].copy()  # [words, D]
    for _ in range(rounds):
        word = (samples @ centres.T).argmax(axis=1)  # [K]
        total = np.zeros_like(centres)
        np.add.at(total, word, samples)
        empty = np.bincount(word, minlength=words) == 0
        total[empty] = samples[random.choice(len(samples), int(empty.sum()))]
        centres = _unit(total)
    return centres


def signature(descriptors: np.ndarray, centres: np.ndarray) -> np.ndarray:  # [words * D] float32
    """What an image looks like: per word the mean direction of its descriptors around the centre (VLAD)."""
    word = (descriptors @ centres.T).argmax(axis=1)  # [K]
    residual = np.zeros_like(centres)
    np.add.at(residual, word, descriptors - centres[word])
    # Each word counts the same, otherwise a few bursts of repeated texture decide.
    return _unit(_unit(residual).reshape(1, -1))[0].astype(np.float32)


def without_common(signatures: np.ndarray) -> np.ndarray:  # [N, C]
    """Signatures [N, C] without most of what all photos of the folder have in common, which hides what only some share.
    Changed in place: they may be large."""
    signatures -= COMMON * signatures.mean(axis=0)
    signatures /= np.sqrt(np.einsum("nc,nc->n", signatures, signatures))[:, None] + 1e-9
    return signatures


def unit_sample(descriptors: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:  # [<= count, D]
    """Some of an image's descriptors, as unit vectors."""
    if len(descriptors) > count:
        descriptors = descriptors[random.choice(len(descriptors), count, replace=False)]
    return _unit(descriptors.astype(np.float32))


def _unit(values: np.ndarray) -> np.ndarray:
    return values / (np.linalg.norm(values, axis=1, keepdims=True) + 1e-9)
