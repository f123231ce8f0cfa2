"""Bilinear reads and writes of interleaved (log depth, log variance) maps, a vector of points at a time.

The four cells around a point are two runs of four floats, one in each of two map rows. A vector holds the runs of
two or four points; transposing four vectors in registers makes a channel of a column one vector over the points.
Whatever is done between the two map rows is done on runs, because that leaves half as many vectors to transpose.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import types
from numba.extending import intrinsic

from proba.kernels.simd import FAST, FLOAT, INT32, WIDTH, Lanes, address

_QUAD = ir.VectorType(FLOAT, 4)


def _pattern(*lanes):
    """The same four lanes of every group of four; 4 and more count in the second of two vectors."""
    return [4 * group + lane % 4 + (WIDTH if lane >= 4 else 0) for group in range(WIDTH // 4) for lane in lanes]


# Lanes of two vectors, taken in turn, one by one or by twos: from the first or from the second pair of each group.
_LOW, _HIGH, _FIRST, _SECOND = _pattern(0, 4, 1, 5), _pattern(2, 6, 3, 7), _pattern(0, 1, 4, 5), _pattern(2, 3, 6, 7)


def shuffle(builder, a, b, lanes):
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INT32, len(lanes)), list(lanes)))


def _spread(builder, vector, k):
    """Lane k of every group of four, four times: a factor of each point for its run."""
    return shuffle(builder, vector, vector, _pattern(k, k, k, k))


def part(builder, vector, first, count):
    """Lanes first, ..., first + count - 1."""
    return shuffle(builder, vector, vector, range(first, first + count))


def join(builder, parts):
    """One vector of the lanes of all parts."""
    while len(parts) > 1:
        lanes = range(2 * parts[0].type.count)
        parts = [shuffle(builder, a, b, lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def transpose(builder, a, b, c, d):
    """Transpose the 4 x 4 numbers of each group of four lanes."""
    ab, cd = ([shuffle(builder, x, y, half) for half in (_LOW, _HIGH)] for x, y in ((a, b), (c, d)))
    return [shuffle(builder, x, y, half) for x, y in zip(ab, cd, strict=True) for half in (_FIRST, _SECOND)]


def _runs(context, builder, sig, args):
    """Pointers to the upper and the lower runs of the cells cells[at:], of (maps, base, stride, cells, at)."""
    base, stride, at = (context.cast(builder, args[k], sig.args[k], types.intp) for k in (1, 2, 4))
    below = builder.add(base, stride)
    upper, lower = [], []
    for k in range(WIDTH):
        cell = builder.load(address(context, builder, sig, args, 3, builder.add(at, at.type(k)), INT32), align=4)
        cell = builder.sext(cell, base.type)
        upper.append(address(context, builder, sig, args, 0, builder.add(base, cell), _QUAD))
        lower.append(address(context, builder, sig, args, 0, builder.add(below, cell), _QUAD))
    return upper, lower


def lerp(builder, a, b, t):
    return builder.fadd(a, builder.fmul(t, builder.fsub(b, a, flags=FAST), flags=FAST), flags=FAST)


def _sample_patches(typingctx, maps, base, stride, cells, at, right, below):
    """(log depth, log variance) at fractions (right, below) between the cells at maps[base + cells[at:]]."""
    signature = types.UniTuple(Lanes, 2)(maps, base, stride, cells, at, Lanes, Lanes)

    def codegen(context, builder, sig, args):
        right, below = args[5:]
        rows = []
        for pointers in _runs(context, builder, sig, args):
            quads = [builder.load(p, align=4) for p in pointers]
            rows.append([join(builder, quads[k::4]) for k in range(4)])
        upper, lower = rows
        lines = [lerp(builder, upper[k], lower[k], _spread(builder, below, k)) for k in range(4)]
        columns = transpose(builder, *lines)
        values = [lerp(builder, columns[c], columns[c + 2], right) for c in (0, 1)]
        return context.make_tuple(builder, sig.return_type, values)

    return signature, codegen


def _splat_patches(typingctx, maps, base, stride, cells, at, right, below, depth, variance):
    """Add the gradients of samples to their four cells each: the adjoint of `sample_patches`."""
    signature = types.void(maps, base, stride, cells, at, Lanes, Lanes, Lanes, Lanes)

    def codegen(context, builder, sig, args):
        right, below, depth, variance = args[5:]
        columns = []
        for half in (_LOW, _HIGH):
            pair = shuffle(builder, depth, variance, half)
            rights = builder.fmul(pair, shuffle(builder, right, right, half), flags=FAST)
            lefts = builder.fsub(pair, rights, flags=FAST)
            columns += [shuffle(builder, lefts, rights, lanes) for lanes in (_FIRST, _SECOND)]
        lowers = [builder.fmul(c, _spread(builder, below, k), flags=FAST) for k, c in enumerate(columns)]
        uppers = [builder.fsub(c, l, flags=FAST) for c, l in zip(columns, lowers, strict=True)]
        runs = _runs(context, builder, sig, args)
        for k in range(WIDTH):
            for pointers, wide in zip(runs, (uppers, lowers), strict=True):
                addend = part(builder, wide[k % 4], k // 4 * 4, 4)
                total = builder.fadd(builder.load(pointers[k], align=4), addend, flags=FAST)
                builder.store(total, pointers[k], align=4)
        return context.get_dummy_value()

    return signature, codegen


sample_patches: Any = intrinsic(_sample_patches)
splat_patches: Any = intrinsic(_splat_patches)
