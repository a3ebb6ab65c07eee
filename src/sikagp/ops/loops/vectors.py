"""Vectors of 64 bytes as numbers of compiled code: sixteen float32 or eight float64 at once.

A loop that works on vectors does not depend on what the compiler can prove about its arrays. Where
fewer outputs than lanes are left, loads and stores take their count and leave other memory alone;
without a count (None) they move whole vectors. Numbers mix with vectors as in NumPy, but take the
vector's type.
"""

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

VECTOR_BYTES = 64
_FUSE = ("contract",)


class Vector(types.Type):
    """As many numbers of one floating type as fit into 64 bytes."""

    def __init__(self, dtype: types.Float) -> None:
        self.dtype, self.lanes = dtype, 8 * VECTOR_BYTES // dtype.bitwidth
        super().__init__(f"Vector({dtype})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        element = manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(element, kind.lanes))


def _spread(context: Any, builder: Any, kind: Any, value: Any, vector: Vector) -> Any:
    """Return a vector as it is, and a number as a vector of equal lanes."""
    if isinstance(kind, Vector):
        return value
    value = context.cast(builder, value, kind, vector.dtype)
    return _repeat(builder, context.get_value_type(vector), value)


def _repeat(builder: Any, form: Any, value: Any) -> Any:
    word = ir.IntType(32)
    one = builder.insert_element(ir.Constant(form, ir.Undefined), value, word(0))
    order = ir.Constant(ir.VectorType(word, form.count), [0] * form.count)
    return builder.shuffle_vector(one, one, order)


def _operands(emit: Callable[..., Any]) -> Callable[..., Any]:
    """Spread the operands before they are combined."""

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        vector = next(kind for kind in sig.args if isinstance(kind, Vector))
        pairs = zip(sig.args, arguments, strict=True)
        return emit(builder, *(_spread(context, builder, k, a, vector) for k, a in pairs))

    return lower


def _register(operation: Callable[..., Any], instruction: str) -> None:
    class Elementwise(AbstractTemplate):
        key = operation

        def generic(self, arguments: Any, keywords: Any) -> Any:
            vectors = {kind for kind in arguments if isinstance(kind, Vector)}
            others = [kind for kind in arguments if not isinstance(kind, (Vector, types.Number))]
            if len(vectors) == 1 and not others:
                return signature(next(iter(vectors)), *arguments)
            return None

    infer_global(operation)(Elementwise)
    emit = _operands(lambda builder, a, b: getattr(builder, instruction)(a, b, flags=_FUSE))
    for pair in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(operation, *pair)(emit)


for _operation, _instruction in (
    (operator.add, "fadd"),
    (operator.iadd, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _register(_operation, _instruction)


def _place(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Address of a vector that begins at an element of a contiguous array."""
    data = context.make_array(kind)(context, builder, array).data
    form = context.get_value_type(Vector(kind.dtype))
    return builder.bitcast(builder.gep(data, [index]), form.as_pointer())


def _mask(builder: Any, lanes: int, count: Any) -> Any:
    """Which lanes lie below the count."""
    word = ir.IntType(32)
    numbers = ir.Constant(ir.VectorType(word, lanes), list(range(lanes)))
    limit = _repeat(builder, numbers.type, builder.trunc(count, word))
    return builder.icmp_unsigned("<", numbers, limit)


def _is_whole(builder: Any, count: Any, vector: Vector) -> Any:
    """Whether all lanes take part: plain moves are quicker than masked ones on most machines."""
    return builder.icmp_signed(">=", count, ir.Constant(count.type, vector.lanes))


def _masked(builder: Any, name: str, result: Any, form: Any, arguments: Any) -> Any:
    element = "f32" if form.count * 4 == VECTOR_BYTES else "f64"
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    full_name = f"llvm.masked.{name}.v{form.count}{element}.p0"
    function = cgutils.get_or_insert_function(builder.module, kind, full_name)
    return builder.call(function, arguments)


@intrinsic
def load_vector(typing_context: Any, array: Any, index: Any, count: Any) -> Any:
    """Load a vector from a contiguous array; lanes from ``count`` on are zero."""
    vector = Vector(array.dtype)
    size = array.dtype.bitwidth // 8

    def emit(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        place = _place(context, builder, sig.args[0], arguments[0], arguments[1])
        if count == types.none:
            return builder.load(place, align=size)
        form, alignment = context.get_value_type(vector), ir.IntType(32)(size)
        result = cgutils.alloca_once(builder, form)
        with builder.if_else(_is_whole(builder, arguments[2], vector)) as (whole, part):
            with whole:
                builder.store(builder.load(place, align=size), result)
            with part:
                mask = _mask(builder, vector.lanes, arguments[2])
                zero = ir.Constant(form, [0.0] * vector.lanes)
                lanes = _masked(builder, "load", form, form, [place, alignment, mask, zero])
                builder.store(lanes, result)
        return builder.load(result)

    return vector(array, types.intp, count), emit


@intrinsic
def store_vector(typing_context: Any, array: Any, index: Any, value: Any, count: Any) -> Any:
    """Store a vector, or its first ``count`` lanes, into a contiguous array."""
    size = array.dtype.bitwidth // 8

    def emit(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        place = _place(context, builder, sig.args[0], arguments[0], arguments[1])
        if count == types.none:
            builder.store(arguments[2], place, align=size)
            return context.get_dummy_value()
        form, alignment = arguments[2].type, ir.IntType(32)(size)
        with builder.if_else(_is_whole(builder, arguments[3], value)) as (whole, part):
            with whole:
                builder.store(arguments[2], place, align=size)
            with part:
                mask = _mask(builder, value.lanes, arguments[3])
                lanes = [arguments[2], place, alignment, mask]
                _masked(builder, "store", ir.VoidType(), form, lanes)
        return context.get_dummy_value()

    return types.void(array, types.intp, value, count), emit


@intrinsic
def num_lanes(typing_context: Any, array: Any) -> Any:
    """How many elements of an array (or vector) make a vector; a constant of compiled code."""

    def emit(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return context.get_constant(types.intp, Vector(array.dtype).lanes)

    return types.intp(array), emit


@intrinsic
def zeros(typing_context: Any, array: Any) -> Any:
    """Return a vector of zeros of an array's (or vector's) type."""
    vector = Vector(array.dtype)

    def emit(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(vector), [0.0] * vector.lanes)

    return vector(array), emit


@intrinsic
def total(typing_context: Any, vector: Any) -> Any:
    """Sum of the lanes."""

    def emit(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        form = arguments[0].type
        name = f"llvm.vector.reduce.fadd.v{form.count}f{vector.dtype.bitwidth}"
        kind = ir.FunctionType(form.element, [form.element, form])
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        zero = ir.Constant(form.element, 0.0)
        return builder.call(function, [zero, arguments[0]], fastmath=("reassoc",))

    return vector.dtype(vector), emit


@intrinsic
def choose(typing_context: Any, sign: Any, positive: Any, other: Any) -> Any:
    """Lanes of ``positive`` where ``sign`` is above zero, of ``other`` elsewhere."""

    def emit(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        kinds = zip(sig.args, arguments, strict=True)
        sign, positive, other = (_spread(context, builder, k, a, sig.args[0]) for k, a in kinds)
        above = builder.fcmp_ordered(">", sign, ir.Constant(sign.type, [0.0] * sign.type.count))
        return builder.select(above, positive, other)

    return sign(sign, positive, other), emit


@intrinsic
def nearest_integer(typing_context: Any, vector: Any) -> Any:
    """Round every lane."""

    def emit(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        form = arguments[0].type
        name = f"llvm.rint.v{form.count}f{vector.dtype.bitwidth}"
        kind = ir.FunctionType(form, [form])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)

    return vector(vector), emit


@intrinsic
def power_of_two(typing_context: Any, exponent: Any) -> Any:
    """Two to the power of integers within the range of normal numbers, made from its bits."""
    mantissa = 23 if exponent.dtype == types.float32 else 52
    bias = 127 if exponent.dtype == types.float32 else 1023

    def emit(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        form = arguments[0].type
        whole = ir.VectorType(ir.IntType(exponent.dtype.bitwidth), form.count)
        number = builder.fptosi(arguments[0], whole)
        shifted = builder.add(number, ir.Constant(whole, [bias] * form.count))
        bits = builder.shl(shifted, ir.Constant(whole, [mantissa] * form.count))
        return builder.bitcast(bits, form)

    return exponent(exponent), emit


@intrinsic
def exponent_of(typing_context: Any, vector: Any) -> Any:
    """Exponents of positive normal numbers, as numbers: n where 2^n <= v < 2^(n + 1)."""
    mantissa = 23 if vector.dtype == types.float32 else 52
    bias = 127 if vector.dtype == types.float32 else 1023

    def emit(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        form = arguments[0].type
        whole = ir.VectorType(ir.IntType(vector.dtype.bitwidth), form.count)
        bits = builder.bitcast(arguments[0], whole)
        shifted = builder.lshr(bits, ir.Constant(whole, [mantissa] * form.count))
        number = builder.sub(shifted, ir.Constant(whole, [bias] * form.count))
        return builder.sitofp(number, form)

    return vector(vector), emit
