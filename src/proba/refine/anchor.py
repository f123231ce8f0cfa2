"""The chosen world is tied to what is known of its poses beforehand: places from GPS, or poses with deviations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from proba.known_poses import KnownPoses
from proba.refine.adjust import adjust
from proba.refine.bundle import Bundle, PosePrior
from proba.refine.known_world import to_known_frame
from proba.refine.state import State

ROUNDS = 3
"""Adjustments in which priors that the photos contradict lose their weight; the last ones change little."""
SOFT_SIGMAS = 2.0
"""Priors that are off by this many deviations count half."""


def poses_held(state: State) -> bool:
    """Whether the known poses stay as they are, so that no stage may place their images anew."""
    return state.bundle.pose_prior is not None


def worth_anchoring(state: State) -> bool:
    """Whether something is known that shall pull at the poses."""
    known = state.observations.known
    return known is not None and known.anchors


def anchor(state: State) -> State:
    """Stage: the world moves into the frame of what is known, and is adjusted with it. What the photos contradict
    loses its weight on the way, and in the end is left out."""
    known = state.observations.known
    assert known is not None
    bundle = to_known_frame(state.bundle, known)
    if bundle is None:
        return state
    for k in range(ROUNDS):
        bundle = replace(bundle, pose_prior=weighted_prior(bundle, known, last=k == ROUNDS - 1))
        bundle = adjust(bundle, state.options.adjust.settle, state.freedom, state.options.adjust, images=state.placed)
    return replace(state, bundle=bundle)


def weighted_prior(bundle: Bundle, known: KnownPoses, *, last: bool) -> PosePrior:
    """The priors, each by how well the photos agree with it; the `last` time those that are clearly wrong are out."""
    precision = np.where(np.isfinite(known.sigma), 1 / known.sigma**2, 0.0)  # [N, 6]
    off = deviations(bundle, known)  # [N, 2]
    weight = (off <= known.outlier_sigmas) if last else 1 / (1 + (off / SOFT_SIGMAS) ** 2)
    return PosePrior(known.cam_from_world, precision * np.repeat(weight, 3, axis=1))


def deviations(bundle: Bundle, known: KnownPoses) -> np.ndarray:  # [N, 2]
    """By how many deviations, in root mean square over the axes, rotation and centre of each image are off; 0 where
    nothing is known."""
    apart = PosePrior(known.cam_from_world, known.sigma).residual(bundle.cam_from_world) / known.sigma  # [N, 6]
    return np.sqrt((apart.reshape(-1, 2, 3) ** 2).mean(axis=2))


def left_out(bundle: Bundle, known: KnownPoses) -> np.ndarray:  # [N] bool
    """Images whose prior took no part, because the photos contradict it, or because there is no frame for it."""
    told = np.isfinite(known.sigma)  # [N, 6]
    used = np.zeros_like(told) if bundle.pose_prior is None else bundle.pose_prior.precision > 0
    return (told & ~used).any(axis=1)
