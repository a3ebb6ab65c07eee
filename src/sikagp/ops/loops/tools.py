"""What compiled loops are made of: the compiler's settings, register loads and prefetches."""

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Loop = Callable[..., Any]

# NaN and infinity keep their meaning; sums may be reordered and products fused.
compile_loop = numba.njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc"}
)


@intrinsic
def load(typing_context: Any, array: Any, start: Any, like: Any) -> Any:
    """Load ``len(like)`` consecutive elements of a contiguous array, beginning at ``start``.

    A tuple stays in registers; a view of the array would be counted, and might alias an output.
    """
    result = types.UniTuple(array.dtype, len(like))

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        first = builder.gep(data, [arguments[1]])
        places = (cgutils.gep_inbounds(builder, first, k) for k in range(len(like)))
        values = [context.unpack_value(builder, array.dtype, place) for place in places]
        return context.make_tuple(builder, result, values)

    return result(array, types.intp, like), emit


@intrinsic
def prefetch(typing_context: Any, array: Any, offset: Any) -> Any:
    """Request the cache line of the element ``offset`` places into a contiguous array.

    It comes as far as the second cache: the first has few requests under way at a time.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, second_level, data_cache = (ir.Constant(word, n) for n in (0, 2, 1))
        builder.call(function, [address, read, second_level, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


LINE = 64  # bytes of a cache line, and of the vectors that ``add_rows`` adds


@intrinsic
def add_rows(
    typing_context: Any, totals: Any, place: Any, table: Any, start: Any, stride: Any,
    weights: Any, first: Any, step: Any, rows: Any,
) -> Any:  # fmt: skip
    """Add ``len(rows)`` weighted rows of a table to totals, a vector of LINE bytes of each.

    Row k begins at ``start + k * stride`` of the table, its weight is ``weights[first + k * step]``
    and the totals begin at ``place``; all three are contiguous arrays of one floating type. The
    arrays must reach as far as the last vector does.
    """
    item = 4 if table.dtype == types.float32 else 8

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointers = [
            context.make_array(signature.args[k])(context, builder, arguments[k]).data
            for k in (0, 2, 5)
        ]
        element = context.get_data_type(table.dtype)
        vector = ir.VectorType(element, LINE // item)
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), LINE // item), [0] * (LINE // item))

        def vector_at(pointer: Any, offset: Any) -> Any:
            return builder.bitcast(builder.gep(pointer, [offset]), vector.as_pointer())

        target = vector_at(pointers[0], arguments[1])
        total, row, weight = builder.load(target, align=item), arguments[3], arguments[6]
        for _ in range(len(rows)):
            one = builder.insert_element(
                ir.Constant(vector, ir.Undefined),
                builder.load(builder.gep(pointers[2], [weight])),
                ir.Constant(ir.IntType(32), 0),
            )
            factor = builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), lanes)
            values = builder.load(vector_at(pointers[1], row), align=item)
            product = builder.fmul(values, factor, flags=("contract", "reassoc"))
            total = builder.fadd(total, product, flags=("contract", "reassoc"))
            row, weight = builder.add(row, arguments[4]), builder.add(weight, arguments[7])
        builder.store(total, target, align=item)
        return context.get_dummy_value()

    index = types.intp
    return types.void(totals, index, table, index, index, weights, index, index, rows), emit
