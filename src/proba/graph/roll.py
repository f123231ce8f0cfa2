"""Rolls of the images in quarter turns: a picture lying on its side is out of reach of an upright start."""

from __future__ import annotations

import numpy as np

from proba.graph.view_graph import ViewGraph
from proba.matches import Matches


def roll_rotation(quarter_turns: int) -> np.ndarray:
    """Rotation world_from_cam [3, 3] of a camera whose picture is an upright one after `np.rot90(image, q)`.

    It is Rz(q * 90 deg) in OpenCV axes: the camera turned clockwise about its optical axis (seen from behind
    it), so the picture turned counter-clockwise.
    """
    cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[int(quarter_turns) % 4]
    return np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]], np.float64)


def image_rolls(matches: Matches, graph: ViewGraph) -> np.ndarray:
    """Quarter turns [N] (0..3) of each image of the graph against the majority of its images.

    Roll q means that the picture looks like `np.rot90(upright, q)`, see `roll_rotation`. Each tree edge is
    rounded by itself: then every relative pose starts within 45 degrees of what its own matches say, and
    small turns that add up along the tree do no harm.
    """
    step = np.zeros(graph.n_images, np.int64)  # [N], quarter turns of a node against its parent
    for child in np.flatnonzero(graph.parent >= 0):
        step[child] = _edge_quarter_turns(matches, graph.images[graph.parent[child]], graph.images[child])
    rolls = _sum_to_root(graph.parent, step) % 4  # [N]
    majority = np.bincount(rolls, minlength=4).argmax()
    return (rolls - majority) % 4


def _edge_quarter_turns(matches: Matches, parent: int, child: int) -> int:
    """Quarter turns that take the picture of `parent` to that of `child`, counter-clockwise."""
    pair = matches.pairs[min(parent, child), max(parent, child)]
    parent_px, child_px = pair.points_i, pair.points_j  # [M, 2]
    if parent > child:
        parent_px, child_px = child_px, parent_px
    child_from_parent = similarity_2d(_complex(parent_px), _complex(child_px))
    # The y axis of an image points down, so a positive angle is a clockwise turn.
    return int(np.round(-np.angle(child_from_parent) / (np.pi / 2))) % 4


def similarity_2d(source: np.ndarray, target: np.ndarray, iterations: int = 20) -> complex:
    """Rotation and scale a of the 2D similarity target = a source + b of two complex point sets [M].

    Least absolute deviations by iterative reweighting: convex, so that it needs no start.
    """
    weight = np.ones(len(source))  # [M]
    a = 1 + 0j
    for _ in range(iterations):
        weight /= weight.sum()
        centred_source = source - weight @ source  # [M]
        centred_target = target - weight @ target  # [M]
        spread = weight @ np.abs(centred_source) ** 2
        if spread <= 1e-12:  # one match, or all in one place: no turn can be seen
            return 1 + 0j
        a = (weight * centred_source.conj()) @ centred_target / spread
        residual = np.abs(centred_target - a * centred_source)  # [M]
        weight = 1 / np.maximum(residual, 1e-3 * np.median(residual) + 1e-9)
    return complex(a)


def _complex(xy: np.ndarray) -> np.ndarray:
    """Points [M, 2] as complex numbers [M]."""
    return xy[:, 0].astype(np.float64) + 1j * xy[:, 1].astype(np.float64)


def _sum_to_root(parent: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Sum of `step` [N] over the path from each node to the root, by pointer doubling."""
    root = int(np.flatnonzero(parent < 0)[0])
    jump = np.where(parent < 0, root, parent)  # [N]
    total = np.where(parent < 0, 0, step)  # [N]
    while (jump != root).any():
        total = total + total[jump]
        jump = jump[jump]
    return total
