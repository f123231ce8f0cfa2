"""View graph: similarity, spanning tree, neighbours, components, and the roll of each image."""

from proba.graph.options import GraphOptions
from proba.graph.partition import ClusterOptions, make_partition
from proba.graph.roll import image_rolls, roll_rotation
from proba.graph.topology import augment, components, similarity, spanning_tree
from proba.graph.view_graph import ViewGraph, build_view_graphs

__all__ = [
    "ClusterOptions",
    "GraphOptions",
    "ViewGraph",
    "augment",
    "build_view_graphs",
    "components",
    "image_rolls",
    "make_partition",
    "roll_rotation",
    "similarity",
    "spanning_tree",
]
