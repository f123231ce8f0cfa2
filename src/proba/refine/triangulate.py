"""Points of tracks: from the solver's depth maps, and linear from known poses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial import cKDTree

from proba.dense import sample_maps
from proba.refine.bundle import (
    Bundle,
    observation_rays,
    observed_depths,
    per_track_sum,
    reprojection_errors,
)
from proba.refine.normal_equations import Equations
from proba.refine.options import AdjustOptions
from proba.refine.tracks import Tracks

_REWEIGHT_ROUNDS = 3
_PAIR_ROUNDS = 8
"""Random pairs of rays tried; with a third of wrong observations all of them are bad once in two hundred."""
_FEW_HELD = 0.8


def points_from_depth_maps(bundle: Bundle, log_depth: np.ndarray) -> Bundle:
    """Each point at the median over its observations, lifted by the depth maps `log_depth` [N, m, m]."""
    tracks = bundle.tracks
    image = tracks.image
    relative = tracks.xy / bundle.camera_size[bundle.camera_of_image[image]]  # [K, 2], in [0, 1]
    depth = np.exp(sample_maps(log_depth, image, relative))  # [K]
    point_cam = observation_rays(bundle) * depth[:, None]  # [K, 3]
    cam_from_world = bundle.cam_from_world[image]  # [K, 4, 4]
    lifted = np.einsum("kji,kj->ki", cam_from_world[:, :3, :3], point_cam - cam_from_world[:, :3, 3])  # [K, 3]
    return replace(bundle, xyz=_track_median(tracks, lifted), alive=np.ones(len(image), bool))


def triangulate(bundle: Bundle, max_error: float, images: np.ndarray | None = None) -> Bundle:
    """Place every track by linear triangulation (DLT) in the cameras `images` [N] bool; alive where it fits.

    Tracks that lose many observations are tried again from random pairs of their rays, because a few wrong
    observations spoil a linear solution.
    """
    tracks = bundle.tracks
    usable = np.ones(tracks.n_observations, bool) if images is None else images[tracks.image]  # [K]
    placed = _triangulate_all(bundle, usable, max_error)
    held = placed.alive_per_track()  # [T]
    doubtful = (held < _FEW_HELD * per_track_sum(tracks, usable)) & (tracks.length > 2)  # [T]
    if not doubtful.any():
        return placed
    observation = doubtful[tracks.track_of_observation]  # [K]
    part = _triangulate_pairs(placed.some_tracks(doubtful), usable[observation], max_error)
    xyz, alive = placed.xyz.copy(), placed.alive.copy()
    xyz[doubtful], alive[observation] = part.xyz, part.alive
    return replace(placed, xyz=xyz, alive=alive)


def _triangulate_all(bundle: Bundle, usable: np.ndarray, max_error: float) -> Bundle:
    """DLT of all usable observations [K] bool, reweighted by their errors."""
    rows = _dlt_rows(bundle)  # [K, 2, 4]
    weight = usable.astype(np.float64)  # [K]
    for _ in range(_REWEIGHT_ROUNDS):
        bundle = replace(bundle, xyz=_smallest_vector(per_track_sum(bundle.tracks, _gram(rows, weight))))
        error = np.minimum(reprojection_errors(bundle), 1e6)  # [K]
        # The floor keeps a track well posed whose observations all disagree.
        weight = usable * np.maximum(1 / (1 + (error / max_error) ** 2) ** 2, 1e-6)
    return _judged(bundle, usable, max_error)


def _triangulate_pairs(bundle: Bundle, usable: np.ndarray, max_error: float) -> Bundle:
    """Replace points by those of a random pair of rays wherever that holds more observations."""
    tracks = bundle.tracks
    rows = _dlt_rows(bundle)  # [K, 2, 4]
    rng = np.random.default_rng(0)
    for _ in range(_PAIR_ROUNDS):
        first = (rng.random(tracks.n_tracks) * tracks.length).astype(np.int64)  # [T]
        other = (first + 1 + (rng.random(tracks.n_tracks) * (tracks.length - 1)).astype(np.int64)) % tracks.length
        pair = np.stack([tracks.offset[:-1] + first, tracks.offset[:-1] + other])  # [2, T]
        gram = _gram(rows[pair[0]], usable[pair[0]]) + _gram(rows[pair[1]], usable[pair[1]])  # [T, 4, 4]
        candidate = _judged(replace(bundle, xyz=_smallest_vector(gram)), usable, max_error)
        better = candidate.alive_per_track() > bundle.alive_per_track()  # [T]
        observation = better[tracks.track_of_observation]  # [K]
        xyz = np.where(better[:, None], candidate.xyz, bundle.xyz)
        bundle = replace(bundle, xyz=xyz, alive=np.where(observation, candidate.alive, bundle.alive))
    # What holds now decides the place together.
    again = _judged(
        replace(bundle, xyz=_smallest_vector(per_track_sum(tracks, _gram(rows, bundle.alive)))), usable, max_error
    )
    better = again.alive_per_track() >= bundle.alive_per_track()  # [T]
    observation = better[tracks.track_of_observation]  # [K]
    xyz = np.where(better[:, None], again.xyz, bundle.xyz)
    return replace(bundle, xyz=xyz, alive=np.where(observation, again.alive, bundle.alive))


def _judged(bundle: Bundle, usable: np.ndarray, max_error: float) -> Bundle:
    """Alive are the usable observations [K] that fit a point which at least two of them fit."""
    alive = usable & (reprojection_errors(bundle) < max_error)  # [K]
    enough = per_track_sum(bundle.tracks, alive) >= 2  # [T]
    return replace(bundle, alive=alive & enough[bundle.tracks.track_of_observation])


def refine_points(bundle: Bundle, loss_px: float, iterations: int = 3) -> Bundle:
    """Move every point to the robust optimum of its observations that hold, with the cameras as they are."""
    equations = Equations(bundle, bundle.alive, np.zeros(bundle.intrinsics.shape, bool), loss_px, 0.0)
    xyz = bundle.xyz.copy()
    xyz[equations.points] = equations.settled_points(bundle, iterations)
    enough = bundle.alive_per_track() >= 2  # [T]
    return replace(bundle, xyz=xyz, alive=bundle.alive & enough[bundle.tracks.track_of_observation])


def ray_angles_deg(bundle: Bundle) -> np.ndarray:
    """Widest angle [T] between the first and any other ray of a track that holds, as seen from the point."""
    tracks = bundle.tracks
    owner = tracks.track_of_observation  # [K]
    direction = bundle.xyz[owner] - bundle.centres[tracks.image]  # [K, 3]
    direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-12)
    position = np.where(bundle.alive, np.arange(len(owner)), len(owner))  # [K]
    first = np.minimum.reduceat(position, tracks.offset[:-1]) if len(owner) else position  # [T]
    reference = direction[np.minimum(first, len(owner) - 1)][owner]  # [K, 3]
    chord = np.where(bundle.alive, np.linalg.norm(direction - reference, axis=1), 0.0)  # [K]
    widest = np.maximum.reduceat(chord, tracks.offset[:-1]) if len(owner) else chord  # [T]
    return np.degrees(2 * np.arcsin(np.clip(widest / 2, 0, 1)))


def reassess(bundle: Bundle, max_error: float, min_angle_deg: float, images: np.ndarray | None = None) -> Bundle:
    """Judge every observation afresh: what fits is alive again, and lost points are triangulated anew."""
    usable = np.ones(bundle.tracks.n_observations, bool) if images is None else images[bundle.tracks.image]
    owner = bundle.tracks.track_of_observation  # [K]
    alive = usable & (reprojection_errors(bundle) < max_error)  # [K]
    # Nothing can be said of a track that fewer than two of the images see.
    lost = (per_track_sum(bundle.tracks, alive) < 2) & (per_track_sum(bundle.tracks, usable) >= 2)  # [T]
    if lost.any():
        part = bundle.with_tracks(bundle.tracks.take(np.flatnonzero(lost)))
        found = triangulate(part, max_error, images)
        xyz = bundle.xyz.copy()
        xyz[lost] = found.xyz
        alive = alive & ~lost[owner]
        alive[lost[owner]] = found.alive
        bundle = replace(bundle, xyz=xyz)
    bundle = replace(bundle, alive=alive)
    keep = (bundle.alive_per_track() >= 2) & (ray_angles_deg(bundle) >= min_angle_deg)  # [T]
    return replace(bundle, alive=alive & keep[owner])


def believable(bundle: Bundle, options: AdjustOptions) -> Bundle:
    """Let two-view points take no part whose depth is unlike that of the points around them that more views hold.

    Two rays always nearly meet, so that a wrong match along the epipolar line (the next window of a facade) is not
    seen in its residual, only in its depth. A third ray would tell. An image that sees hardly a point of three views is
    not judged: nothing else holds it, and its distance to the others is as uncertain as its points' depths.
    """
    tracks, neighbours = bundle.tracks, options.neighbours
    checked = bundle.alive & (bundle.alive_per_track() >= 3)[tracks.track_of_observation]  # [K]
    unchecked = bundle.alive & ~checked
    log_depth = np.log(np.maximum(observed_depths(bundle), 1e-9))  # [K]
    margin = options.depth_margin + options.ray_noise_deg / np.maximum(ray_angles_deg(bundle), 1e-3)  # [T]
    margin = margin[tracks.track_of_observation]  # [K]
    odd = np.zeros(tracks.n_observations, bool)
    order = np.argsort(tracks.image, kind="stable")  # [K]
    for here in np.split(order, np.searchsorted(tracks.image[order], np.arange(1, bundle.n_images))):
        around, doubtful = here[checked[here]], here[unchecked[here]]
        if len(around) < neighbours or not len(doubtful):
            continue
        _, nearest = cKDTree(tracks.xy[around]).query(tracks.xy[doubtful], k=neighbours)
        near = log_depth[around[nearest]]  # [D, neighbours]
        nearer, farther = near.min(axis=1) - margin[doubtful], near.max(axis=1) + margin[doubtful]
        odd[doubtful] = (log_depth[doubtful] < nearer) | (log_depth[doubtful] > farther)
    held = np.bincount(tracks.image[checked], minlength=bundle.n_images) >= neighbours  # [N]
    spared = per_track_sum(tracks, bundle.alive & ~held[tracks.image]) > 0  # [T]
    wrong = (per_track_sum(tracks, odd) > 0) & ~spared  # [T]
    return replace(bundle, alive=bundle.alive & ~wrong[tracks.track_of_observation])


def _dlt_rows(bundle: Bundle) -> np.ndarray:
    """The two linear equations [K, 2, 4] that each observation gives for its homogeneous point."""
    ray = observation_rays(bundle)  # [K, 3]
    cam_from_world = bundle.cam_from_world[bundle.tracks.image]  # [K, 4, 4]
    rows = ray[:, :2, None] * cam_from_world[:, 2:3, :] - cam_from_world[:, :2, :]  # [K, 2, 4]
    fisheye = bundle.fisheye[bundle.camera_of_image[bundle.tracks.image]]  # [K]
    if fisheye.any():
        rows[fisheye] = _across(ray[fisheye]) @ cam_from_world[fisheye, :3]
    # Division by the length makes the squares angles, not lengths that grow with the ray.
    return rows / np.linalg.norm(rows[:, :, :3], axis=2, keepdims=True)


def _across(ray: np.ndarray) -> np.ndarray:  # [K, 2, 3]
    """Two unit vectors across each unit direction [K, 3]."""
    least = np.eye(3)[np.abs(ray).argmin(axis=1)]  # [K, 3]
    one = np.cross(ray, least)
    one /= np.linalg.norm(one, axis=1, keepdims=True)
    return np.stack([one, np.cross(ray, one)], axis=1)


def _gram(rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weighted products [K, 4, 4] of the DLT rows [K, 2, 4]."""
    return np.einsum("k,kai,kaj->kij", weight, rows, rows)


def _smallest_vector(gram: np.ndarray) -> np.ndarray:
    """Points [T, 3] of the smallest eigenvectors of `gram` [T, 4, 4]."""
    if not len(gram):
        return np.zeros((0, 3))
    homogeneous = np.linalg.eigh(gram)[1][:, :, 0]  # [T, 4]
    scale = homogeneous[:, 3:]
    return homogeneous[:, :3] / np.where(np.abs(scale) > 1e-9, scale, 1e-9)


def _track_median(tracks: Tracks, values: np.ndarray) -> np.ndarray:
    """Median [T, 3] over the observations of each track, coordinate by coordinate."""
    owner = tracks.track_of_observation  # [K]
    low = tracks.offset[:-1] + (tracks.length - 1) // 2  # [T]
    high = tracks.offset[:-1] + tracks.length // 2
    columns = []
    for column in values.T:
        ordered = column[np.lexsort((column, owner))]  # [K]
        columns.append((ordered[low] + ordered[high]) / 2)
    return np.stack(columns, axis=1)
