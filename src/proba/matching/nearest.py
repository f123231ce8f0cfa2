"""Mutual nearest neighbours of descriptors, by brute force on 8 bits.

Descriptors of length 174 have products below 2^15, and by Cauchy and Schwarz so has every part of such a sum. So whole
products fit into 16 bits and nothing overflows: one instruction of AVX2 multiplies and adds 32 pairs of bytes. With all
128 dimensions of SIFT this takes a quarter of the time of a float32 product over 66 dimensions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from proba.jit import cached_njit

LENGTH = 174  # of a descriptor
SCALES = LENGTH + np.linspace(-1, 1, 9, dtype=np.float32)  # rounding 128 numbers adds less than 6, and 181^2 < 2^15
MAX_DIMENSIONS = 128
GROUP = 6  # rows compared at a time: 12 sums, 2 vectors of columns and a row fill the 16 registers
TILE = 16  # columns compared at a time
GROUPS_OF_BLOCK = 8  # their best values stay in the fastest cache while all columns pass by
STEP = 4  # dimensions at a time
WORST = np.int16(-(2**15))  # below every product
AVX2 = bool(binding.get_host_cpu_features().get("avx2"))
INT32 = ir.IntType(32)
BYTES, SHORTS = ir.VectorType(ir.IntType(8), 32), ir.VectorType(ir.IntType(16), 16)
# Sums of neighbours come in the order of the instruction `vphaddw`: this is the column of a tile in each lane.
COLUMN_OF_LANE = np.array([0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15])


class Neighbours(NamedTuple):
    """Mutual nearest neighbours."""

    rows: np.ndarray  # [M] int64, into the first set
    columns: np.ndarray  # [M] int64, into the second set
    best: np.ndarray  # [M] float32, cosine to the nearest
    second: np.ndarray  # [M] float32, cosine to the second nearest, from the first set's side


def codes(descriptors: np.ndarray) -> np.ndarray:  # [K, D] int8, or uint8 if nothing is negative
    """Unit descriptors [K, D], D <= 128, on 8 bits.

    Rounding changes the length by 0.2 %, which would matter more than anything else for the small distances of right
    matches. So each is scaled a little so that its length comes out right.
    """
    if descriptors.shape[1] > MAX_DIMENSIONS:
        raise ValueError(f"descriptors have {descriptors.shape[1]} dimensions, at most {MAX_DIMENSIONS} are possible")
    descriptors = descriptors.astype(np.float32, copy=False)
    found = np.zeros(descriptors.shape, np.int8)
    off = np.full(len(found), np.inf, np.float32)  # [K]
    for scale in SCALES:
        values = np.rint(descriptors * scale).clip(-127, 127)
        error = np.abs(np.einsum("kd,kd->k", values, values) - np.float32(LENGTH**2))  # [K]
        better = error < off
        found[better], off[better] = values[better], error[better]
    return found if (found < 0).any() else found.view(np.uint8)


def mutual_nearest(one: np.ndarray, other: np.ndarray) -> Neighbours:
    """Of `codes` [K, D] and [L, D]: pairs that are each other's nearest; of equally near ones, one."""
    if one.dtype != other.dtype:
        one, other = one.astype(np.int8), other.astype(np.int8)
    rows, columns = _padded(one, GROUP), _padded(other, TILE)
    top, second = np.full((2, len(rows), TILE), WORST)  # [K', lane]
    tile = np.zeros((len(rows), TILE), np.int16)  # [K', lane] where the top is
    column_top = np.full((len(columns) // TILE, TILE), WORST)  # [tile, lane]
    _scan(rows, _packed(columns), top, second, tile, column_top)
    every = np.arange(len(one))
    lane = top[: len(one)].argmax(axis=1)  # [K]
    best = top[every, lane]  # [K]
    nearest = tile[every, lane].astype(np.int64) * TILE + COLUMN_OF_LANE[lane]  # [K]
    top[every, lane] = second[every, lane]
    column_best = column_top[:, np.argsort(COLUMN_OF_LANE)].reshape(-1)  # [L']
    mutual = every[(nearest < len(other)) & (column_best[nearest] == best)] if len(columns) else every[:0]
    claimed, first = np.unique(nearest[mutual], return_index=True)
    chosen = mutual[first]
    order = np.argsort(chosen)
    chosen, claimed = chosen[order], claimed[order]
    unit = np.float32(1 / LENGTH**2)
    return Neighbours(chosen, claimed, best[chosen] * unit, top[chosen].max(axis=1, initial=WORST) * unit)


def _padded(values: np.ndarray, multiple: int) -> np.ndarray:
    """Zeros below and to the right: they are far from everything."""
    count, dimensions = values.shape
    padded = np.zeros((-(-count // multiple) * multiple, -(-dimensions // STEP) * STEP), values.dtype)
    padded[:count, :dimensions] = values
    return padded


def _packed(columns: np.ndarray) -> np.ndarray:  # [L' * D']
    """Four dimensions of eight columns after each other, as one vector instruction wants them."""
    count, dimensions = columns.shape
    fours = columns.view(np.int32).reshape(count // 8, 8, dimensions // STEP)
    return np.ascontiguousarray(fours.transpose(0, 2, 1)).view(columns.dtype).reshape(-1)


@cached_njit(nogil=True)
def _scan(rows, packed, top, second, tile_of, column_top):
    """Best and second best product of each row [K', lane], the tile of the best, and the best of each column."""
    rows_of_block = GROUP * GROUPS_OF_BLOCK
    for block in range(0, len(rows), rows_of_block):
        for tile in range(len(column_top)):
            for first in range(block, min(block + rows_of_block, len(rows)), GROUP):
                _compare(rows, first, packed, tile, top, second, tile_of, column_top)


def _compare_group(typingctx, rows, first, packed, tile, top, second, tile_of, column_top):
    """A group of rows from `first` on with the columns of a tile."""

    def codegen(context, builder, sig, args):
        def array(index):
            return context.make_array(sig.args[index])(context, builder, args[index])

        def pointer(index, at, kind):
            return builder.bitcast(builder.gep(array(index).data, [at], inbounds=True), kind.as_pointer())

        first, tile = args[1], args[3]
        sums = _sums(builder, pointer, first, tile, builder.extract_value(array(0).shape, 1), sig.args[0].dtype)
        tiles = _repeated(builder, builder.trunc(tile, SHORTS.element), SHORTS)
        column_place = pointer(7, builder.mul(tile, tile.type(TILE)), SHORTS)
        column_best = builder.load(column_place, align=2)
        for row, (left, right) in enumerate(sums):
            value = _neighbours_added(builder, left, right, 2 * COLUMN_OF_LANE)
            lanes = builder.mul(builder.add(first, first.type(row)), first.type(TILE))
            places = [pointer(index, lanes, SHORTS) for index in (4, 5, 6)]
            best, next_best, best_tile = (builder.load(place, align=2) for place in places)
            better = builder.icmp_signed(">", value, best)
            lesser = builder.select(better, best, value)
            for new, place in zip(
                (
                    builder.select(better, value, best),
                    builder.select(builder.icmp_signed(">", lesser, next_best), lesser, next_best),
                    builder.select(better, tiles, best_tile),
                ),
                places,
                strict=True,
            ):
                builder.store(new, place, align=2)
            column_best = builder.select(builder.icmp_signed(">", value, column_best), value, column_best)
        builder.store(column_best, column_place, align=2)
        return context.get_dummy_value()

    return types.void(rows, types.intp, packed, types.intp, top, second, tile_of, column_top), codegen


_compare: Any = intrinsic(_compare_group)


def _sums(builder, pointer, first, tile, dimensions, kind):
    """Products of GROUP rows with two vectors of eight columns, each still in two parts side by side."""
    integer = dimensions.type
    zero = ir.Constant(SHORTS, None)
    places = [[cgutils.alloca_once(builder, SHORTS) for _ in range(2)] for _ in range(GROUP)]
    for left, right in places:
        builder.store(zero, left)
        builder.store(zero, right)
    start = builder.mul(tile, builder.mul(dimensions, integer(TILE)))
    with cgutils.for_range(builder, builder.udiv(dimensions, integer(STEP))) as loop:
        left = builder.add(start, builder.mul(loop.index, integer(8 * STEP)))
        right = builder.add(left, builder.mul(dimensions, integer(8)))
        columns = [builder.load(pointer(2, at, BYTES), align=1) for at in (left, right)]
        for row in range(GROUP):
            at = builder.mul(builder.add(first, integer(row)), dimensions)
            at = builder.add(at, builder.mul(loop.index, integer(STEP)))
            four = builder.load(pointer(0, at, INT32), align=1)
            repeated = builder.bitcast(_repeated(builder, four, ir.VectorType(INT32, 8)), BYTES)
            for column, place in zip(columns, places[row], strict=True):
                products = _products(builder, repeated, column, signed=kind == types.int8)
                builder.store(builder.add(builder.load(place), products), place)
    return [[builder.load(place) for place in two] for two in places]


def _products(builder, row, column, *, signed):
    """Element by element, neighbours added: 16 numbers of 16 bits."""
    if not AVX2:
        wide = ir.VectorType(SHORTS.element, BYTES.count)
        both = builder.mul(builder.sext(row, wide), builder.sext(column, wide))
        return _neighbours_added(builder, both, both, range(0, BYTES.count, 2))
    if signed:  # the instruction wants one side without signs: the other takes them over
        zero = ir.Constant(BYTES, None)
        row = _call(builder, "llvm.x86.avx2.psign.b", BYTES, row, column)
        column = builder.select(builder.icmp_signed("<", column, zero), builder.sub(zero, column), column)
    return _call(builder, "llvm.x86.avx2.pmadd.ub.sw", SHORTS, column, row)


def _neighbours_added(builder, x, y, firsts):
    """Each element of x and y together that `firsts` names plus the one after it."""
    return builder.add(_shuffled(builder, x, y, firsts), _shuffled(builder, x, y, [k + 1 for k in firsts]))


def _repeated(builder, value, kind):
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, INT32(0))
    return _shuffled(builder, first, first, [0] * kind.count)


def _shuffled(builder, x, y, index):
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(INT32, len(index)), [int(k) for k in index]))


def _call(builder, name, result, *values):
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)


def distance_ratio(best: np.ndarray, second: np.ndarray) -> np.ndarray:  # [M] float32
    """Lowe's ratio of the distances of unit descriptors with these cosines; 1 where both are at no distance."""
    nearest, next_ = (2 - 2 * best).clip(0), (2 - 2 * second).clip(0)
    return np.sqrt(np.divide(nearest, next_, out=np.ones_like(nearest), where=next_ > 0))
