"""Photos of equal size may come from different cameras: a focal length for each, where the matches ask for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from proba.geometry.camera import FX
from proba.refine.adjust import Freedom, adjust
from proba.refine.agreement import PairAgreement
from proba.refine.bundle import Bundle
from proba.refine.evidence import evidence
from proba.refine.options import RefineOptions
from proba.refine.rescue import rescue
from proba.refine.state import State
from proba.refine.worlds import solver_bundle


def separate_cameras(state: State) -> State:
    """Stage: the rival of the present world, with a focal length for each doubtful image, if there are any."""
    options, observations = state.options, state.observations
    if not options.separate.enabled:
        return replace(state, apart=None)
    bundle = state.bundle
    if state.unplaced.any():  # a wrong common focal length may have misplaced them
        bundle = solver_bundle(observations, state.solution, bundle.tracks)
    own = with_own_cameras(bundle, doubtful_images(state))
    if own.n_cameras == bundle.n_cameras:
        return replace(state, apart=None)
    own = adjust(own, options.adjust.annealed, Freedom(), options.adjust)
    return replace(state, apart=rescue(own, observations.pairs, Freedom(), options))


def doubtful_images(state: State) -> np.ndarray:
    """Images [N] bool that share a camera with others only because they have one size, of unknown focal length."""
    cameras = state.solution.cameras
    return cameras.by_size_alone & ~cameras.known[cameras.camera_of_image]


def better_apart(shared: Bundle, own: Bundle, pairs: PairAgreement, options: RefineOptions) -> bool:
    """Whether focal lengths of their own explain the matches better than shared cameras of a richer model.

    A wrong common focal length shows in matches that no longer fit, and in the residuals of those that do. So does a
    shifted principal point: hence the richer model as the rival.
    """
    if _focal_ratio(shared, own) < options.separate.min_focal_ratio:
        return False
    gain = pairs.share(own) - pairs.share(shared)
    if abs(gain) > options.separate.clear_share:
        return gain > 0
    return evidence(shared, own, own.n_cameras - shared.n_cameras, options.camera_model) > 0


def _focal_ratio(shared: Bundle, own: Bundle) -> float:
    """The largest ratio of two focal lengths of `own` that are one in `shared`."""
    focal = own.intrinsics[own.camera_of_image, FX]  # [N]
    highest, lowest = np.zeros(shared.n_cameras), np.full(shared.n_cameras, np.inf)
    np.maximum.at(highest, shared.camera_of_image, focal)
    np.minimum.at(lowest, shared.camera_of_image, focal)
    return float((highest / lowest).max())


def with_own_cameras(bundle: Bundle, chosen: np.ndarray) -> Bundle:
    """Each of the `chosen` images [N] bool with a camera of its own; the first image of a camera keeps it."""
    first = np.zeros(bundle.n_images, bool)
    first[np.unique(bundle.camera_of_image, return_index=True)[1]] = True
    moved = np.flatnonzero(chosen & ~first)
    origin = bundle.camera_of_image[moved]
    camera_of_image = bundle.camera_of_image.copy()
    camera_of_image[moved] = bundle.n_cameras + np.arange(len(moved))
    return replace(
        bundle,
        camera_of_image=camera_of_image,
        camera_size=np.concatenate([bundle.camera_size, bundle.camera_size[origin]]),
        intrinsics=np.concatenate([bundle.intrinsics, bundle.intrinsics[origin]]),
        camera_model=bundle.camera_model + [bundle.camera_model[c] for c in origin],
        prior=np.concatenate([bundle.prior, bundle.prior[origin]]),
        known_focal=np.concatenate([bundle.known_focal, bundle.known_focal[origin]]),
        focal_sigma=_of_each(bundle.focal_sigma, origin),
        calibration=None if bundle.calibration is None else _of_each(bundle.calibration, origin),
        calibration_sigma=None if bundle.calibration_sigma is None else _of_each(bundle.calibration_sigma, origin),
    )


def _of_each(values: float | np.ndarray, origin: np.ndarray) -> np.ndarray:
    """Values of cameras [C, ...], and again those of the cameras `origin` [M]; one value for all stays."""
    values = np.asarray(values)
    return np.concatenate([values, values[origin]]) if values.ndim else values
