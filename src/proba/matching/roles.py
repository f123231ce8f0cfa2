"""Two matchers with a role each, as in the paper: one makes the view graph, the other the matches on its edges.

The first runs on all candidate pairs, and its counts are the similarity that tree and weights are made from. The
second, dense and slow, runs on the edges alone: the tree and each photo's most similar ones. A dense network finds some
field between any two photos, so what it says of an edge must agree with the first matcher's own matches; where it does
not, or finds nothing, the edge keeps those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from proba.graph import GraphOptions, build_view_graphs
from proba.io.matches_h5 import load_matches
from proba.matches import ImageInfo, Matches, PairMatches
from proba.matching.folder import (
    AUTO,
    MatchOptions,
    MatchSummary,
    Observer,
    Silent,
    ViewGraphMatches,
    match_with_one,
)
from proba.matching.pairs import Pair, PairOptions
from proba.tasks import Engine

ON_EDGES = ("flow", "guided")
"""Matchers that need a view graph: they find something between any two photos, or start from its matches. On 16 random
pairs each, `flow` alone keeps 6 false pairs of 10 on eth3d_pipes and 10 of 15 on castle_p19."""
PAPER_NEIGHBOURS = 20
NEAR_PX = 32.0  # in an image of 1024 px: two cells of the 64 x 64 grid
AGREE_SHARE = 0.5


def match_folder(
    folder: Path,
    out: Path,
    options: MatchOptions | None = None,
    *,
    resume: bool = False,
    jobs: int | None = None,
    observer: Observer | None = None,
    engine: Engine | None = None,
    reuse: Sequence[Path] = (),
) -> MatchSummary:
    """Match the photos of a folder and write the matches file `out`. With `resume`, pairs already there are kept, and
    so are those of the files `reuse` if photos and settings are the same.

    With a matcher for the view graph, its matches stay beside it, in `<out>.graph.h5`.
    """
    options = options or MatchOptions()
    name = graph_matcher(options)
    if name is None:
        return match_with_one(
            folder, out, options, resume=resume, jobs=jobs, observer=observer, engine=engine, reuse=reuse
        )
    watch, file = observer or Silent(), graph_file(out)
    first = replace(
        options, matcher=name, weights=options.graph_weights, graph_matcher=None, graph_weights=None, densify=False
    )
    before = match_with_one(folder, file, first, resume=resume, jobs=jobs, observer=_Graph(watch), engine=engine)
    found = load_matches(file)
    edges = graph_edges(found, options.graph_neighbours or PAPER_NEIGHBOURS)
    listed = tuple((found.images[i].name, found.images[j].name) for i, j in edges)
    second = replace(
        options,
        graph_matcher=None,
        graph_weights=None,
        pairs=PairOptions(listed=listed),
        pair_filter=None,
        triplets=False,  # the graph's pairs have been through it, and through the look at the background
        background=replace(options.background, enabled=False),
        weights=file if options.matcher == "guided" else options.weights,
    )
    graph = ViewGraphMatches(matcher=name, matches=found, agree=agree)
    summary = match_with_one(
        folder, out, second, resume=resume, jobs=jobs, observer=_Untold(watch), graph=graph, engine=engine
    )
    summary = replace(
        summary,
        contradicted=before.contradicted,
        subject_alone=before.subject_alone,
        graph_pairs=before.pairs_tried,
    )
    watch.done(summary)
    return summary


def graph_matcher(options: MatchOptions) -> str | None:
    """Name of the matcher that makes the view graph, None if the matches do."""
    return AUTO if options.graph_matcher is None and options.matcher in ON_EDGES else options.graph_matcher


def graph_file(out: Path) -> Path:
    """Where the matches of the view graph are kept."""
    return out.with_name(f"{out.stem}.graph.h5")


def graph_edges(matches: Matches, n_neig: int) -> list[Pair]:
    """Edges of the view graphs of all pieces, as image numbers."""
    graphs, _ = build_view_graphs(matches, GraphOptions(n_neig=n_neig))
    edges = [graph.images[graph.edges] for graph in graphs]  # [E, 2] each
    return sorted((int(i), int(j)) for i, j in np.concatenate(edges)) if edges else []


def agree(dense: PairMatches, sparse: PairMatches, one: ImageInfo, other: ImageInfo) -> bool:
    """Whether most of the sparse matches lead to where the nearest dense ones lead."""
    if not len(dense.scores) or not len(sparse.scores):
        return False
    unit_i, unit_j = (image.half_side_px / 512 for image in (one, other))  # pixels of an image of 1024
    distance, nearest = cKDTree(dense.points_i / unit_i).query(sparse.points_i / unit_i)  # [M]
    apart = np.linalg.norm(dense.points_j[nearest] - sparse.points_j, axis=1) / unit_j  # [M]
    # What lies a little apart in one photo may lie three times as far apart in the other.
    near = distance < NEAR_PX  # [M]
    return bool(near.any() and np.mean(apart[near] < 3 * distance[near] + NEAR_PX / 4) >= AGREE_SHARE)


class _Untold:
    """Passes everything on but the end."""

    def __init__(self, observer: Observer):
        self.observer = observer

    def begin(self, what: str, total: int, unit: str) -> None:
        self.observer.begin(what, total, unit)

    def advance(self) -> None:
        self.observer.advance()

    def done(self, summary: MatchSummary) -> None: ...


class _Graph(_Untold):
    """Says that a step is one of the view graph."""

    def begin(self, what: str, total: int, unit: str) -> None:
        self.observer.begin(f"view graph: {what}", total, unit)
