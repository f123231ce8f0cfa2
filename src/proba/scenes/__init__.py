"""Whether a reconstruction shows one scene: what its photos should all see, and where they fall apart."""

from proba.scenes.cut import SceneOptions, Scenes, SightCut, find_scenes, weakest_cut
from proba.scenes.sightings import SightingOptions, Sightings, count_sightings

__all__ = [
    "SceneOptions",
    "Scenes",
    "SightCut",
    "SightingOptions",
    "Sightings",
    "count_sightings",
    "find_scenes",
    "weakest_cut",
]
