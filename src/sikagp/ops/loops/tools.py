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
    """Request the cache line of the element ``offset`` places into a contiguous array."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data_cache = (ir.Constant(word, n) for n in (0, 3, 1))
        builder.call(function, [address, read, keep, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.intp), emit
