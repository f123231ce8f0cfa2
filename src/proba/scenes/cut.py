"""Where a reconstruction falls apart: the two groups of photos that share least of what both should see."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.stats import mannwhitneyu

from proba.reconstruction import Reconstruction
from proba.scenes.sightings import SightingOptions, Sightings, count_sightings

SURE = 1.65
"""Standard deviations that 95 % lie below."""
DOUBT = 10.0
"""Points that a pair is taken to miss in addition, so that pairs of which little is expected do not hold groups."""


@dataclass(frozen=True, kw_only=True)
class SceneOptions:
    """When photos that matches join are taken for several scenes."""

    enabled: bool = True
    """Off: whatever matches join stays one reconstruction."""
    sightings: SightingOptions = field(default_factory=SightingOptions)
    """Which points a photo should see."""
    most_shared: float = 0.25
    """Two groups are two scenes if they share less than this part of what they should, with 95 % confidence (in one
    scene each of two views may lose half of it to things that stand before it) ..."""
    max_chance: float = 0.01
    """... and if so many such cuts would be expected by chance. A few pairs that happen to match badly are no evidence:
    where an object is seen from all sides, two of them hold a half."""
    min_pair: float = 5.0
    """Pairs of which fewer shared points are expected do not take part in the ranking."""
    min_images: int = 3
    """Smaller groups are not taken apart; single images that share too little are named in the report."""
    max_images: int = 1500
    """Larger pieces are not judged; time grows with the square."""
    min_expected: float = 30.0
    """Cuts across which fewer points are expected are not judged."""
    vectors: int = 3
    """Eigenvectors of the graph of shared points that are swept for cuts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SightCut:
    """Two groups of photos, and what speaks for their being of one scene."""

    side: np.ndarray  # [N] bool
    other: np.ndarray  # [N] bool
    expected: float
    """Points that photos of the two sides should share."""
    seen: float
    """Points that they do share."""
    most: float
    """Upper limit of their ratio, with 95 % confidence."""
    chance: float = 1.0
    """Expected number of cuts of one scene whose pairs rank as low among all pairs; 1 or more is nothing special."""

    @property
    def ratio(self) -> float:
        """Share of what both sides should see that both do see."""
        return self.seen / max(self.expected, 1e-9)

    @property
    def smaller(self) -> np.ndarray:  # [N] bool
        """The side with fewer images."""
        return min(self.side, self.other, key=lambda side: int(side.sum()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Scenes:
    """How a reconstruction falls apart into scenes."""

    groups: list[np.ndarray]
    """Images of each scene, ascending; one group: it shows one scene."""
    cuts: list[SightCut]
    """Where it falls apart: first the whole, then its parts. Their sides count all images."""
    weakest: SightCut | None
    """Of the whole; None if nothing can be judged."""
    lone: list[int]
    """Single images that share too little with all others; they stay where they are."""


def find_scenes(reconstruction: Reconstruction, options: SceneOptions, *, seed: int = 0) -> Scenes:
    """Take a reconstruction apart where two groups of photos share too little of what both should see."""
    n = len(reconstruction)
    whole = Scenes(groups=[np.arange(n)], cuts=[], weakest=None, lone=[])
    if not options.enabled or not 2 * options.min_images <= n <= options.max_images:
        return whole
    everything = count_sightings(reconstruction, options.sightings, seed=seed)
    weakest, waiting, groups, cuts = None, whole.groups.copy(), [], []
    while waiting:
        members = waiting.pop()
        cut = weakest_cut(everything.of(members), options)
        weakest = weakest if len(members) < n else cut
        if cut is None or cut.most >= options.most_shared or cut.chance >= options.max_chance:
            groups.append(members)
            continue
        cuts.append(replace(cut, side=_among(n, members[cut.side]), other=_among(n, members[~cut.side])))
        waiting += [members[cut.side], members[~cut.side]]
    groups.sort(key=lambda group: (-len(group), group[0]))
    return Scenes(groups=groups, cuts=cuts, weakest=weakest, lone=_lone(everything, options))


def _lone(sightings: Sightings, options: SceneOptions) -> list[int]:
    """Images that share too little with all others together, by the rule for groups."""
    found = []
    for image in range(sightings.images):
        side = _among(sightings.images, np.array([image]))
        cut = judge_cut(sightings, side)
        if cut.expected >= options.min_expected and cut.most < options.most_shared:
            chance = sightings.images * _rank_chance(sightings, side, options)
            found += [image] if chance < options.max_chance else []
    return found


def _among(n: int, members: np.ndarray) -> np.ndarray:  # [n] bool
    """Which of n images are `members`."""
    found = np.zeros(n, bool)
    found[members] = True
    return found


def weakest_cut(sightings: Sightings, options: SceneOptions) -> SightCut | None:
    """The cut across which least of what is expected is seen, a certain one if there is any; None if nothing can be
    judged."""
    sides = _candidates(sightings, options)
    cuts = [cut for side in sides if (cut := judge_cut(sightings, side)).expected >= options.min_expected]
    if not cuts:
        return None
    low = [cut for cut in cuts if cut.most < options.most_shared]
    ranked = [replace(cut, chance=len(sides) * _rank_chance(sightings, cut.side, options)) for cut in low]
    certain = [cut for cut in ranked if cut.chance < options.max_chance]
    return min(certain or ranked or cuts, key=lambda cut: cut.most)


def _rank_chance(sightings: Sightings, side: np.ndarray, options: SceneOptions) -> float:
    """Probability that pairs across rank as low by chance, among all pairs, in what they see of what they should."""
    across = sightings.across(side)  # [M]
    expected = sightings.expected(~across)  # [M]
    ratio = sightings.seen.sum(axis=1) / np.maximum(expected, 1e-9)  # [M]
    counts = expected >= options.min_pair  # [M]
    one, other = ratio[across & counts], ratio[~across & counts]
    if not len(one) or not len(other):
        return 1.0
    return float(mannwhitneyu(one, other, alternative="less").pvalue)


def judge_cut(sightings: Sightings, side: np.ndarray) -> SightCut:
    """What photos on the two sides [N] bool should share by what those on one side share, and what they do.

    Pairs of one photo err together, so the confidence is that of leaving out one photo after the other.
    """
    across = sightings.across(side)  # [M]
    expected, seen = sightings.expected(~across)[across], sightings.seen[across].sum(axis=1)  # [A] each
    total, shared = expected.sum(), seen.sum()
    of_image = np.zeros((2, sightings.images))
    for end in sightings.pairs[across].T:
        for sums, part in zip(of_image, (expected, seen), strict=True):
            np.add.at(sums, end, part)
    ratio = shared / max(total, 1e-9)
    # A photo on the smaller side may hold most pairs, so each one counts as a draw of its own (jackknife).
    left = (shared - of_image[1]) / np.maximum(total - of_image[0], 1e-9)  # [N]
    part = (of_image[0] > 0) & (of_image[0] < (1 - 1e-9) * total)  # without a photo of all pairs nothing is left
    n = max(int(part.sum()), 2)
    spread = np.sqrt((n - 1) / n * ((left[part] - ratio) ** 2).sum())
    return SightCut(
        side=side, other=~side, expected=float(total), seen=float(shared), most=float(ratio + SURE * spread)
    )


def _candidates(sightings: Sightings, options: SceneOptions) -> list[np.ndarray]:
    """Sides [N] bool worth a look: along the slowest directions of the graph of shared points, each place to cut; and
    the groups that form where what shares most is joined first."""
    n, (i, j) = sightings.images, sightings.pairs.T
    strength = np.zeros((n, n))
    everyone = np.ones(len(sightings.pairs), bool)
    strength[i, j] = sightings.seen.sum(axis=1) / (sightings.expected(everyone) + DOUBT)
    strength += strength.T
    degree = strength.sum(axis=1) + 1e-9  # [N]
    normal = np.sqrt(degree[:, None] * degree[None])
    _, vectors = np.linalg.eigh(np.eye(n) - strength / normal)
    groups = []
    for vector in vectors.T[1 : 1 + options.vectors]:
        order = np.argsort(vector / np.sqrt(degree), kind="stable")
        groups += [order[:count] for count in range(1, n)]
    apart = 1 / (strength + 1e-6)[np.triu_indices(n, 1)]
    for method in ("single", "average"):
        formed = [np.array([k]) for k in range(n)]
        for one, other in linkage(apart, method)[:, :2].astype(int):
            formed.append(np.concatenate([formed[one], formed[other]]))
        groups += formed[n:-1]
    sides = [_among(n, group) for group in groups if options.min_images <= len(group) <= n - options.min_images]
    return list({(side ^ side[0]).tobytes(): side for side in sides}.values())
