"""The normal equations of images, with these tied to the frames and the sensors of their rig.

The poses of the images are functions of fewer unknowns: `image step = tie @ rig step`. Points do not care by what the
cameras are moved, so that the system of the images with the points eliminated, S, becomes tie^T S tie, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from proba.kernels.rows import LANES
from proba.refine.block_matrix import BlockMatrix, Blocks
from proba.refine.bundle import Bundle
from proba.refine.elimination import Plan, plan_elimination
from proba.refine.normal_equations import N_POSE, Equations, Reduced
from proba.refine.rig import Rig, stepped


class Tie:
    """The unknowns of a bundle with a rig: the poses of its frames, then of its free sensors, then the intrinsics.

    Nodes of a system are counted in the same order; sensors that are held have no columns.
    """

    def __init__(self, rig: Rig, equations: Equations):
        self.images = equations.blocks
        prior = equations.rig_prior  # [S, 6]
        self._prior = prior if len(prior) else np.zeros((rig.n_sensors, N_POSE))
        self.n_frames, self.n_sensors, n_images = rig.n_frames, rig.n_sensors, len(rig.frame_of_image)
        own = np.arange(len(self.images.size))  # [B]
        first = np.concatenate([rig.frame_of_image, own[n_images:] - n_images + self.n_frames + self.n_sensors])
        sensor = np.where(rig.free[rig.sensor_of_image], self.n_frames + rig.sensor_of_image, -1)
        second = np.concatenate([sensor, np.full(len(own) - n_images, -1)])
        self._node = np.stack([first, second], axis=1)  # [B, 2], -1: none
        sizes = [np.full(self.n_frames, N_POSE), np.where(rig.free, N_POSE, 0), self.images.size[n_images:]]
        self._terms = list(self._products())
        self.blocks = self._blocks(np.concatenate(sizes).astype(np.int64))
        self.shift = self.blocks.n_columns - self.images.n_columns
        """How much farther right the columns of the intrinsics are than those of the system of the images."""

    def _products(self):
        """Which stored blocks, times which columns of the tie, add to a block of the tied system: (stored [K], node
        numbers of row and column [K] each, and which of the two nodes of its image each is)."""
        row, column = self.images.row, self.images.column
        for a in range(2):
            for b in range(2):
                high, low = self._node[row, a], self._node[column, b]
                there = (high >= 0) & (low >= 0) & ((row != column) | (high >= low))
                stored = np.flatnonzero(there)
                yield stored, high[stored], low[stored], a, b

    def _blocks(self, size: np.ndarray) -> Blocks:
        """The lower triangle of all blocks that are written to."""
        count = len(size)
        ends = [np.stack([np.maximum(h, w), np.minimum(h, w)]) for _, h, w, _, _ in self._terms]
        nodes = np.flatnonzero(size)
        row, column = np.concatenate([*ends, np.stack([nodes, nodes])], axis=1)
        key = np.unique(row * count + column)
        start = np.searchsorted(key // count, np.arange(count + 1))
        return Blocks(size, start.astype(np.int64), (key % count).astype(np.int64))

    @cached_property
    def plan(self) -> Plan | None:
        """How the tied system is factorised; None: as a dense one."""
        return plan_elimination(self.blocks)

    @cached_property
    def _places(self) -> list[np.ndarray]:
        """Where the products of each term are stored."""
        key = self.blocks.row * len(self.blocks.size) + self.blocks.column
        count = len(self.blocks.size)
        return [np.searchsorted(key, np.maximum(h, w) * count + np.minimum(h, w)) for _, h, w, _, _ in self._terms]

    def at(self, bundle: Bundle) -> TieAt:
        """The derivatives where the bundle is now."""
        rig, n = bundle.rig, bundle.n_images
        assert rig is not None
        frame = rig.frames(bundle.cam_from_world)[rig.frame_of_image]  # [N, 4, 4]
        sensor, arm = rig.sensor_from_rig[rig.sensor_of_image], rig.arms[rig.sensor_of_image]  # [N, 4, 4], [N, 3]
        by = np.zeros((len(self.images.size), 2, LANES, LANES))
        by[n:, 0] = np.eye(LANES)
        world_from_rig = frame[:, :3, :3].transpose(0, 2, 1)  # [N, 3, 3]
        by[:n, 0, :3, :3], by[:n, 0, 3:6, 3:6] = sensor[:, :3, :3], np.eye(3)
        by[:n, 0, 3:6, :3] = world_from_rig @ _cross(arm)
        by[:n, 1, :3, :3], by[:n, 1, 3:6, 3:6] = np.eye(3), world_from_rig
        return TieAt(self, by)

    @property
    def prior(self) -> np.ndarray:  # [D']
        """What what is known of the sensors adds to the diagonal."""
        return self._of_sensors(self._prior)

    def pull(self, rig: Rig) -> np.ndarray:  # [D']
        """What it adds to the gradient."""
        return self._of_sensors(self._prior * rig.residual())

    def _of_sensors(self, values: np.ndarray) -> np.ndarray:
        full = np.zeros((len(self.blocks.size), LANES))
        full[self.n_frames : self.n_frames + self.n_sensors, :N_POSE] = values
        return full[self.blocks.counts]

    def moved(self, bundle: Bundle, step: np.ndarray) -> tuple[np.ndarray, Rig]:
        """Poses [N, 4, 4] and rig after a step [D'] of the tied unknowns: exactly on the rig again."""
        assert bundle.rig is not None
        full = self.blocks.padded(step)[:, :N_POSE]  # [B', 6]
        frames = stepped(bundle.rig.frames(bundle.cam_from_world), full[: self.n_frames])
        rig = bundle.rig.moved(full[self.n_frames : self.n_frames + self.n_sensors])
        return rig.images(frames), rig


@dataclass(frozen=True, eq=False)
class TieAt:
    """The derivatives of the image steps by those of the tied unknowns."""

    tie: Tie
    by: np.ndarray  # [B, 2, LANES, LANES], of each node of the images by its two nodes here

    def reduced(self, whole: Reduced, rig: Rig) -> Reduced:
        """The equations of the tied unknowns, with the priors of the sensors."""
        tie = self.tie
        pull = tie.pull(rig)
        return Reduced(
            self._system(whole.system).raised(tie.prior),
            self.vectors(whole.gradients),
            self.vectors(whole.pull) + pull,
            self.vectors(whole.slope) + pull,
            self._summed(self.by**2, whole.diagonal),
        )

    def _system(self, matrix: BlockMatrix) -> BlockMatrix:
        """tie^T matrix tie."""
        tie, stored = self.tie, matrix.values
        values = np.zeros((tie.blocks.n_stored, LANES, LANES))
        for (place, high, low, a, b), target in zip(tie._terms, tie._places, strict=True):
            row, column = tie.images.row[place], tie.images.column[place]
            part = self.by[row, a].transpose(0, 2, 1) @ stored[place] @ self.by[column, b]  # [K, LANES, LANES]
            part = np.where((high < low)[:, None, None], part.transpose(0, 2, 1), part)
            twice = (high == low) & (row != column)
            part[twice] += part[twice].transpose(0, 2, 1)
            np.add.at(values, target, part)
        return BlockMatrix(tie.blocks, values)

    def vectors(self, of_images: np.ndarray) -> np.ndarray:  # [..., D']
        """tie^T times vectors [..., D]."""
        return self._summed(self.by, of_images)

    def _summed(self, by: np.ndarray, of_images: np.ndarray) -> np.ndarray:  # [..., D']
        tie = self.tie
        padded = tie.images.padded(np.atleast_2d(of_images))  # [G, B, LANES]
        total = np.zeros((len(tie.blocks.size), len(padded), LANES))
        for a in range(2):
            there = np.flatnonzero(tie._node[:, a] >= 0)
            np.add.at(total, tie._node[there, a], np.einsum("bij,gbi->bgj", by[there, a], padded[:, there]))
        found = total.transpose(1, 0, 2)[:, tie.blocks.counts]  # [G, D']
        return found.reshape(*of_images.shape[:-1], -1)

    def images(self, step: np.ndarray) -> np.ndarray:  # [D]
        """The step of the images and intrinsics for one of the tied unknowns [D']."""
        tie = self.tie
        padded, total = tie.blocks.padded(step), np.zeros((len(tie.images.size), LANES))
        for a in range(2):
            there = np.flatnonzero(tie._node[:, a] >= 0)
            total[there] += np.einsum("bij,bj->bi", self.by[there, a], padded[tie._node[there, a]])
        return total[tie.images.counts]

    def covariance(self, tied: BlockMatrix) -> BlockMatrix:
        """tie C tie^T where the system of the images has blocks, from a covariance with those of the tied one."""
        tie = self.tie
        values = np.zeros((tie.images.n_stored, LANES, LANES))
        for (place, high, low, a, b), source in zip(self._all_terms(), self._all_places(), strict=True):
            block = tied.values[source]
            block = np.where((high < low)[:, None, None], block.transpose(0, 2, 1), block)
            row, column = tie.images.row[place], tie.images.column[place]
            values[place] += self.by[row, a] @ block @ self.by[column, b].transpose(0, 2, 1)
        return BlockMatrix(tie.images, values)

    def _all_terms(self):
        """As those of the system, with both orders of the two nodes of one image."""
        tie = self.tie
        for a in range(2):
            for b in range(2):
                high, low = tie._node[tie.images.row, a], tie._node[tie.images.column, b]
                place = np.flatnonzero((high >= 0) & (low >= 0))
                yield place, high[place], low[place], a, b

    def _all_places(self):
        blocks = self.tie.blocks
        count = len(blocks.size)
        key = blocks.row * count + blocks.column
        for _, high, low, _, _ in self._all_terms():
            yield np.searchsorted(key, np.maximum(high, low) * count + np.minimum(high, low))


def _cross(vectors: np.ndarray) -> np.ndarray:  # [K, 3, 3]
    """The matrices of the cross products with vectors [K, 3]."""
    x, y, z = vectors.T
    zero = np.zeros_like(x)
    return np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)
