"""The float32 lanes of a register as a Numba type, `Lanes`, with arithmetic, comparisons, loads and stores.

LLVM's loop vectoriser leaves scalar remainders, checks for overlapping arrays, and constants that it fetches again and
again. With explicit vectors a step of the kernel is exactly the loop that was meant, and the closed forms stay ordinary
expressions that work on numbers as well.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from llvmlite.binding import get_host_cpu_features  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import lower_builtin, lower_cast
from numba.core.typeconv import Conversion
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, overload, register_model

WIDTH = 16 if get_host_cpu_features().get("avx512f") else 8
"""Lanes: a register's. Sixteen in pairs of registers are slower than eight; in one, 1.08 times as fast."""
FAST = ("nnan", "ninf", "nsz", "contract")
"""No `reassoc` and no `arcp`: the order of operations is meant, and a division is as fast as its approximation."""
FLOAT, INT32, BIT = ir.FloatType(), ir.IntType(32), ir.IntType(1)
FLOATS, INTS, BITS = (ir.VectorType(kind, WIDTH) for kind in (FLOAT, INT32, BIT))


class _Lanes(types.Type):
    def can_convert_from(self, typingctx, other):
        """A float32 becomes the same number in every lane."""
        return Conversion.safe if other == types.float32 else None


class _Mask(types.Type):
    pass


Lanes, Mask = _Lanes(name="Lanes"), _Mask(name="Mask")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, FLOATS)


@register_model(_Mask)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, BITS)


def _splat(builder, value, kind=FLOATS):
    nothing = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(nothing, value, INT32(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(INTS, [0] * WIDTH))


@lower_cast(types.float32, Lanes)
def _cast(context, builder, from_type, to_type, value):
    return _splat(builder, value)


def _define(function, result, arguments, emit):
    """`function` of these argument types is what `emit(builder, *values)` emits."""
    infer_global(function)(type("Template", (ConcreteTemplate,), {"cases": [signature(result, *arguments)]}))
    lower_builtin(function, *arguments)(lambda context, builder, sig, args: emit(builder, *args))


def _extremum(symbol):
    return lambda b, x, y: b.select(b.fcmp_ordered(symbol, x, y, flags=("nnan", "ninf")), x, y)


def select(mask, x, y):
    """x where the mask is set, else y: of numbers and of lanes."""
    return x if mask else y


@overload(select)
def _select_number(mask, x, y):
    if isinstance(mask, types.Boolean):
        return lambda mask, x, y: x if mask else y
    return None


for _functions, _emit in (
    ((operator.add, operator.iadd), lambda b, x, y: b.fadd(x, y, flags=FAST)),
    ((operator.sub, operator.isub), lambda b, x, y: b.fsub(x, y, flags=FAST)),
    ((operator.mul, operator.imul), lambda b, x, y: b.fmul(x, y, flags=FAST)),
    ((operator.truediv, operator.itruediv), lambda b, x, y: b.fdiv(x, y, flags=FAST)),
    ((min,), _extremum("<")),
    ((max,), _extremum(">")),
):
    for _function in _functions:
        _define(_function, Lanes, (Lanes, Lanes), _emit)
for _function, _symbol in ((operator.lt, "<"), (operator.gt, ">"), (operator.ge, ">=")):
    _define(
        _function,
        Mask,
        (Lanes, Lanes),
        lambda b, x, y, symbol=_symbol: b.fcmp_ordered(symbol, x, y, flags=("nnan", "ninf")),
    )
_define(operator.neg, Lanes, (Lanes,), lambda b, x: b.fneg(x, flags=FAST))
_define(select, Lanes, (Mask, Lanes, Lanes), lambda b, mask, x, y: b.select(mask, x, y))


def _builtin(name):
    """LLVM's own function of one vector."""

    def emit(builder, value):
        kind = ir.FunctionType(FLOATS, [FLOATS])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{WIDTH}f32")
        return builder.call(function, [value], fastmath=FAST)

    return emit


def rint(x):
    """The nearest whole number of each lane."""
    raise TypeError("for lanes in compiled code")


_define(rint, Lanes, (Lanes,), _builtin("rint"))
_define(math.floor, Lanes, (Lanes,), _builtin("floor"))
_define(abs, Lanes, (Lanes,), _builtin("fabs"))


def address(context, builder, sig, args, array, index, kind):
    """Pointer of this kind to args[array][args[index]]; `index` may be an LLVM value instead of a position."""
    data = context.make_array(sig.args[array])(context, builder, args[array]).data
    if isinstance(index, int):
        index = context.cast(builder, args[index], sig.args[index], types.intp)
    return builder.bitcast(builder.gep(data, [index], inbounds=True), kind.as_pointer())


def _load(typingctx, array, index):
    """A vector of numbers from array[index] on."""

    def codegen(context, builder, sig, args):
        return builder.load(address(context, builder, sig, args, 0, 1, FLOATS), align=4)

    return Lanes(array, index), codegen


def _load_first(typingctx, array, index, count):
    """The first `count` numbers from array[index] on, and zeros where there are less than lanes."""

    def codegen(context, builder, sig, args):
        count = builder.trunc(context.cast(builder, args[2], sig.args[2], types.int64), INT32)
        mask = builder.icmp_signed("<", ir.Constant(INTS, list(range(WIDTH))), _splat(builder, count, INTS))
        kind = ir.FunctionType(FLOATS, [FLOATS.as_pointer(), INT32, BITS, FLOATS])
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.v{WIDTH}f32.p0")
        pointer = address(context, builder, sig, args, 0, 1, FLOATS)
        return builder.call(function, [pointer, INT32(4), mask, ir.Constant(FLOATS, [0.0] * WIDTH)])

    return Lanes(array, index, count), codegen


def _store(typingctx, array, index, value):
    """To array[index] and on."""

    def codegen(context, builder, sig, args):
        builder.store(args[2], address(context, builder, sig, args, 0, 1, FLOATS), align=4)
        return context.get_dummy_value()

    return types.void(array, index, Lanes), codegen


def _store_whole(typingctx, array, index, value):
    """To array[index] and on, as int32."""

    def codegen(context, builder, sig, args):
        pointer = address(context, builder, sig, args, 0, 1, INTS)
        builder.store(builder.fptosi(args[2], INTS), pointer, align=4)
        return context.get_dummy_value()

    return types.void(array, index, Lanes), codegen


def _lane_sums(typingctx, array, index):
    """Sums over the lanes of as many vectors as there are lanes, from array[index] on."""

    def codegen(context, builder, sig, args):
        index = context.cast(builder, args[1], sig.args[1], types.intp)
        vectors = []
        for k in range(WIDTH):
            at = builder.add(index, index.type(k * WIDTH))
            vectors.append(builder.load(address(context, builder, sig, args, 0, at, FLOATS), align=4))
        even, odd = (ir.Constant(INTS, list(range(first, 2 * WIDTH, 2))) for first in (0, 1))
        while len(vectors) > 1:  # neighbours are added: half as many numbers of a vector, side by side with another's
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            halves = [[builder.shuffle_vector(a, b, lanes) for lanes in (even, odd)] for a, b in pairs]
            vectors = [builder.fadd(a, b, flags=FAST) for a, b in halves]
        return vectors[0]

    return Lanes(array, index), codegen


def _times_power_of_two(typingctx, value, power):
    """value 2^power for whole-numbered powers: an addition to the exponent's bits."""

    def codegen(context, builder, sig, args):
        shifted = builder.shl(builder.fptosi(args[1], INTS), ir.Constant(INTS, [23] * WIDTH))
        return builder.bitcast(builder.add(builder.bitcast(args[0], INTS), shifted), FLOATS)

    return Lanes(Lanes, Lanes), codegen


def _mantissa_and_exponent(typingctx, value):
    """(m, e) with value = m 2^e and m in [sqrt(1/2), sqrt(2)), of positive normal numbers."""

    def codegen(context, builder, sig, args):
        sqrt_half, mantissa = ir.Constant(INTS, [0x3F3504F3] * WIDTH), ir.Constant(INTS, [0x007FFFFF] * WIDTH)
        bits = builder.sub(builder.bitcast(args[0], INTS), sqrt_half)
        exponent = builder.sitofp(builder.ashr(bits, ir.Constant(INTS, [23] * WIDTH)), FLOATS)
        fraction = builder.bitcast(builder.add(builder.and_(bits, mantissa), sqrt_half), FLOATS)
        return context.make_tuple(builder, sig.return_type, [fraction, exponent])

    return types.UniTuple(Lanes, 2)(Lanes), codegen


def _avx512(builder, name, *values):
    """An instruction of sixteen lanes that LLVM has no name of its own for."""
    kind = ir.FunctionType(FLOATS, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.x86.avx512.{name}.512"), values)


def _look_up(builder, table, bits):
    """Of sixteen 32-bit numbers the one that the last four bits of each lane name."""
    return _avx512(builder, "permvar.sf", builder.bitcast(ir.Constant(INTS, table), FLOATS), bits)


def _float_bits(numbers):
    return [int(bits) for bits in np.array(numbers, np.float32).view(np.int32)]


TO_WHOLE = np.float32(1.5 * 2**23)
"""A number far below this one is rounded when this one is added, and its last bits are those of the whole number."""


def _two_to_sixteenths(typingctx, value):
    """2^(n / 16) of value = n + TO_WHOLE. Sixteen lanes only."""
    table = [bits - (k << 19) for k, bits in enumerate(_float_bits([2 ** (k / 16) for k in range(16)]))]

    def codegen(context, builder, sig, args):
        bits = builder.bitcast(args[0], INTS)
        fraction = builder.bitcast(_look_up(builder, table, bits), INTS)
        whole = builder.shl(bits, ir.Constant(INTS, [19] * WIDTH))  # and the fraction, which the table leaves out
        return builder.bitcast(builder.add(fraction, whole), FLOATS)

    return Lanes(Lanes), codegen


def _near_one(typingctx, value):
    """(m, r, l, e) with value = m 2^e, m r within 1/33 of one, l = -log r; of positive normal numbers.

    Sixteen lanes only.
    """
    inverses = np.array(
        [32 / (33 + 2 * k) for k in range(16)], np.float32
    )  # of the middle of each sixteenth from 1 to 2
    tables = _float_bits(inverses), _float_bits(-np.log(inverses.astype(np.float64)))

    def codegen(context, builder, sig, args):
        all_lanes, current = ir.Constant(ir.IntType(WIDTH), -1), INT32(4)  # the current way of rounding
        mantissa = _avx512(builder, "mask.getmant.ps", args[0], INT32(0), args[0], all_lanes, current)
        exponent = _avx512(builder, "mask.getexp.ps", args[0], args[0], all_lanes, current)
        part = builder.lshr(builder.bitcast(args[0], INTS), ir.Constant(INTS, [19] * WIDTH))
        found = [_look_up(builder, table, part) for table in tables]
        return context.make_tuple(builder, sig.return_type, [mantissa, *found, exponent])

    return types.UniTuple(Lanes, 4)(Lanes), codegen


load: Any = intrinsic(_load)
load_first: Any = intrinsic(_load_first)
store: Any = intrinsic(_store)
store_whole: Any = intrinsic(_store_whole)
lane_sums: Any = intrinsic(_lane_sums)
times_power_of_two: Any = intrinsic(_times_power_of_two)
mantissa_and_exponent: Any = intrinsic(_mantissa_and_exponent)
two_to_sixteenths: Any = intrinsic(_two_to_sixteenths)
near_one: Any = intrinsic(_near_one)
