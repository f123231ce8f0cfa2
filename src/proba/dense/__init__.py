"""Depth at every pixel. Clouds with normals, sparse and dense, are in `proba.dense.cloud`, which reads photos."""

from proba.dense.maps import depth_at, fit_maps, maps_of, pixel_grid, sample_maps

__all__ = ["depth_at", "fit_maps", "maps_of", "pixel_grid", "sample_maps"]
