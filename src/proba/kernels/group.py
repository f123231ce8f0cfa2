"""Bilinear reads and writes of the maps of four worlds at once, a vector of points at a time.

The maps of a group of worlds lie cell by cell side by side: a cell is eight numbers, the log depth and log variance of
each world, and a run of two cells is a whole vector. A point is found once for four worlds, and its four cells are read
and written with four vectors instead of eight quarters of one. What that needs is that all worlds see the same matches.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from proba.kernels.patch import join, lerp, part, shuffle, transpose
from proba.kernels.simd import BITS, FAST, FLOAT, INT32, WIDTH, Lanes, address

GROUP = 4
"""Worlds of a group."""
CELL = 2 * GROUP
"""Numbers of a cell."""
_RUN = ir.VectorType(FLOAT, 2 * CELL)


def _together():
    """The points whose cells share a vector: (0, 4), (1, 5), ..., or single ones where a cell fills it."""
    half = WIDTH // 2
    return [range(first + k, first + half, 4) for first in (0, half) for k in range(4)]


def _by_number(builder, cells):
    """A vector of the points for each number of a cell, from vectors of the cells of points that are `_together`."""
    halves = [transpose(builder, *half) for half in (cells[:4], cells[4:])]
    even = [k for k in range(2 * WIDTH) if k % 8 < 4]
    return [shuffle(builder, a, b, [k + odd for k in even]) for odd in (0, 4) for a, b in zip(*halves, strict=True)]


def _by_point(builder, numbers):
    """A vector of the cell for each point, from a vector of the points for each number."""
    lower, upper = transpose(builder, *numbers[:4]), transpose(builder, *numbers[4:])
    cells = {}
    for k in range(4):
        for first in range(0, WIDTH, 8):
            eight = [first + lane + at for at in (0, 4) for lane in (0, 1, 2, 3, *range(WIDTH, WIDTH + 4))]
            pair = shuffle(builder, lower[k], upper[k], eight)
            cells[first + k], cells[first + k + 4] = part(builder, pair, 0, 8), part(builder, pair, 8, 8)
    return [cells[k] for k in range(WIDTH)]


def _points(context, builder, sig, args):
    """For each point (upper run, lower run, fraction to the right, and below); the runs of its cells as pointers.

    A generator: the compiler cannot move loads across stores, so they have to stand where they are needed.
    """
    base, stride, at, right, below = (context.cast(builder, args[k], sig.args[k], types.intp) for k in (1, 2, 4, 6, 7))

    def pointer(array, index, kind):
        return address(context, builder, sig, args, array, index, kind)

    def spread(index, count):  # the number s[index] in so many lanes
        nothing = ir.Constant(ir.VectorType(FLOAT, count), ir.Undefined)
        first = builder.insert_element(nothing, builder.load(pointer(5, index, FLOAT), align=4), INT32(0))
        return shuffle(builder, first, nothing, [0] * count)

    for k in map(at.type, range(WIDTH)):
        cell = builder.load(pointer(3, builder.add(at, k), INT32), align=4)
        cell = builder.add(base, builder.sext(cell, base.type))
        yield (
            pointer(0, cell, _RUN),
            pointer(0, builder.add(cell, stride), _RUN),
            spread(builder.add(right, k), WIDTH),
            spread(builder.add(below, k), 2 * CELL),
        )


def _sample_group(typingctx, maps, base, stride, cells, at, s, right, below):
    """(log depth, log variance) of each world at fractions (s[right:], s[below:]) between the cells at
    maps[base + cells[at:]]."""
    signature = types.UniTuple(Lanes, CELL)(maps, base, stride, cells, at, s, right, below)

    def codegen(context, builder, sig, args):
        lines, fractions = [], []
        for upper, lower, right, below in _points(context, builder, sig, args):
            lines.append(lerp(builder, builder.load(upper, align=4), builder.load(lower, align=4), below))
            fractions.append(right)
        cells = []
        for points in _together():
            runs = lines[points[0]], lines[points[-1]]
            left = [2 * CELL * k + number for k in range(len(points)) for number in range(CELL)]
            lefts, rights = (shuffle(builder, *runs, [lane + to for lane in left]) for to in (0, CELL))
            first = ir.Constant(BITS, [lane < CELL for lane in range(WIDTH)])
            fraction = builder.select(first, fractions[points[0]], fractions[points[-1]])
            cells.append(lerp(builder, lefts, rights, fraction))
        return context.make_tuple(builder, sig.return_type, _by_number(builder, cells))

    return signature, codegen


def _splat_group(typingctx, maps, base, stride, cells, at, s, right, below, numbers):
    """Add the gradients of samples to their four cells each: the adjoint of `sample_group`."""
    signature = types.void(maps, base, stride, cells, at, s, right, below, numbers)

    def codegen(context, builder, sig, args):
        values = _by_point(builder, cgutils.unpack_tuple(builder, args[8], CELL))
        for value, (upper, lower, right, below) in zip(values, _points(context, builder, sig, args), strict=True):
            right = builder.fmul(value, part(builder, right, 0, CELL), flags=FAST)
            line = join(builder, [builder.fsub(value, right, flags=FAST), right])
            share = builder.fmul(line, below, flags=FAST)
            for pointer, addend in ((upper, builder.fsub(line, share, flags=FAST)), (lower, share)):
                builder.store(builder.fadd(builder.load(pointer, align=4), addend, flags=FAST), pointer, align=4)
        return context.get_dummy_value()

    return signature, codegen


sample_group: Any = intrinsic(_sample_group)
splat_group: Any = intrinsic(_splat_group)
