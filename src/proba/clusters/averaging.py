"""From clusters with frames of their own to one world: rotations, scales and places averaged, contradictions voted out.

Two clusters are compared by the images that both have: the rotations of these cameras, the depths at which both see the
same keypoints, and the places of the cameras. Each comparison is weighted by the covariances of what it compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.spatial.transform import Rotation

from proba.clusters.solving import Part
from proba.geometry.sim3 import Sim3
from proba.graph.partition import ClusterOptions, largest_group

FLOOR_RAD, FLOOR_SHARE = np.radians(0.1), 0.005
"""What rotations, and scales and places relative to the depth, err by beside their covariances: clusters bend."""
ROUNDS = 20
MIN_DEPTHS = 10
"""Keypoints that two clusters must both see for a scale; else the distances of cameras tell it."""
MIN_AGREEING = 0.5
"""Of the images that two clusters share: fewer that agree on one similarity do not tell it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Link:
    """How two parts lie to each other: `one_from_other`, as the images in both say."""

    one: int
    other: int
    shared: int
    agreeing: int
    """Images that agree with it."""
    rotation: np.ndarray  # [3, 3]
    log_scale: float
    translation: np.ndarray  # [3], in the unit of `one`
    rotation_std: float
    scale_std: float
    place_std: float
    """In the unit of `one`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Joined:
    """The parts in one world."""

    world_from_part: list[Sim3]
    kept: np.ndarray  # [P] bool
    reason: dict[int, str]
    """Why a part was voted out."""


def join_parts(parts: Sequence[Part], options: ClusterOptions, *, trusted: Sequence[bool]) -> Joined:
    """Average the parts, and vote out, the worst first, those that most of their neighbours contradict.

    Of two that contradict each other and nobody else says anything, the one stays that is `trusted` and explains more.
    """
    links = [
        link for a in range(len(parts)) for b in range(a + 1, len(parts)) if (link := compare(parts, a, b, options))
    ]
    kept, reason = np.ones(len(parts), bool), {}
    while True:
        inside = [link for link in links if kept[link.one] and kept[link.other]]
        group = largest_group(_linked(inside, len(parts)), np.array([len(part.images) for part in parts]) * kept)
        for lost in np.flatnonzero(kept & ~group).tolist():
            reason[lost] = "no images that it shares with other clusters agree on where it lies"
        kept &= group
        inside = [link for link in inside if kept[link.one] and kept[link.other]]
        world = average(parts, inside, kept)
        wrong = np.array([_contradicts(parts, world, link, options) for link in inside], bool)
        if not wrong.any():
            return Joined(world_from_part=world, kept=kept, reason=reason)
        worst = _most_contradicted(parts, inside, wrong, trusted)
        if worst is None:  # single links that their own ends outvote
            links = [link for link, bad in zip(inside, wrong, strict=True) if not bad]
            continue
        kept[worst] = False
        reason[worst] = "most clusters that it shares images with contradict where it lies"


def compare(parts: Sequence[Part], one: int, other: int, options: ClusterOptions) -> Link | None:
    """How two parts lie to each other; None where too few images tell, or those that do disagree."""
    a, b = parts[one], parts[other]
    _, here, there = np.intersect1d(a.images, b.images, return_indices=True)  # [S] each
    sound = ~(a.astray[here] | b.astray[there])
    here, there = here[sound], there[sound]
    if len(here) < 3:
        return None
    turns = Rotation.from_matrix(a.cam_from_world[here, :3, :3]).inv() * Rotation.from_matrix(
        b.cam_from_world[there, :3, :3]
    )  # [S], the frame of a from that of b
    std = np.hypot(*(part.pose_std[k, :3].max(axis=1) for part, k in ((a, here), (b, there))))  # [S]
    rotation, angle = _mean_rotation(turns, std)
    log_scale, scale_std = _scale(a, b, here, there)
    offset = a.centres[here] - np.exp(log_scale) * rotation.apply(b.centres[there])  # [S, 3]
    spread = np.hypot(a.pose_std[here, 3:].max(axis=1), np.exp(log_scale) * b.pose_std[there, 3:].max(axis=1))  # [S]
    weight = 1 / (spread**2 + (FLOOR_SHARE * a.depth) ** 2)  # [S]
    translation = _robust_mean(offset, weight, options.place * a.depth)
    far = np.linalg.norm(offset - translation, axis=1)  # [S]
    agrees = (angle < np.radians(options.rotation_deg)) & (far < options.place * a.depth)  # [S]
    if agrees.sum() < max(3, MIN_AGREEING * len(agrees)):
        return None
    n = agrees.sum()
    return Link(
        one=one,
        other=other,
        shared=len(here),
        agreeing=int(n),
        rotation=rotation.as_matrix(),
        log_scale=log_scale,
        translation=translation,
        rotation_std=float(np.hypot(np.median(angle[agrees]) / np.sqrt(n), FLOOR_RAD)),
        scale_std=float(np.hypot(scale_std, FLOOR_SHARE)),
        place_std=float(np.hypot(1 / np.sqrt(weight[agrees].sum()), np.median(far[agrees]) / np.sqrt(n))),
    )


def average(parts: Sequence[Part], links: Sequence[Link], kept: np.ndarray) -> list[Sim3]:
    """The parts in the frame of the largest one that is kept; what is not kept stays in its own."""
    root = int(np.argmax([len(part.images) * keep for part, keep in zip(parts, kept, strict=True)]))
    turns = _rotations(len(parts), links, root)
    one, other = (np.array([getattr(link, end) for link in links], np.int64) for end in ("one", "other"))  # [L] each
    scale = np.exp(
        _potentials(
            len(parts), root, one, other, np.array([[link.log_scale] for link in links]).reshape(-1, 1),
            np.array([link.scale_std for link in links]),
        )[:, 0]
    )  # fmt: skip
    steps = np.array([scale[link.one] * turns[link.one].apply(link.translation) for link in links]).reshape(-1, 3)
    places = _potentials(
        len(parts), root, one, other, steps, np.array([scale[link.one] * link.place_std for link in links])
    )
    return [Sim3(float(s), turn.as_matrix(), place) for s, turn, place in zip(scale, turns, places, strict=True)]


def _mean_rotation(turns: Rotation, std: np.ndarray) -> tuple[Rotation, np.ndarray]:
    """A robust mean of rotations [S], and how far each is from it, radians."""
    apart = np.array([(turn.inv() * turns).magnitude() for turn in turns])  # [S, S]
    mean = turns[int(np.median(apart, axis=1).argmin())]
    weight = 1 / (std**2 + FLOOR_RAD**2)  # [S]
    for _ in range(ROUNDS):
        offset = (mean.inv() * turns).as_rotvec()  # [S, 3]
        mean = mean * Rotation.from_rotvec(_robust_step(offset, weight))
    return mean, (mean.inv() * turns).magnitude()


def _scale(a: Part, b: Part, here: np.ndarray, there: np.ndarray) -> tuple[float, float]:
    """Logarithm of how large b's unit is in a's, and its standard deviation."""
    keys = [
        np.column_stack([part.seen_image, part.seen_xy.astype(np.float64)])[np.isin(part.seen_image, part.images[k])]
        for part, k in ((a, here), (b, there))
    ]
    depths = [part.seen_depth[np.isin(part.seen_image, part.images[k])] for part, k in ((a, here), (b, there))]
    _, place = np.unique(np.concatenate(keys), axis=0, return_inverse=True)
    first, second = place[: len(keys[0])], place[len(keys[0]) :]
    _, i, j = np.intersect1d(first, second, return_indices=True)
    ahead = (depths[0][i] > 0) & (depths[1][j] > 0)
    if ahead.sum() >= MIN_DEPTHS:
        ratio = np.log(depths[0][i][ahead] / depths[1][j][ahead])
    else:
        rows, columns = np.triu_indices(len(here), 1)
        apart = [np.linalg.norm(c[rows] - c[columns], axis=1) for c in (a.centres[here], b.centres[there])]
        ratio = np.log(np.maximum(apart[0], 1e-12) / np.maximum(apart[1], 1e-12))
    middle = float(np.median(ratio))
    # Points of one image err together, so that the images count, not the points.
    return middle, float(1.48 * np.median(np.abs(ratio - middle))) / np.sqrt(len(here))


def _robust_step(offset: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted mean of offsets [S, D] in which those far beyond the median hardly count."""
    length = np.linalg.norm(offset, axis=1)  # [S]
    scale = max(1.48 * float(np.median(length)), 1e-9)
    w = weight / (1 + (length / scale) ** 2) ** 2
    return w @ offset / w.sum()


def _robust_mean(values: np.ndarray, weight: np.ndarray, bound: float) -> np.ndarray:
    """Mean of those values [S, D] that most others lie within a bound of, with less weight for those far off."""
    near = np.linalg.norm(values[:, None] - values[None], axis=2) < bound  # [S, S]
    group = near[int(near.sum(axis=1).argmax())]
    mean = np.median(values[group], axis=0)
    for _ in range(ROUNDS):
        mean = mean + _robust_step(values[group] - mean, weight[group])
    return mean


def _rotations(n: int, links: Sequence[Link], root: int) -> list[Rotation]:
    """World from part, from the tree of the surest links on, then by robust averaging on the group."""
    turns = [Rotation.identity()] * n
    if not links:
        return turns
    by_ends = {(link.one, link.other): Rotation.from_matrix(link.rotation) for link in links}
    ends = np.array(list(by_ends))  # [L, 2]
    cost = csr_array(([1 / link.agreeing for link in links], (ends[:, 0], ends[:, 1])), shape=(n, n))
    order, parent = breadth_first_order(minimum_spanning_tree(cost), root, directed=False)
    for k in order[1:].tolist():
        p = int(parent[k])
        turns[k] = turns[p] * (by_ends[p, k] if (p, k) in by_ends else by_ends[k, p].inv())
    std = np.array([link.rotation_std for link in links])
    for _ in range(ROUNDS):
        gap = np.array(
            [(turns[a].inv() * turns[b] * by_ends[a, b].inv()).as_rotvec() for a, b in ends.tolist()]
        )  # [L, 3], zero where the two turns agree with the link
        world = np.array([turns[a].apply(g) for (a, _), g in zip(ends.tolist(), gap, strict=True)])
        step = _potentials(n, root, ends[:, 0], ends[:, 1], -world, std, rounds=1)
        turns = [Rotation.from_rotvec(s) * turn for s, turn in zip(step, turns, strict=True)]
        if np.abs(step).max() < 1e-10:
            break
    return turns


def _potentials(
    n: int, root: int, one: np.ndarray, other: np.ndarray, difference: np.ndarray, std: np.ndarray, rounds: int = ROUNDS
) -> np.ndarray:
    """Values [n, D] whose differences other - one are as measured [L, D], robustly; zero at the root and at nodes that
    nothing reaches."""
    found = np.zeros((n, difference.shape[1]))
    if not len(one):
        return found
    rows = np.arange(len(one))
    design = np.zeros((len(one), n))
    design[rows, one], design[rows, other] = -1, 1
    design[:, root] = 0
    for _ in range(rounds):
        away = np.linalg.norm(design @ found - difference, axis=1) / std  # [L]
        far = max(1.48 * float(np.median(away)), 3.0)
        weight = np.sqrt(1 / std**2 / (1 + (away / far) ** 2) ** 2)
        found = np.linalg.lstsq(weight[:, None] * design, weight[:, None] * difference, rcond=None)[0]
        found[root] = 0
    return found


def _linked(links: Sequence[Link], n: int) -> np.ndarray:  # [n, n] bool
    linked = np.eye(n, dtype=bool)
    for link in links:
        linked[link.one, link.other] = linked[link.other, link.one] = True
    return linked


def _contradicts(parts: Sequence[Part], world: Sequence[Sim3], link: Link, options: ClusterOptions) -> bool:
    """Whether the averaged world says something else than the images that two parts share."""
    one, other = world[link.one], world[link.other]
    said = one @ Sim3(float(np.exp(link.log_scale)), link.rotation, link.translation)
    turn = Rotation.from_matrix(said.rotation.T @ other.rotation).magnitude()
    middle = parts[link.other].centres.mean(axis=0)
    away = np.linalg.norm(said.apply(middle) - other.apply(middle)) / (one.scale * parts[link.one].depth)
    scale = abs(np.log(said.scale / other.scale))
    return bool(turn > np.radians(options.rotation_deg) or scale > options.scale or away > options.place)


def _most_contradicted(
    parts: Sequence[Part], links: Sequence[Link], wrong: np.ndarray, trusted: Sequence[bool]
) -> int | None:
    """The part that is contradicted by most of what links it, or half of it if that is several links: of a single one
    nobody knows which end is wrong. None: there is no such part."""
    agree, against, times = np.zeros((3, len(parts)))
    for link, bad in zip(links, wrong.tolist(), strict=True):
        for end in (link.one, link.other):
            (against if bad else agree)[end] += link.agreeing
            times[end] += bad
    share = against / np.maximum(agree + against, 1e-9)
    blamed = [k for k in range(len(parts)) if share[k] > 0.5 or (share[k] >= 0.4 and times[k] > 1)]
    return max(blamed, key=lambda k: (share[k], not trusted[k], -parts[k].explained), default=None)
