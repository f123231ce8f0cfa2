"""`proba graph`: which pairs the solver would look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

from proba.cli.options import OUT
from proba.errors import GeometryError
from proba.graph import GraphOptions, build_view_graphs
from proba.io.atomic import atomic_write_text
from proba.io.matches_h5 import load_matches
from proba.io.view_graph_json import save_view_graphs
from proba.report.graph_picture import graph_picture

DEFAULTS = GraphOptions()


def main(
    matches: Annotated[Path, tyro.conf.Positional],
    /,
    out: Annotated[Path, OUT],
    picture: Path | None = None,
    images: Path | None = None,
    graph: GraphOptions = DEFAULTS,
) -> None:
    """Build the view graph alone: which pairs the solver looks at, and the tree that carries the poses.

    Run this to see whether the photos hang together before you spend time on a solve; `proba solve` builds the same
    graph by itself.

    Args:
        matches: Matches file: h5 in hloc's dense layout (as `proba` writes it) or npz.
        out: JSON file to write: pieces, root, parents, and edges with their matches and first weights.
        picture: Draw the graph to this SVG file as well: images on a circle, edges of the tree in colour.
        images: Folder of the photos; they tell image sizes where the matches file does not.
        graph: Which pairs the solver looks at.
    """
    data = load_matches(matches, images=images)
    graphs, alone = build_view_graphs(data, graph)
    if not graphs:
        raise GeometryError(f"No two of the {len(data.images)} images have matches. Check that they overlap.")
    save_view_graphs(out, data, graphs, alone)
    if picture is not None:
        atomic_write_text(picture, graph_picture(data, graphs))
    for number, piece in enumerate(graphs):
        root = data.images[piece.images[piece.root]].name
        print(f"piece {number}: {piece.n_images} images, {piece.n_edges} edges, root {root}")
    if alone:
        print(f"warning: {len(alone)} images match no other, e.g. {data.images[alone[0]].name}")
    print(f"wrote {out}" + (f" and {picture}" if picture else "") + f"; next: proba solve {matches} --out DIR")
