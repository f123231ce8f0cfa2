"""One connected piece of the view graph, packed for the kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from proba.cameras import CameraSetup, make_setup
from proba.geometry import Tree, se3
from proba.graph import ViewGraph, image_rolls, roll_rotation
from proba.known_poses import KnownPoses
from proba.matches import ImageInfo, Matches
from proba.objective import PackedMatches
from proba.solver.options import SolverOptions


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Everything that stays constant during a solve. N images, E edges, C cameras."""

    graph: ViewGraph
    tree: Tree
    """Whom each pose is relative to: the graph's tree, or the root alone."""
    matches: PackedMatches
    half_side_px: np.ndarray  # [N]
    cameras: CameraSetup
    known_log_tan: torch.Tensor  # [C] float64, of known focal lengths; NaN where they are unknown or ignored
    start: torch.Tensor  # [N, 4, 4] float64, parent_from_child at the start: identity up to quarter turns
    seed: int
    """Seed of the order of the matches and of the minibatches."""
    known: KnownPoses | None = None
    """Poses that one world begins with."""

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

    @property
    def camera_extent(self) -> torch.Tensor:
        """Half width and half height of each camera's images in units of half the longest side, [C, 2] float64."""
        extent = torch.ones(self.n_cameras, 2, dtype=torch.float64)
        extent[self.camera_of_image] = self.matches.extent.double()  # the same in all images of a camera
        return extent


def make_problem(
    matches: Matches,
    graph: ViewGraph,
    options: SolverOptions,
    *,
    cameras: CameraSetup | None = None,
    known: KnownPoses | None = None,
    seed: int = 0,
) -> Problem:
    """Pack the matches of a view graph and find quarter-turn rolls. `cameras`: those of `make_setup` by default."""
    infos = [matches.images[k] for k in graph.images]
    cameras = cameras or make_setup(infos)
    half_side_px = np.array([info.half_side_px for info in infos])  # [N]
    half_of_camera = np.zeros(cameras.n_cameras)  # [C], the same in all images of a camera
    half_of_camera[cameras.camera_of_image] = half_side_px
    turns = image_rolls(matches, graph) if options.roll else np.zeros(len(infos), int)
    parent = graph.parent if options.poses == "relative" else np.full(len(infos), graph.root)
    tree = Tree(parent)
    return Problem(
        graph=graph,
        tree=tree,
        matches=pack_matches(matches, graph, max_matches=options.max_matches, seed=seed),
        half_side_px=half_side_px,
        cameras=cameras,
        known_log_tan=torch.from_numpy(np.log(half_of_camera / cameras.known_focal_px)),
        start=_start_poses(tree, turns, options.start_sigma, seed),
        seed=seed,
        known=known,
    )


def _start_poses(tree: Tree, turns: np.ndarray, sigma: float, seed: int) -> torch.Tensor:
    """parent_from_child [N, 4, 4] by quarter turns [N], and a random twist."""
    world = np.stack([roll_rotation(int(q)) for q in turns])  # [N, 3, 3] world_from_cam
    # Only relative turns matter: the root stays the identity.
    rotation = torch.from_numpy(world[tree.parent.numpy()].transpose(0, 2, 1) @ world)
    start = se3.from_rotation_translation(rotation, torch.zeros(len(turns), 3, dtype=torch.float64))
    if sigma == 0:
        return start
    twist = torch.from_numpy(np.random.default_rng([seed, 3]).normal(scale=sigma, size=(len(turns), 6)))
    twist[tree.root] = 0
    return start @ se3.exp(twist)


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
