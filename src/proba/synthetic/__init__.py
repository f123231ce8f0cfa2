"""Scenes with exact ground truth: cameras, depth, correspondences."""

from proba.synthetic.carried import on_rig, turned_cameras
from proba.synthetic.city import City, CityOptions, city_matches, make_city
from proba.synthetic.correspondences import candidate_pairs, scene_matches
from proba.synthetic.layouts import LAYOUTS, make_scene
from proba.synthetic.raycast import Solids, cast
from proba.synthetic.scene import Scene

__all__ = [
    "LAYOUTS",
    "City",
    "CityOptions",
    "Scene",
    "Solids",
    "candidate_pairs",
    "cast",
    "city_matches",
    "make_city",
    "make_scene",
    "on_rig",
    "scene_matches",
    "turned_cameras",
]
