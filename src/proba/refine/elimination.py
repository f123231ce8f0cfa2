"""In which order the nodes of a sparse system are eliminated, and in which dense fronts: the plan of its factor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.sparse import csc_matrix, csr_array
from scipy.sparse.linalg import splu

from proba.refine.block_matrix import Blocks

MOVE, FRONT = 30.0, 1e6
"""What it costs to move a number of a front, and a front by itself, in multiplications of a dense factorisation."""
CLEARLY = 0.5
"""A sparse factorisation is made where it costs less than this part of the dense one."""
KEPT = 4
"""Plans that are kept."""


@dataclass(frozen=True, eq=False)
class Front:
    """Columns that are eliminated together, in a dense matrix of their own and of those that they change."""

    own: np.ndarray  # [k], columns of the system that go
    rest: np.ndarray  # [r], columns that stay
    parent: int  # the front that takes over what is left; -1: none
    in_parent: np.ndarray  # [r], places of `rest` in the parent's `own` and `rest`
    entries: np.ndarray  # [E, 5], stored block, its first row and column here, and its numbers of rows and columns


@dataclass(frozen=True, eq=False)
class Plan:
    """Fronts, children before their parents."""

    fronts: tuple[Front, ...]
    cost: float
    """In multiplications of a dense factorisation."""

    @property
    def held_bytes(self) -> int:
        """What the factor takes, and at the worst as much again for the fronts that wait for their parents."""
        return sum(8 * (len(f.own) + 2 * len(f.rest)) * (len(f.own) + len(f.rest)) for f in self.fronts)


def plan_elimination(blocks: Blocks) -> Plan | None:
    """How to factorise a matrix of these blocks; None where that is hardly cheaper than to take it as dense.

    Adjustments one after the other often have the same blocks: the last plans are kept.
    """
    return _plan(*(array.astype(np.int64).tobytes() for array in (blocks.size, blocks.start, blocks.column)))


@lru_cache(maxsize=KEPT)
def _plan(*arrays: bytes) -> Plan | None:
    """Of the arrays of the blocks as bytes."""
    blocks = Blocks(*(np.frombuffer(array, np.int64) for array in arrays))
    dense = cost_of_front(0, blocks.n_columns)
    if dense <= 2 * FRONT:
        return None
    nodes = np.flatnonzero(blocks.size)  # [V]; from here on they are counted in the order of their elimination
    place = np.full(len(blocks.size), -1)
    place[nodes] = np.arange(len(nodes))
    row, column = place[blocks.row], place[blocks.column]
    order = _elimination_order(row, column, len(nodes))
    rank = np.argsort(order)  # [V]
    groups = _merged(_columns(rank[row], rank[column], len(nodes)), blocks.size[nodes[order]])
    cost = sum(cost for _, _, cost in groups)
    if cost > CLEARLY * dense:
        return None
    return Plan(_fronts(groups, nodes[order], blocks), cost)


def plan_as_one(blocks: Blocks) -> Plan:
    """The whole matrix as one front."""
    nodes = np.flatnonzero(blocks.size)
    cost = cost_of_front(0, blocks.n_columns)
    return Plan(_fronts([(list(range(len(nodes))), [], cost)], nodes, blocks), cost)


def cost_of_front(rest: int, own: int) -> float:
    """Multiplications to eliminate `own` columns of a dense front."""
    return own**3 / 3 + own**2 * rest + own * rest**2 + MOVE * (own + rest) ** 2 + FRONT


def _elimination_order(row: np.ndarray, column: np.ndarray, n: int) -> np.ndarray:  # [V]
    """Minimum degree; what nearly everything is coupled with, as the intrinsics that all images share, comes last."""
    degree = np.bincount(row, minlength=n) + np.bincount(column, minlength=n)  # [V]
    thin = degree <= max(16.0, 10 * np.sqrt(n))  # [V], as in the approximate minimum degree method
    index = np.cumsum(thin) - 1
    keep = thin[row] & thin[column] & (row != column)
    links = csc_matrix((np.full(int(keep.sum()), -1.0), (index[row[keep]], index[column[keep]])), (thin.sum(),) * 2)
    matrix = (links + links.T).tolil()
    matrix.setdiag(2.0 * degree[thin] + 1)  # dominant, so that the library does not choose other pivots
    order = np.flatnonzero(~thin)
    if thin.any():
        library = splu(matrix.tocsc(), "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        order = np.concatenate([np.flatnonzero(thin)[np.argsort(library.perm_c)], order])
    return order


def _columns(row: np.ndarray, column: np.ndarray, n: int) -> list[set[int]]:
    """Of each node, in the order of elimination, the later ones that it is coupled with when its turn comes."""
    apart = row != column
    first, later = np.minimum(row, column)[apart], np.maximum(row, column)[apart]
    graph = csr_array((np.ones(len(first), bool), (first, later)), shape=(n, n))
    found = [set(graph.indices[graph.indptr[k] : graph.indptr[k + 1]].tolist()) for k in range(n)]
    for k in range(n):
        if found[k]:
            parent = min(found[k])
            found[parent] |= found[k]
            found[parent].discard(parent)
    return found


Group = tuple[list[int], list[int], float]
"""Nodes that are eliminated together, those that stay, and the cost."""


def _merged(later: list[set[int]], size: np.ndarray) -> list[Group]:
    """Nodes in groups, children first: a node takes its children in where the larger front costs less than both."""
    groups: dict[int, Group] = {}  # by the last node
    children: list[list[int]] = [[] for _ in later]
    for k, rest in enumerate(later):
        own, width, below = [k], int(size[k]), sorted(rest)
        stays = int(size[below].sum()) if below else 0
        cost = cost_of_front(stays, width)
        for child in children[k]:
            other, _, apart = groups[child]
            wider = width + int(size[other].sum())
            together = cost_of_front(stays, wider)
            if together <= cost + apart:
                own, width, cost = other + own, wider, together
                del groups[child]
        groups[k] = own, below, cost
        if below:
            children[below[0]].append(k)
    return [groups[k] for k in sorted(groups)]


def _fronts(groups: list[Group], order: np.ndarray, blocks: Blocks) -> tuple[Front, ...]:
    """The groups with columns of the system; `order` [V] are the nodes as they are eliminated."""
    group_of, turn = np.zeros(len(blocks.size), np.int64), np.full(len(blocks.size), -1)  # of each node
    at = 0
    for g, (own, _, _) in enumerate(groups):
        nodes = order[own]
        group_of[nodes], turn[nodes] = g, at + np.arange(len(own))
        at += len(own)
    stored = np.flatnonzero(turn[blocks.row] >= 0)
    row, column = blocks.row[stored], blocks.column[stored]
    home = np.where(turn[row] < turn[column], group_of[row], group_of[column])  # [S]
    by_home = np.argsort(home, kind="stable")
    begin = np.searchsorted(home[by_home], np.arange(len(groups) + 1))
    begins = np.zeros(len(blocks.size), np.int64)  # where a node's columns begin in the present front
    fronts, members = [], []
    for g, (own, below, _) in enumerate(groups):
        own_nodes, rest_nodes = order[own], order[below]
        rest_nodes = rest_nodes[np.argsort(turn[rest_nodes])]
        nodes = np.concatenate([own_nodes, rest_nodes])
        begins[nodes] = np.concatenate([[0], np.cumsum(blocks.size[nodes])])[:-1]
        here = stored[by_home[begin[g] : begin[g + 1]]]
        i, j = blocks.row[here], blocks.column[here]
        entries = np.stack([here, begins[i], begins[j], blocks.size[i], blocks.size[j]], axis=1)
        parent = int(group_of[rest_nodes[0]]) if len(rest_nodes) else -1
        own_columns, rest_columns = (_columns_of(n, blocks) for n in (own_nodes, rest_nodes))
        fronts.append((own_columns, rest_columns, parent, entries))
        members.append(np.concatenate([own_columns, rest_columns]))
    place, made = np.zeros(blocks.n_columns, np.int64), []
    for own_columns, rest_columns, parent, entries in fronts:
        if parent >= 0:
            place[members[parent]] = np.arange(len(members[parent]))
        made.append(Front(own_columns, rest_columns, parent, place[rest_columns], entries))
    return tuple(made)


def _columns_of(nodes: np.ndarray, blocks: Blocks) -> np.ndarray:
    """The columns of nodes, one after the other."""
    size = blocks.size[nodes]
    within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    return np.repeat(blocks.first[nodes], size) + within
