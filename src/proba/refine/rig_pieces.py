"""Pieces that share no matches but a rig become one: what ties them is how its cameras sit, the same at all moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from proba.geometry.hand_eye import FEWEST, hand_eye
from proba.geometry.sim3 import Sim3
from proba.graph import ViewGraph
from proba.known_poses import UNKNOWN, KnownPoses
from proba.matches import Matches
from proba.reconstruction import Reconstruction
from proba.refine.rig import inverse
from proba.rigs import Rigs


@dataclass(frozen=True, eq=False)
class JoinedPieces:
    """The largest piece with all that a rig ties to it."""

    graph: ViewGraph
    known: KnownPoses
    """Poses of `graph.images`, where there are any yet, in the world of the first piece."""
    parts: tuple[int, ...]
    """Numbers of the pieces in it."""


def joined_pieces(
    matches: Matches, rigs: Rigs, pieces: Sequence[tuple[ViewGraph, Reconstruction]], single: Sequence[int]
) -> JoinedPieces | None:
    """The first of some pieces with the others and the `single` images that its moments place; None: there are none."""
    pose = dict(zip(pieces[0][0].images.tolist(), pieces[0][1].cam_from_world, strict=True))
    parts, graphs, lone = [0], [pieces[0][0]], list(single)
    for k, (graph, model) in enumerate(pieces[1:], 1):
        there = dict(zip(graph.images.tolist(), model.cam_from_world, strict=True))
        world = _world_of(rigs, pose, there)
        if world is not None:
            moved = world.apply_to_poses(np.array(list(there.values())))
            pose |= dict(zip(there, moved, strict=True))
        elif graph.n_images < FEWEST:
            lone += graph.images.tolist()
            continue
        else:
            continue
        parts.append(k)
        graphs.append(graph)
    placed = np.array(sorted(pose), np.int64)
    sensors, frames = set(rigs.sensor_of_image[placed].tolist()), set(rigs.frame_of_image[placed].tolist())
    more = [
        k
        for k in lone
        if rigs.sensor_of_image[k] >= 0
        and rigs.frame_of_image[k] in frames
        and (rigs.sensor_of_image[k] in sensors or _lens_and_place_known(matches, rigs, k))
    ]
    if len(parts) == 1 and not more:
        return None
    images = np.array(sorted([*pose, *more]), np.int64)
    focal = {
        int(n): float(np.sqrt(np.prod(model.camera(k).focal_px)))
        for graph, model in pieces
        for k, n in enumerate(graph.images.tolist())
    }
    known = KnownPoses(
        cam_from_world=np.stack([pose.get(int(n), np.eye(4)) for n in images]),
        focal_px=np.array([focal.get(int(n), np.nan) for n in images]),
        sigma=np.where(np.isin(images, placed)[:, None], 1.0, UNKNOWN) * np.ones(6),
        use="start",
        z_up=False,
        outlier_sigmas=np.inf,
    )
    return JoinedPieces(_one_graph(graphs, images), known, tuple(parts))


def _lens_and_place_known(matches: Matches, rigs: Rigs, image: int) -> bool:
    sensor = rigs.sensors[int(rigs.sensor_of_image[image])]
    return sensor.cam_from_rig is not None and matches.images[image].lens is not None


def _world_of(rigs: Rigs, here: dict[int, np.ndarray], there: dict[int, np.ndarray]) -> Sim3 | None:
    """The similarity that brings the poses `there` into the world of those `here`, by the two sensors that have most
    moments in common."""
    by_frame: dict[int, list[int]] = {}
    for n in here:
        by_frame.setdefault(int(rigs.frame_of_image[n]), []).append(n)
    common: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for m in there:
        for n in by_frame.get(int(rigs.frame_of_image[m]), []) if rigs.frame_of_image[m] >= 0 else []:
            common.setdefault((int(rigs.sensor_of_image[n]), int(rigs.sensor_of_image[m])), []).append((n, m))
    if not common:
        return None
    (s, t), shared = max(common.items(), key=lambda item: len(item[1]))
    first, second = np.array([here[n] for n, _ in shared]), np.array([there[m] for _, m in shared])
    one, other = rigs.sensors[s].cam_from_rig, rigs.sensors[t].cam_from_rig
    relation = None if one is None or other is None else other @ inverse(one)
    return hand_eye(first, second, relation)


def _one_graph(graphs: Sequence[ViewGraph], images: np.ndarray) -> ViewGraph:
    """The graphs side by side, for images of `images`; their roots and single images hang on the first root without an
    edge."""
    parent = np.full(len(images), int(np.searchsorted(images, graphs[0].images[graphs[0].root])))
    root, columns = int(parent[0]), []
    for graph in graphs:
        place = np.searchsorted(images, graph.images)  # [n]
        inner = graph.parent >= 0
        parent[place[inner]] = place[graph.parent[inner]]
        columns.append((place[graph.edges], graph.is_tree, graph.similarity, graph.initial_weight))
    parent[root] = -1
    edges, is_tree, similarity, weight = (np.concatenate(values) for values in zip(*columns, strict=True))
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    return replace(
        graphs[0],
        images=images,
        root=root,
        parent=parent,
        edges=edges[order],
        is_tree=is_tree[order],
        similarity=similarity[order],
        initial_weight=weight[order],
    )
