"""Depth at every pixel, and dense clouds from it."""

from proba.dense.maps import depth_at, fit_maps, maps_of, sample_maps

__all__ = ["depth_at", "fit_maps", "maps_of", "sample_maps"]
