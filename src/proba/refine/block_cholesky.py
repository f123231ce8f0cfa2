"""Cholesky factors of block matrices by dense fronts, and the blocks of the inverse that the matrix has.

A front gathers the columns that are eliminated together and all that they change. What is left of it goes to its
parent (the multifrontal method). The inverse comes back the same way, from the parents to the children (Takahashi's
equations): only the blocks within a front are ever made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dsyrk, dtrsm
from scipy.linalg.lapack import dpotrf, dpotri

from proba.jit import cached_njit
from proba.kernels.rows import LANES
from proba.refine.block_matrix import BlockMatrix
from proba.refine.elimination import Front, Plan


class Factor(Protocol):
    """A factorised system."""

    def solve(self, right: np.ndarray) -> np.ndarray:
        """The solution [D, ...] for a right-hand side of that shape."""


def factorised(matrix: BlockMatrix, plan: Plan | None) -> Factor:
    """The Cholesky factor: sparse with a plan, dense without. Raises LinAlgError where there is none."""
    return DenseFactor(matrix) if plan is None else FrontFactor(matrix, plan)


class DenseFactor:
    """Of the whole matrix."""

    def __init__(self, matrix: BlockMatrix):
        self._factor = cho_factor(matrix.dense(), lower=True, overwrite_a=True, check_finite=False)

    def solve(self, right: np.ndarray) -> np.ndarray:
        return cho_solve(self._factor, right)


@dataclass(frozen=True, eq=False)
class _Panel:
    """What stays of a front: the factor's columns."""

    top: np.ndarray  # [k, k], lower
    below: np.ndarray  # [r, k]


class FrontFactor:
    """By fronts."""

    def __init__(self, matrix: BlockMatrix, plan: Plan):
        self._blocks, self._fronts = matrix.blocks, plan.fronts
        self._panels: list[_Panel] = []
        waiting: dict[int, list[tuple[Front, np.ndarray]]] = {}  # by the parent
        for number, front in enumerate(plan.fronts):
            panel, left = _eliminated(front, matrix.values, waiting.pop(number, []))
            self._panels.append(panel)
            if front.parent >= 0:
                waiting.setdefault(front.parent, []).append((front, left))

    def solve(self, right: np.ndarray) -> np.ndarray:
        x = np.array(right.reshape(len(right), -1), order="F")  # [D, m]
        for front, panel in zip(self._fronts, self._panels, strict=True):
            x[front.own] = done = dtrsm(1.0, panel.top, x[front.own], lower=1)
            x[front.rest] -= panel.below @ done
        for front, panel in zip(reversed(self._fronts), reversed(self._panels), strict=True):
            now = x[front.own] - panel.below.T @ x[front.rest]
            x[front.own] = dtrsm(1.0, panel.top, now, lower=1, trans_a=1)
        return x.reshape(right.shape)

    @property
    def pivots(self) -> np.ndarray:  # [D]
        """What is left of each diagonal number when its turn comes."""
        pivots = np.zeros(self._blocks.n_columns)
        for front, panel in zip(self._fronts, self._panels, strict=True):
            pivots[front.own] = np.diag(panel.top) ** 2
        return pivots

    def inverse(self) -> BlockMatrix:
        """The stored blocks of the inverse."""
        values = np.zeros((self._blocks.n_stored, LANES, LANES))
        whole: dict[int, np.ndarray] = {}  # inverses [m, m] of fronts whose children are still to come
        children = np.bincount([front.parent + 1 for front in self._fronts], minlength=len(self._fronts) + 1)[1:]
        for number in reversed(range(len(self._fronts))):
            front, parent = self._fronts[number], self._fronts[number].parent
            around = whole[parent][np.ix_(front.in_parent, front.in_parent)] if parent >= 0 else np.zeros((0, 0))
            whole[number] = _inverse_of_front(self._panels[number], around)
            _take(values, whole[number], front.entries)
            if not children[number]:
                del whole[number]
            if parent >= 0:
                children[parent] -= 1
                if not children[parent]:
                    del whole[parent]
        return BlockMatrix(self._blocks, values)


def _eliminated(
    front: Front, values: np.ndarray, children: list[tuple[Front, np.ndarray]]
) -> tuple[_Panel, np.ndarray]:
    """The factor's columns of a front, and what is left [r, r] (lower) for its parent."""
    own, rest = len(front.own), len(front.rest)
    top, below, left = (np.zeros(shape, order="F") for shape in ((own, own), (rest, own), (rest, rest)))
    _put(top, below, values, front.entries)
    for child, update in children:
        _add(top, below, left, update, child.in_parent)
    top, problem = dpotrf(top, lower=1, clean=1, overwrite_a=1)
    if problem:
        raise LinAlgError("the matrix is not positive definite")
    if rest:
        below = dtrsm(1.0, top, below, side=1, lower=1, trans_a=1, overwrite_b=1)
        left = dsyrk(-1.0, below, beta=1.0, c=left, lower=1, overwrite_c=1)
    return _Panel(top, below), left


def _inverse_of_front(panel: _Panel, around: np.ndarray) -> np.ndarray:
    """The inverse [m, m] of the matrix at the columns of a front, from that at the columns that stay [r, r]."""
    own = len(panel.top)
    alone, _ = dpotri(panel.top, lower=1)
    whole = np.zeros((own + len(around),) * 2)
    whole[:own, :own] = np.tril(alone) + np.tril(alone, -1).T
    if len(around):
        moves = dtrsm(1.0, panel.top, panel.below, side=1, lower=1)  # [r, k]
        mixed = -around @ moves
        whole[:own, :own] -= moves.T @ mixed
        whole[own:, :own], whole[:own, own:], whole[own:, own:] = mixed, mixed.T, around
    return whole


@cached_njit(nogil=True)
def _put(top, below, values, entries):
    """The stored blocks of a front, written in place to the lower triangle."""
    own = len(top)
    for e in range(len(entries)):
        block, row, column, rows, columns = entries[e]
        for a in range(rows):
            for b in range(columns):
                i, j = max(row + a, column + b), min(row + a, column + b)
                if i < own:
                    top[i, j] = values[block, a, b]
                else:
                    below[i - own, j] = values[block, a, b]


@cached_njit(nogil=True)
def _take(values, whole, entries):
    """The stored blocks of a front, read from its matrix."""
    for e in range(len(entries)):
        block, row, column, rows, columns = entries[e]
        for a in range(rows):
            for b in range(columns):
                values[block, a, b] = whole[row + a, column + b]


@cached_njit(nogil=True)
def _add(top, below, left, update, place):
    """What a child has left, added in place; `place` ascends."""
    own = len(top)
    for b in range(len(place)):
        j = place[b]
        for a in range(b, len(place)):
            i = place[a]
            if i < own:
                top[i, j] += update[a, b]
            elif j < own:
                below[i - own, j] += update[a, b]
            else:
                left[i - own, j - own] += update[a, b]
