"""One world from the parts: each image has the pose of the cluster it belongs to, each camera a mean focal length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proba.cameras import CameraOptions, make_setup
from proba.clusters.averaging import Joined
from proba.clusters.solving import Part
from proba.graph import ViewGraph
from proba.graph.partition import Partition
from proba.matches import Matches
from proba.solution import CLUSTERS, Solution

LENT = 2.0
"""How many times as large the deviation of an image in a cluster that it does not belong to counts."""


def joined_solution(
    matches: Matches,
    graph: ViewGraph,
    options: CameraOptions,
    partition: Partition,
    parts: Sequence[Part],
    joined: Joined,
) -> Solution:
    """The parts that were kept as one of the solver's worlds. Images of the others get the pose of the image that they
    share most matches with: the refinement places them anew."""
    local = np.full(len(matches.images), -1)
    local[graph.images] = np.arange(graph.n_images)
    source = _sources(local, partition, parts, joined)  # [N, 2]
    poses = np.tile(np.eye(4), (graph.n_images, 1, 1))
    side = parts[0].log_depth.shape[-1]
    log_depth, log_variance = np.zeros((2, graph.n_images, side, side), np.float32)
    weight = graph.initial_weight.copy()  # [E]
    for p, part in enumerate(parts):
        world = joined.world_from_part[p]
        mine = np.flatnonzero(source[:, 0] == p)
        rows = source[mine, 1]
        poses[mine] = world.apply_to_poses(part.cam_from_world[rows])
        log_depth[mine] = part.log_depth[rows] + np.log(world.scale)
        log_variance[mine] = part.log_variance[rows] + 2 * np.log(world.scale)
    _take_weights(weight, graph, local, parts, joined)
    placed = source[:, 0] >= 0
    _fill(graph, placed, poses, log_depth, log_variance)
    infos = [matches.images[k] for k in graph.images]
    cameras = make_setup(infos, options)
    return Solution(
        graph=graph,
        name=CLUSTERS,
        loss=0.0,
        epipolar_share=float(np.mean([parts[p].explained for p in np.flatnonzero(joined.kept).tolist()])),
        cam_from_world=poses,
        cameras=cameras,
        focal_px=_focals(local, cameras.camera_of_image, parts, joined),
        log_depth=log_depth,
        log_variance=log_variance,
        edge_weight=weight,
    )


def _sources(local: np.ndarray, partition: Partition, parts: Sequence[Part], joined: Joined) -> np.ndarray:
    """Part and row in it [N, 2] that each image takes its pose from; -1: none."""
    source = np.full((len(partition.home), 2), -1)
    surest = np.full(len(partition.home), np.inf)  # [N]
    for p in np.flatnonzero(joined.kept).tolist():
        part = parts[p]
        nodes = local[part.images]  # [n]
        # The cluster that an image belongs to sees all around it; another one has it at its rim.
        away = partition.home[nodes] != np.bincount(partition.home[nodes]).argmax()
        std = np.maximum(part.pose_std[:, :3].max(axis=1), part.pose_std[:, 3:].max(axis=1) / part.depth)  # [n]
        doubt = np.where(part.astray, np.inf, std) * np.where(away, LENT, 1.0)  # [n]
        better = doubt < surest[nodes]
        source[nodes[better], 0], source[nodes[better], 1] = p, np.flatnonzero(better)
        surest[nodes[better]] = doubt[better]
    return source


def _focals(local: np.ndarray, camera_of_image: np.ndarray, parts: Sequence[Part], joined: Joined) -> np.ndarray:
    """Focal lengths [N, 2]: of each camera the mean over the parts, weighted by their variances."""
    total, weights = np.zeros((camera_of_image.max() + 1, 2)), np.zeros(camera_of_image.max() + 1)
    for p in np.flatnonzero(joined.kept).tolist():
        part = parts[p]
        for camera, (fx, fy, std) in enumerate(part.focal_px):
            images = local[part.images[part.camera_of_image == camera]]
            if not len(images):
                continue
            weight = 1 / ((std / fx) ** 2 + 1e-6)
            whole = camera_of_image[images[0]]
            total[whole] += weight * np.log([fx, fy])
            weights[whole] += weight
    known = weights > 0
    mean = np.zeros_like(total)
    mean[known] = total[known] / weights[known, None]
    mean[~known] = np.median(mean[known], axis=0)
    return np.exp(mean)[camera_of_image]


def _take_weights(
    weight: np.ndarray, graph: ViewGraph, local: np.ndarray, parts: Sequence[Part], joined: Joined
) -> None:
    """What clusters made of the edges [E] that they have, in place."""
    index = {(i, j): k for k, (i, j) in enumerate(graph.edges.tolist())}
    for p in np.flatnonzero(joined.kept).tolist():
        ends = np.sort(local[parts[p].edges], axis=1)
        for (i, j), value in zip(ends.tolist(), parts[p].edge_weight.tolist(), strict=True):
            if (i, j) in index:
                weight[index[i, j]] = value


def _fill(graph: ViewGraph, placed: np.ndarray, *arrays: np.ndarray) -> None:
    """Give images that are not `placed` [N] bool what their most similar placed image has, ring by ring, in place."""
    placed = placed.copy()
    order = np.argsort(-graph.similarity, kind="stable")
    while not placed.all():
        found: dict[int, int] = {}
        for i, j in graph.edges[order].tolist():
            for one, other in ((i, j), (j, i)):
                if not placed[one] and placed[other]:
                    found.setdefault(one, other)
        for one, other in found.items():
            for array in arrays:
                array[one] = array[other]
            placed[one] = True
