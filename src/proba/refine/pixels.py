"""Coarse observations are moved to where the photos agree, if that makes them much more accurate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from proba.refine.adjust import noise_px, noise_round
from proba.refine.camera_model import choose_again
from proba.refine.final import adjusted_to, all_points
from proba.refine.photometric import Photo, align, photo
from proba.refine.state import State
from proba.refine.tracks import Tracks

Photos = Callable[[str], np.ndarray]
"""Gives the luminance [h, w] uint8 of an image by its name, at any resolution, or raises OSError."""


def worth_sharpening(state: State) -> bool:
    """Whether the pixels could tell more than the matches do.

    Photos of many cameras were taken in different light, which moves what patches have in common.
    """
    options = state.options.pixels
    return options.enabled and not state.bundle.many_cameras and noise_px(state.bundle) > options.coarse_px


def sharpen(state: State, photos: Photos) -> State:
    """Stage: observations where the grey values agree, and cameras adjusted to them.

    The state as it is where that is not much more accurate, or a photo cannot be read.
    """
    images = _read(state, photos)
    if images is None:
        return state
    options, bundle, unit = state.options.pixels, state.bundle, state.observations.unit_px
    few = bundle.some_tracks(np.arange(bundle.tracks.n_tracks) % options.trial == 0)
    for part in (few, bundle):
        sharper = adjusted_to(state, align(part, images, options))
        if noise_px(sharper) > options.sharper * noise_px(bundle):
            return state
    every = state.observations.some_unit_tracks(state.options.tracks.points)
    last = noise_round(sharper, state.options.adjust)
    whole = align(all_points(sharper, every, last, state.placed), images, options)
    tracks = Tracks(whole.offset, whole.image, whole.xy * unit[whole.image, None])
    return choose_again(replace(state, bundle=sharper, observations=replace(state.observations, tracks=tracks)))


def _read(state: State, photos: Photos) -> list[Photo] | None:
    """The photos of all images; None if one of them cannot be read."""
    size = state.bundle.camera_size[state.bundle.camera_of_image]  # [N, 2]
    try:
        return [photo(photos(name), size[k]) for k, name in enumerate(state.observations.names)]
    except OSError:
        return None
