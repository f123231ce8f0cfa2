"""One connected piece of the view graph, packed for the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from proba.cameras import CameraSetup, make_setup
from proba.geometry import Tree
from proba.graph import ViewGraph, image_rolls, roll_rotation
from proba.matches import ImageInfo, Matches
from proba.objective import PackedMatches
from proba.solver.options import SolverOptions


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Everything that stays constant during a solve. N images, E edges, C cameras."""

    graph: ViewGraph
    tree: Tree
    matches: PackedMatches
    half_side_px: np.ndarray  # [N]
    cameras: CameraSetup
    known_log_tan: torch.Tensor  # [C] float64, of known focal lengths; NaN where they are unknown or ignored
    start_rotation: torch.Tensor  # [N, 3, 3] float64, parent_from_child by quarter turns
    seed: int
    """Seed of the order of the matches and of the minibatches."""

    @property
    def n_images(self) -> int:
        return len(self.graph.images)

    @property
    def n_cameras(self) -> int:
        return self.cameras.n_cameras

    @property
    def camera_of_image(self) -> torch.Tensor:
        """[N] int64"""
        return torch.from_numpy(self.cameras.camera_of_image)


def make_problem(
    matches: Matches,
    graph: ViewGraph,
    options: SolverOptions,
    *,
    cameras: CameraSetup | None = None,
    seed: int = 0,
) -> Problem:
    """Pack the matches of a view graph and find quarter-turn rolls. `cameras`: those of `make_setup` by default."""
    infos = [matches.images[k] for k in graph.images]
    cameras = cameras or make_setup(infos)
    half_side_px = np.array([info.half_side_px for info in infos])  # [N]
    half_of_camera = np.zeros(cameras.n_cameras)  # [C], the same in all images of a camera
    half_of_camera[cameras.camera_of_image] = half_side_px
    turns = image_rolls(matches, graph) if options.roll else np.zeros(len(infos), int)
    world = np.stack([roll_rotation(int(q)) for q in turns])  # [N, 3, 3] world_from_cam
    parent = np.where(graph.parent < 0, graph.root, graph.parent)
    # Only relative turns matter: the root stays the identity.
    start_rotation = world[parent].transpose(0, 2, 1) @ world
    return Problem(
        graph=graph,
        tree=Tree(graph.parent),
        matches=pack_matches(matches, graph, max_matches=options.max_matches, seed=seed),
        half_side_px=half_side_px,
        cameras=cameras,
        known_log_tan=torch.from_numpy(np.log(half_of_camera / cameras.known_focal_px)),
        start_rotation=torch.from_numpy(start_rotation),
        seed=seed,
    )


def pack_matches(matches: Matches, graph: ViewGraph, *, max_matches: int, seed: int) -> PackedMatches:
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
        order = np.random.default_rng([seed, 1, e]).permutation(len(u_i))[:max_matches]
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


def normalise(points_px: np.ndarray, info: ImageInfo) -> np.ndarray:
    """Pixels to coordinates about the image centre in units of half the longest side, [M, 2] float32."""
    centre = np.array([info.width / 2, info.height / 2], np.float64)
    return ((points_px - centre) / info.half_side_px).astype(np.float32)
