"""One connected piece of the view graph, packed for the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import torch

from proba.geometry import Tree
from proba.graph import ViewGraph, image_rolls, roll_rotation
from proba.matches import Matches
from proba.objective import PackedMatches
from proba.solver.options import SolverOptions


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Everything that stays constant during a solve. N images, E edges, C cameras."""

    graph: ViewGraph
    tree: Tree
    matches: PackedMatches
    half_side_px: np.ndarray  # [N]
    camera_of_image: torch.Tensor  # [N] int64
    known_log_tan: torch.Tensor | None  # [C] float64, from known focals; None where they are unknown or ignored
    start_rotation: torch.Tensor  # [N, 3, 3] float64, parent_from_child by quarter turns

    @property
    def n_images(self) -> int:
        return len(self.graph.images)

    @property
    def n_cameras(self) -> int:
        return int(self.camera_of_image.max()) + 1


def make_problem(matches: Matches, graph: ViewGraph, options: SolverOptions) -> Problem:
    """Pack the matches of a view graph, group its cameras and find quarter-turn rolls."""
    infos = [matches.images[k] for k in graph.images]
    camera_of_image = group_cameras(matches, graph, options.share)
    known = [info.focal_px for info in infos]
    known_log_tan = None
    if options.focal != "free" and all(focal for focal in known):
        per_image = torch.tensor([np.log(info.half_side_px / info.focal_px) for info in infos])
        sums = torch.zeros(int(camera_of_image.max()) + 1, dtype=torch.float64).index_add_(
            0, camera_of_image, per_image.double()
        )
        known_log_tan = sums / torch.bincount(camera_of_image)
    turns = image_rolls(matches, graph) if options.roll else np.zeros(len(infos), int)
    world = np.stack([roll_rotation(int(q)) for q in turns])  # [N, 3, 3] world_from_cam
    parent = np.where(graph.parent < 0, graph.root, graph.parent)
    # Only relative turns matter: the root stays the identity.
    start_rotation = world[parent].transpose(0, 2, 1) @ world
    return Problem(
        graph=graph,
        tree=Tree(graph.parent),
        matches=pack_matches(matches, graph, options),
        half_side_px=np.array([info.half_side_px for info in infos]),
        camera_of_image=camera_of_image,
        known_log_tan=known_log_tan,
        start_rotation=torch.from_numpy(start_rotation),
    )


def group_cameras(matches: Matches, graph: ViewGraph, share: str) -> torch.Tensor:
    """Index of the shared intrinsics of each image, [N]; images of different size never share.

    Nor do images without EXIF where most have sizes of their own: in a collection, equal sizes are chance (two photos
    of imc_reichstag, whose focal lengths differ by 1.4, are 1024 x 681 px).
    """
    infos = [matches.images[k] for k in graph.images]
    kinds = {(info.camera_key, *sorted((info.width, info.height))) for info in infos}
    collection = len(kinds) > len(infos) / 2
    keys: dict[tuple, int] = {}
    index = []
    for n, info in enumerate(infos):
        by = {
            "camera": n if collection and not info.camera_key else info.camera_key,
            "folder": str(PurePosixPath(info.name).parent),
            "all": "",
            "none": n,
        }[share]
        index.append(keys.setdefault((info.width, info.height, by), len(keys)))
    return torch.tensor(index)


def pack_matches(matches: Matches, graph: ViewGraph, options: SolverOptions) -> PackedMatches:
    """Flat normalised coordinates of each edge's matches, shuffled so that any window is a random sample."""
    infos = [matches.images[k] for k in graph.images]
    count, blocks = [], []
    for e, (i, j) in enumerate(graph.edges):
        a, b = int(graph.images[i]), int(graph.images[j])
        pair = matches.pairs.get((min(a, b), max(a, b)))
        if pair is None:
            count.append(0)
            continue
        u_i, u_j = (pair.points_i, pair.points_j) if a < b else (pair.points_j, pair.points_i)
        order = np.random.default_rng([options.seed, 1, e]).permutation(len(u_i))[: options.max_matches]
        blocks.append(np.concatenate([normalise(u_i[order], infos[i]), normalise(u_j[order], infos[j])], axis=1))
        count.append(len(order))
    flat = np.concatenate(blocks) if blocks else np.zeros((0, 4), np.float32)
    x_i, y_i, x_j, y_j = (torch.from_numpy(np.ascontiguousarray(flat[:, c])) for c in range(4))
    counts = torch.tensor(count, dtype=torch.int64)
    extent = torch.tensor(
        [[info.width / (2 * info.half_side_px), info.height / (2 * info.half_side_px)] for info in infos],
        dtype=torch.float32,
    )
    return PackedMatches(
        edges=torch.from_numpy(graph.edges.astype(np.int32)),
        offset=torch.cumsum(counts, 0) - counts,
        count=counts,
        x_i=x_i,
        y_i=y_i,
        x_j=x_j,
        y_j=y_j,
        extent=extent,
    )


def normalise(points_px: np.ndarray, info) -> np.ndarray:
    """Pixels to coordinates about the image centre in units of half the longest side, [M, 2] float32."""
    centre = np.array([info.width / 2, info.height / 2], np.float64)
    return ((points_px - centre) / info.half_side_px).astype(np.float32)
