"""Depth at every pixel. Dense clouds are in `proba.dense.fusion`, which reads photos."""

from proba.dense.maps import depth_at, fit_maps, maps_of, observed_depths, pixel_grid, sample_maps

__all__ = ["depth_at", "fit_maps", "maps_of", "observed_depths", "pixel_grid", "sample_maps"]
