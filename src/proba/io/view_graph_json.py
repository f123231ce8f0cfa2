"""The view graph as a JSON file, for people and other programs to look at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from proba.graph import ViewGraph
from proba.io.atomic import atomic_write_text
from proba.matches import Matches


def save_view_graphs(path: str | Path, matches: Matches, graphs: Sequence[ViewGraph], unmatched: Sequence[int]) -> None:
    """Write the pieces of a view graph, largest first, and the images that match no other (`build_view_graphs`)."""
    text = json.dumps(view_graph_record(matches, graphs, unmatched), indent=1)
    atomic_write_text(Path(path), text)


def view_graph_record(matches: Matches, graphs: Sequence[ViewGraph], unmatched: Sequence[int]) -> dict:
    """The content of the file: images by name, edges with their matches and the weight they start with."""
    return {
        "images": len(matches.images),
        "pieces": [_piece(matches, graph) for graph in graphs],
        "unmatched": [matches.images[k].name for k in unmatched],
    }


def _piece(matches: Matches, graph: ViewGraph) -> dict:
    names = [matches.images[k].name for k in graph.images]
    edges = []
    for (i, j), tree, similarity, weight in zip(
        graph.edges.tolist(),
        graph.is_tree.tolist(),
        graph.similarity.tolist(),
        graph.initial_weight.tolist(),
        strict=True,
    ):
        count = len(matches.pairs[int(graph.images[i]), int(graph.images[j])].scores)
        edge = {
            "i": names[i],
            "j": names[j],
            "matches": count,
            "similarity": similarity,
            "weight": weight,
            "tree": tree,
        }
        edges.append(edge)
    return {
        "images": names,
        "root": names[graph.root],
        "parent": {names[n]: names[p] for n, p in enumerate(graph.parent.tolist()) if p >= 0},
        "edges": edges,
    }
