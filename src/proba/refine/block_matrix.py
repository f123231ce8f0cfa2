"""Symmetric matrices of which only some blocks are stored: of the camera poses and of the intrinsics of the cameras."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.sparse import block_array, csr_array

from proba.jit import cached_njit
from proba.kernels.rows import LANES

BLOCK = LANES * LANES
"""Numbers of a stored block: a row of it is a vector, and one line of the cache. The first rows and columns count."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Which blocks of the lower triangle are stored, row by row. A node is what has its columns together."""

    size: np.ndarray  # [B] int64, columns of each node, at most LANES
    start: np.ndarray  # [B + 1] int64, the blocks of row b are start[b]:start[b + 1]
    column: np.ndarray  # [S] int64, ascending within a row; the last one is the diagonal, if the node has columns

    @cached_property
    def first(self) -> np.ndarray:  # [B], first column of each node
        return np.concatenate([[0], np.cumsum(self.size)])[:-1]

    @property
    def n_columns(self) -> int:
        return int(self.size.sum())

    @property
    def n_stored(self) -> int:
        return len(self.column)

    @cached_property
    def row(self) -> np.ndarray:  # [S]
        return np.repeat(np.arange(len(self.size)), np.diff(self.start))

    @cached_property
    def diagonal(self) -> np.ndarray:  # [B'], the stored blocks on the diagonal
        return np.flatnonzero(self.row == self.column)

    @property
    def counts(self) -> np.ndarray:  # [B, LANES] bool, which columns of a node are not padding
        return np.arange(LANES) < self.size[:, None]

    def padded(self, vectors: np.ndarray) -> np.ndarray:  # [..., B, LANES]
        """Vectors [..., D] with zeros for the padding."""
        full = np.zeros((*vectors.shape[:-1], len(self.size), LANES))
        full[..., self.counts] = vectors
        return full


@dataclass(frozen=True, eq=False)
class BlockMatrix:
    """A symmetric matrix [D, D]. What is not stored is zero, or not of interest."""

    blocks: Blocks
    values: np.ndarray  # [S, LANES, LANES]

    def dense(self) -> np.ndarray:  # [D, D]
        """All of it."""
        full, blocks = np.zeros((self.blocks.n_columns,) * 2), self.blocks
        _spread(full, self.values, blocks.row, blocks.column, blocks.first, blocks.size)
        return full

    @property
    def diagonal(self) -> np.ndarray:  # [D]
        blocks, full = self.blocks, np.zeros(self.blocks.counts.shape)
        full[blocks.row[blocks.diagonal]] = np.einsum("bii->bi", self.values[blocks.diagonal])
        return full[blocks.counts]

    def raised(self, diagonal: np.ndarray) -> BlockMatrix:
        """The matrix with `diagonal` [D] added to its own."""
        blocks, values = self.blocks, self.values.copy()
        inner = np.arange(LANES)
        values[blocks.diagonal[:, None], inner, inner] += blocks.padded(diagonal)[blocks.row[blocks.diagonal]]
        return replace(self, values=values)

    def scaled(self, factor: np.ndarray) -> BlockMatrix:
        """The matrix with its rows and its columns multiplied by `factor` [D]."""
        blocks, full = self.blocks, self.blocks.padded(factor)
        return replace(self, values=self.values * full[blocks.row, :, None] * full[blocks.column, None, :])


def taken_from(dense: np.ndarray, blocks: Blocks) -> BlockMatrix:
    """The stored blocks of a symmetric matrix [D, D]."""
    values = np.zeros((blocks.n_stored, LANES, LANES))
    _gather(values, dense, blocks.row, blocks.column, blocks.first, blocks.size)
    return BlockMatrix(blocks, values)


def coupled_blocks(
    offset: np.ndarray, image: np.ndarray, camera_of_image: np.ndarray, free_of_camera: np.ndarray, n_pose: int
) -> Blocks:
    """What points couple whose observations are `image` [U], those of point t at offset[t]:offset[t + 1].

    The nodes are the poses of all images, with `n_pose` columns, and then the intrinsics of the cameras, of which
    `free_of_camera` [C] are free.
    """
    n_images, n_cameras = len(camera_of_image), len(free_of_camera)
    start, column = images_in_common(offset, image, n_images)
    shares = csr_array((np.ones(len(column), bool), column, start), shape=(n_images, n_images))  # lower, with diagonal
    shares = shares + shares.T
    wide = np.flatnonzero(free_of_camera > 0)
    member = np.isin(camera_of_image, wide)
    of_camera = csr_array(
        (np.ones(int(member.sum()), bool), (camera_of_image[member], np.flatnonzero(member))),
        shape=(n_cameras, n_images),
    )
    with_poses = of_camera @ shares  # [C, N]
    with_cameras = with_poses @ of_camera.T  # [C, C]
    whole = block_array([[shares, None], [with_poses, with_cameras]], format="coo")
    keep = whole.col <= whole.row
    row, column = whole.row[keep].astype(np.int64), whole.col[keep].astype(np.int64)
    order = np.lexsort((column, row))
    size = np.concatenate([np.full(n_images, n_pose), free_of_camera]).astype(np.int64)
    start = np.searchsorted(row[order], np.arange(len(size) + 1))
    return Blocks(size, start.astype(np.int64), column[order])


def images_in_common(offset: np.ndarray, image: np.ndarray, n_images: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows [N + 1] and columns [S] of the lower triangle, with the diagonal: which images see a point together."""
    point = np.repeat(np.arange(len(offset) - 1), np.diff(offset))  # [U]
    order = np.argsort(image, kind="stable")
    begin = np.searchsorted(image[order], np.arange(n_images + 1))  # [N + 1]
    return _neighbours(offset, image, point[order], begin)


@cached_njit(nogil=True)
def _neighbours(offset, image, point, begin):
    """Rows of the lower triangle, with the diagonal: the images that share a point with each one. `point` are those of
    image n at begin[n]:begin[n + 1]."""
    n_images = len(begin) - 1
    start, mark = np.zeros(n_images + 1, np.int64), np.full(n_images, -1, np.int64)
    column, row = np.zeros(16 * n_images + 16, np.int64), np.zeros(n_images, np.int64)
    for n in range(n_images):
        mark[n], row[0], count = n, n, 1
        for k in range(begin[n], begin[n + 1]):
            for u in range(offset[point[k]], offset[point[k] + 1]):
                other = image[u]
                if other < n and mark[other] != n:
                    mark[other], row[count] = n, other
                    count += 1
        start[n + 1] = start[n] + count
        if start[n + 1] > len(column):
            longer = np.zeros(max(2 * len(column), start[n + 1]), np.int64)
            longer[: start[n]] = column[: start[n]]
            column = longer
        column[start[n] : start[n + 1]] = np.sort(row[:count])
    return start, column[: start[n_images]].copy()


@cached_njit(nogil=True)
def place_of(start, column, row, at):
    """Which stored block stands in `row` and in column `at`. It must be one; rows without gaps need no search."""
    low, high = start[row], start[row + 1]
    high = min(high, low + at - column[low] + 1)
    if column[high - 1] == at:
        return high - 1
    while low < high:
        middle = (low + high) // 2
        if column[middle] < at:
            low = middle + 1
        else:
            high = middle
    return low


@cached_njit(nogil=True)
def _spread(full, values, row, column, first, size):
    """Write the blocks to a dense matrix, in place."""
    for s in range(len(row)):
        for a in range(size[row[s]]):
            for b in range(size[column[s]]):
                full[first[row[s]] + a, first[column[s]] + b] = values[s, a, b]
                full[first[column[s]] + b, first[row[s]] + a] = values[s, a, b]


@cached_njit(nogil=True)
def _gather(values, full, row, column, first, size):
    """Read the blocks from a dense matrix, in place."""
    for s in range(len(row)):
        for a in range(size[row[s]]):
            for b in range(size[column[s]]):
                values[s, a, b] = full[first[row[s]] + a, first[column[s]] + b]
