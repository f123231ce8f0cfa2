"""Which image pairs a world explains as well as two-view geometry alone could, which images break that, and whether two
worlds are one."""

from __future__ import annotations

import numpy as np
import poselib
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from proba.geometry.camera import FX
from proba.geometry.epipolar import angular_sampson, epipolar_lines, in_front, sampson
from proba.refine.bundle import Bundle, pixel_rays
from proba.refine.options import AgreementOptions
from proba.threads import in_parallel

MOST_PAIRS = 500_000
"""Pairs of cameras that decide whether two worlds are one: the median of as many is known to a thousandth."""

PairPoints = dict[tuple[int, int], tuple[np.ndarray, np.ndarray]]
"""(i, j) to matched unit pixels [M, 2] in i and in j."""


class PairAgreement:
    """Matches of all pairs, thinned, with the share that a fundamental matrix explains.

    `flat` are the places where pinhole cameras would see the matches of pairs with other lenses, NaN where they do not:
    a fundamental matrix knows no distortion.
    """

    def __init__(
        self,
        points: PairPoints,
        options: AgreementOptions | None = None,
        seed: int = 0,
        flat: PairPoints | None = None,
    ):
        self.options = options = options or AgreementOptions()
        rng = np.random.default_rng(seed)
        self.pairs = np.array(list(points), np.int64).reshape(-1, 2)  # [E, 2]
        self._points: PairPoints = {}
        plain: PairPoints = {}
        for pair, (x, y) in points.items():
            take = rng.permutation(len(x))[: options.samples]
            self._points[pair] = plain[pair] = x[take], y[take]
            if flat and pair in flat:
                seen = flat[pair][0][take], flat[pair][1][take]
                shown = np.isfinite(np.concatenate(seen, axis=1)).all(axis=1)
                plain[pair] = seen[0][shown], seen[1][shown]
        some = list(self._points.values())
        # Share [E] of the matches of each pair that a fundamental matrix of its own explains.
        self.potential = np.array(in_parallel(lambda both: _explained_by_pair(*both, options), list(plain.values())))
        # Matches beyond a few hundred say nothing new about a pair.
        self.count = np.array([len(x) for x, _ in some], float)  # [E]
        self._x, self._y = (np.concatenate([np.zeros((0, 2)), *(xy[k] for xy in some)]) for k in (0, 1))  # [M, 2]
        self._owner = np.repeat(np.arange(len(some)), self.count.astype(int))  # [M], pair of each match
        self.weight = self.potential * self.count  # [E]

    @property
    def explainable(self) -> float:
        """Share of all matches that their pairs can explain."""
        return float(self.weight.sum() / max(self.count.sum(), 1e-9))

    def between(self, i: int, j: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Matched points in i and in j, whichever comes first."""
        if (i, j) in self._points:
            return self._points[i, j]
        found = self._points.get((j, i))
        return None if found is None else (found[1], found[0])

    def across(self, placed: np.ndarray) -> list[tuple[int, int]]:
        """All pairs of an image that is `placed` [N] bool with one that is not, in this order, sorted."""
        mixed = self.pairs[placed[self.pairs[:, 0]] != placed[self.pairs[:, 1]]]  # [M, 2]
        first = placed[mixed[:, 0]]
        return sorted(zip(np.where(first, *mixed.T).tolist(), np.where(first, *mixed.T[::-1]).tolist(), strict=True))

    def support(self, bundle: Bundle) -> np.ndarray:
        """Share [E] of each pair's matches that agree with the poses of a world, in front of both cameras."""
        i, j = self.pairs.T  # [E] each
        j_from_i = bundle.cam_from_world[j] @ np.linalg.inv(bundle.cam_from_world[i])  # [E, 4, 4]
        camera_i, camera_j = (bundle.camera_of_image[k][self._owner] for k in (i, j))  # [M]
        focal = np.sqrt(bundle.intrinsics[camera_i, FX] * bundle.intrinsics[camera_j, FX])  # [M]
        rays = pixel_rays(bundle, camera_i, self._x), pixel_rays(bundle, camera_j, self._y)  # [M, 3] each
        wide = bundle.fisheye[camera_i] | bundle.fisheye[camera_j]  # [M]
        agrees = epipolar_agreement(*rays, j_from_i[self._owner], self.options.support_px / focal, wide)  # [M]
        return np.bincount(self._owner, agrees, len(self.pairs)) / np.maximum(self.count, 1)

    def part_of(self, images: np.ndarray) -> float:
        """Share of the explainable matches that the pairs of `images` [N] bool have."""
        theirs = images[self.pairs].any(axis=1)  # [E]
        return float(self.weight[theirs].sum() / max(self.weight.sum(), 1e-9))

    def share(self, bundle: Bundle) -> float:
        """Explained matches as a share of the explainable ones, over all pairs."""
        explained = np.minimum(self.support(bundle), self.potential) / np.maximum(self.potential, 1e-9)
        return float((explained * self.weight).sum() / max(self.weight.sum(), 1e-9))

    def core(self, bundle: Bundle) -> np.ndarray:
        """The largest group of images [N] bool without contradictions.

        Images in broken pairs are taken out one by one, the worst first: a cluster that is right in itself but wrong
        against the rest goes with all its images, because every pair across the cut is broken.
        """
        n = bundle.n_images
        usable = self.weight >= self.options.min_inliers
        broken = usable & (self.support(bundle) < self.options.broken_below * self.potential)
        bad, good = (symmetric_weights(self.pairs, self.weight * chosen, n) for chosen in (broken, usable & ~broken))
        return group_without_contradictions(bad, good, self.options.max_broken)


def group_without_contradictions(bad: csr_array, good: csr_array, max_broken: float) -> np.ndarray:  # [N] bool
    """The largest group of images that agree, if any, from symmetric weights [N, N] of broken and of good pairs."""
    active, contradicted = np.ones(bad.shape[0], bool), np.diff(bad.indptr) > 0
    while active.sum() > 2:
        wrong, right = bad @ active.astype(float), good @ active.astype(float)  # [N]
        share = np.where(active, wrong / np.maximum(wrong + right, 1e-9), 0.0)
        worst = int(share.argmax())
        if share[worst] <= max_broken:
            break
        active[worst] = False
    linked = (good > 0).astype(float)
    # One neighbour gives a direction but no distance: what hangs on one, beside a broken pair, is not verified.
    while active.sum() > 2:
        hanging = active & contradicted & (linked @ active.astype(float) < 2)
        if not hanging.any():
            break
        active &= ~hanging
    if not active.any():  # every image hung on one other
        return active
    label = connected_components(linked[active][:, active], directed=False)[1]
    active[active] = label == np.bincount(label).argmax()
    return active


def same_world(a: Bundle, b: Bundle, within_deg: float) -> bool:
    """Whether most cameras of two worlds are turned against each other by one rotation, whichever of them is wrong.

    Of many cameras not all pairs are asked.
    """
    turn = np.einsum("nji,njk->nik", a.cam_from_world[:, :3, :3], b.cam_from_world[:, :3, :3]).reshape(-1, 9)  # [N, 9]
    n = len(turn)
    if n * (n - 1) // 2 <= MOST_PAIRS:
        cosine = (turn @ turn.T)[np.triu_indices(n, 1)]
    else:
        i, j = np.random.default_rng(0).integers(0, n, (2, MOST_PAIRS))
        cosine = np.einsum("pi,pi->p", turn[i], turn[j])[i != j]
    return bool(np.median(np.degrees(np.arccos(np.clip((cosine - 1) / 2, -1, 1)))) < within_deg)


def explained(bundle: Bundle, pairs: PairAgreement) -> float:
    """How much a world explains: of the matches of all pairs, times of the observations of all tracks.

    Epipolar lines say little where the field of view is narrow; tracks over several images do.
    """
    return pairs.share(bundle) * bundle.share


def symmetric_weights(pairs: np.ndarray, weight: np.ndarray, n: int) -> csr_array:  # [N, N]
    """Weights [E] of pairs [E, 2] both ways; those of zero are left out."""
    (i, j), some = pairs[weight > 0].T, weight[weight > 0]
    return csr_array((np.tile(some, 2), (np.concatenate([i, j]), np.concatenate([j, i]))), shape=(n, n))


def _explained_by_pair(x: np.ndarray, y: np.ndarray, options: AgreementOptions) -> float:
    if len(x) < options.min_matches:
        return 0.0
    fewest, most = options.ransac_iterations
    ransac = {
        "max_epipolar_error": options.potential_px,
        "max_iterations": most,
        "min_iterations": fewest,
        "seed": 0,
    }
    _, info = poselib.estimate_fundamental(x, y, ransac, {})
    return float(info["num_inliers"]) / len(x)


def epipolar_agreement(
    ray_i: np.ndarray, ray_j: np.ndarray, j_from_i: np.ndarray, max_distance: np.ndarray, wide: np.ndarray
) -> np.ndarray:
    """Whether rays [M, 3] nearly meet in front of both cameras, for poses [M, 4, 4].

    By their Sampson distance on the plane z = 1, or for `wide` ones [M] bool as an angle.
    """
    distance = sampson(ray_j, *epipolar_lines(ray_i, ray_j, j_from_i))
    if wide.any():
        distance[wide] = angular_sampson(ray_i[wide], ray_j[wide], j_from_i[wide])
    return (distance < max_distance) & in_front(ray_i, ray_j, j_from_i)
