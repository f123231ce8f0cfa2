"""Rows of eight float64 numbers: sums of their multiples, as vectors.

LLVM's loop vectoriser cannot know that two arrays do not overlap, and takes loops as short as these one number at a
time: the normal equations of the refinement took twice as long.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

from proba.kernels.simd import INT32, address

LANES = 8
_FAST = ("nsz", "contract")
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)


def _sum_of_rows(context, builder, sig, args):
    """Sum of the rows of args[3] that begin at args[4], times the numbers args[2]."""
    factors, places = (cgutils.unpack_tuple(builder, args[k], sig.args[k].count) for k in (2, 4))
    nothing, everywhere = ir.Constant(_DOUBLES, ir.Undefined), ir.Constant(ir.VectorType(INT32, LANES), [0] * LANES)
    total = None
    for factor, place in zip(factors, places, strict=True):
        spread = builder.shuffle_vector(builder.insert_element(nothing, factor, INT32(0)), nothing, everywhere)
        row = builder.load(address(context, builder, sig, args, 3, place, _DOUBLES), align=8)
        product = builder.fmul(spread, row, flags=_FAST)
        total = product if total is None else builder.fadd(total, product, flags=_FAST)
    return total


def _set_row(typingctx, target, at, factors, source, places):
    """target[at : at + LANES] = the sum of the rows of `source` that begin at `places`, times `factors`."""

    def codegen(context, builder, sig, args):
        total = _sum_of_rows(context, builder, sig, args)
        builder.store(total, address(context, builder, sig, args, 0, 1, _DOUBLES), align=8)
        return context.get_dummy_value()

    return types.void(target, at, factors, source, places), codegen


def _add_rows(typingctx, target, at, factors, source, places):
    """target[at : at + LANES] += the sum of the rows of `source` that begin at `places`, times `factors`."""

    def codegen(context, builder, sig, args):
        total = _sum_of_rows(context, builder, sig, args)
        pointer = address(context, builder, sig, args, 0, 1, _DOUBLES)
        builder.store(builder.fadd(builder.load(pointer, align=8), total, flags=_FAST), pointer, align=8)
        return context.get_dummy_value()

    return types.void(target, at, factors, source, places), codegen


set_row: Any = intrinsic(_set_row)
add_rows: Any = intrinsic(_add_rows)
