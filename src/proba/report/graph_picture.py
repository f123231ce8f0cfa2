"""The view graph as a figure: images on a circle, lines between those that are compared."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from proba.graph import ViewGraph
from proba.matches import Matches
from proba.report.figures import COLOURS, MAX_LABELS, text

SIDE, RADIUS = 480.0, 190.0
TREE, OTHER = COLOURS[1], "#94a3b8"


def graph_picture(matches: Matches, graphs: Sequence[ViewGraph]) -> str:
    """An SVG file, the pieces one below the other. Wide lines count more at first; the tree is coloured."""
    height = SIDE * len(graphs)
    pieces = "".join(_piece(matches, graph, SIDE * k) for k, graph in enumerate(graphs))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE:.0f} {height:.0f}" font-family="sans-serif">'
        f'<rect width="{SIDE:.0f}" height="{height:.0f}" fill="white"/>{pieces}</svg>\n'
    )


def _piece(matches: Matches, graph: ViewGraph, top: float) -> str:
    angle = 2 * np.pi * np.arange(graph.n_images) / graph.n_images - np.pi / 2  # [N], the first one on top
    spokes = np.column_stack([np.cos(angle), np.sin(angle)])  # [N, 2]
    centre = np.array([SIDE / 2, top + SIDE / 2])
    places = centre + RADIUS * spokes  # [N, 2]
    lines = [
        f'<line x1="{places[i, 0]:.1f}" y1="{places[i, 1]:.1f}" x2="{places[j, 0]:.1f}" y2="{places[j, 1]:.1f}" '
        f'stroke="{TREE if tree else OTHER}" stroke-width="{0.5 + 3 * weight:.2f}" stroke-opacity=".7"/>'
        for tree in (False, True)  # the tree above the others
        for (i, j), weight in zip(
            graph.edges[graph.is_tree == tree], graph.initial_weight[graph.is_tree == tree], strict=True
        )
    ]
    dots = []
    for n, (x, y) in enumerate(places):
        name = html.escape(matches.images[graph.images[n]].name)
        colour = COLOURS[5] if n == graph.root else COLOURS[0]
        dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{n}: {name}</title></circle>')
        if graph.n_images <= MAX_LABELS:
            outside = centre + (RADIUS + 16) * spokes[n]
            dots.append(text(outside[0], outside[1] + 4, n, anchor="middle"))
    return "".join(lines) + "".join(dots)
