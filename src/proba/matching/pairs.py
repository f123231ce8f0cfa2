"""Which pairs of photos are worth matching: all of a small set, likely ones of a large set, near ones of a video."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np

Pair = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class PairOptions:
    """How pairs are chosen."""

    mode: Literal["auto", "exhaustive", "shortlist", "sequential"] = "auto"
    """auto: exhaustive for small sets, otherwise a shortlist. sequential: photos in the order of their names."""
    exhaustive_below: int = 60
    """Sets with fewer photos are matched exhaustively."""
    candidates: int = 30
    """shortlist: each photo is matched with the so many that look most alike."""
    window: int = 10
    """sequential: each photo is matched with the so many that follow, and with those 2, 4, 8 ... windows away."""
    words: int = 64
    """shortlist: size of the visual vocabulary, made from the set's own features."""
    seed: int = 0


def chooses_by_looks(n_photos: int, options: PairOptions) -> bool:
    """Whether `choose_pairs` needs signatures."""
    return options.mode == "shortlist" or (options.mode == "auto" and n_photos >= options.exhaustive_below)


def choose_pairs(n_photos: int, options: PairOptions, signatures: np.ndarray | None = None) -> list[Pair]:
    """Pairs (i, j) with i < j. `signatures` [N, C] are unit vectors, for the shortlist."""
    if options.mode == "sequential":
        return _sequential(n_photos, options.window)
    if not chooses_by_looks(n_photos, options) or signatures is None:
        return list(itertools.combinations(range(n_photos), 2))
    return _most_alike(signatures, options.candidates)


def _sequential(n_photos: int, window: int) -> list[Pair]:
    near = set(range(1, window + 1))
    far = {window * 2**k for k in range(1, 32) if window * 2**k < n_photos}
    return [(i, i + step) for i in range(n_photos) for step in sorted(near | far) if i + step < n_photos]


def _most_alike(signatures: np.ndarray, candidates: int) -> list[Pair]:
    alike = signatures @ signatures.T  # [N, N]
    np.fill_diagonal(alike, -np.inf)
    count = min(candidates, len(alike) - 1)
    nearest = np.argpartition(-alike, count - 1, axis=1)[:, :count]  # [N, count]
    return sorted({(min(i, j), max(i, j)) for i, row in enumerate(nearest.tolist()) for j in row})


def vocabulary(samples: np.ndarray, words: int, *, seed: int = 0, rounds: int = 12) -> np.ndarray:  # [words, D]
    """Cluster centres of unit descriptors [K, D] (spherical k-means)."""
    random = np.random.default_rng(seed)
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


def unit_sample(descriptors: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:  # [<= count, D]
    """Some of an image's descriptors, as unit vectors."""
    if len(descriptors) > count:
        descriptors = descriptors[random.choice(len(descriptors), count, replace=False)]
    return _unit(descriptors.astype(np.float32))


def _unit(values: np.ndarray) -> np.ndarray:
    return values / (np.linalg.norm(values, axis=1, keepdims=True) + 1e-9)
