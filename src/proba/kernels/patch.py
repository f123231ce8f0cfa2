"""Bilinear reads and writes of interleaved (log depth, log variance) maps, as explicit four-lane vectors.

The four cells around a point are two runs of four floats, one in each of two map rows. LLVM does not find these
vectors by itself in a loop with data-dependent addresses, so the two operations are written in its own language.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.extending import intrinsic

_FAST = ("nnan", "ninf", "nsz", "contract")
_INT8 = ir.IntType(8)
_QUAD = ir.VectorType(ir.FloatType(), 4)
_PAIR = ir.VectorType(ir.FloatType(), 2)


def _pointers(context, builder, signature, args):
    """Addresses of the upper and lower run of an array argument at (base, base + stride)."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    base, stride = (
        context.cast(builder, v, t, types.intp) for v, t in zip(args[1:3], signature.args[1:3], strict=True)
    )
    upper = builder.gep(array.data, [base], inbounds=True)
    lower = builder.gep(upper, [stride], inbounds=True)
    return tuple(builder.bitcast(p, _QUAD.as_pointer()) for p in (upper, lower))


def _splat(builder, value, vector_type):
    vector = ir.Constant(vector_type, ir.Undefined)
    for lane in range(vector_type.count):
        vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), lane))
    return vector


def _mask(*lanes):
    return ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))


def _lerp(builder, a, b, t):
    return builder.fadd(a, builder.fmul(t, builder.fsub(b, a, flags=_FAST), flags=_FAST), flags=_FAST)


def _sample_patch(typingctx, maps, base, stride, right, below):
    """Both channels at fractions (right, below) between the cells at maps[base] and maps[base + stride]."""
    signature = types.UniTuple(types.float32, 2)(maps, base, stride, types.float32, types.float32)

    def codegen(context, builder, signature, args):
        upper, lower = (builder.load(p, align=4) for p in _pointers(context, builder, signature, args))
        column = _lerp(builder, upper, lower, _splat(builder, args[4], _QUAD))
        left = builder.shuffle_vector(column, column, _mask(0, 1))
        right = builder.shuffle_vector(column, column, _mask(2, 3))
        pair = _lerp(builder, left, right, _splat(builder, args[3], _PAIR))
        return cgutils.pack_array(
            builder, [builder.extract_element(pair, ir.Constant(ir.IntType(32), k)) for k in (0, 1)]
        )

    return signature, codegen


def _splat_patch(typingctx, maps, base, stride, right, below, pairs, at):
    """Add the gradient of a sample, pairs[at:at + 2], to its four cells: the adjoint of `sample_patch`."""
    signature = types.void(maps, base, stride, types.float32, types.float32, pairs, at)

    def codegen(context, builder, signature, args):
        source = context.make_array(signature.args[5])(context, builder, args[5])
        index = context.cast(builder, args[6], signature.args[6], types.intp)
        pointer = builder.bitcast(builder.gep(source.data, [index], inbounds=True), _PAIR.as_pointer())
        pair = builder.load(pointer, align=4)
        right = builder.fmul(pair, _splat(builder, args[3], _PAIR), flags=_FAST)
        left = builder.fsub(pair, right, flags=_FAST)
        value = builder.shuffle_vector(left, right, _mask(0, 1, 2, 3))
        lower_value = builder.fmul(value, _splat(builder, args[4], _QUAD), flags=_FAST)
        upper_value = builder.fsub(value, lower_value, flags=_FAST)
        for pointer, addend in zip(
            _pointers(context, builder, signature, args), (upper_value, lower_value), strict=True
        ):
            total = builder.fadd(builder.load(pointer, align=4), addend, flags=_FAST)
            builder.store(total, pointer, align=4)
        return context.get_dummy_value()

    return signature, codegen


def _prefetch(typingctx, array, at):
    """Ask for the cache line of array[at] to be brought to the second-level cache."""
    signature = types.void(array, at)

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        index = context.cast(builder, args[1], signature.args[1], types.intp)
        pointer = builder.bitcast(builder.gep(data, [index], inbounds=True), _INT8.as_pointer())
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [_INT8.as_pointer(), flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, flag(0), flag(2), flag(1)])  # to read, some locality, data
        return context.get_dummy_value()

    return signature, codegen


prefetch: Any = intrinsic(_prefetch)
sample_patch: Any = intrinsic(_sample_patch)
splat_patch: Any = intrinsic(_splat_patch)
