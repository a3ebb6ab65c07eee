"""Compiled prediction: from raw inputs to mean and variance in one pass over a packed table.

Rows are taken in blocks, features in turn. The two-point weights of one feature are computed and
its table rows requested from memory while those of the feature before are summed, so that a table
that has left the cache costs little more than one that fits.
"""

from functools import cache
from math import factorial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.unsafe.ndarray import to_fixed_tuple

from sikagp.ops.loops import BLOCK, Loop, compile_loop

CACHE_LINE = 64
# Up to this angle eight terms of its series give sinh to the last bit of float64.
SMALL_ANGLE = 0.5
NUM_TERMS = 8
SINH_SERIES = tuple(1 / factorial(2 * k + 1) for k in reversed(range(NUM_TERMS)))


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


class PointWeights(NamedTuple):
    """A kernel's two-point weights as compiled functions.

    ``between(u, v, series)`` gives 2 s weights and the residual, for scaled distances u and v to
    the ends of a cell; ``beyond(t)`` gives s gains and the residual at distance t from the grid.
    """

    state_size: int
    between: Loop
    beyond: Loop


@compile_loop
def _sinh(y, series):
    square, total = y * y, series[0]
    for k in range(1, NUM_TERMS):
        total = total * square + series[k]
    return total * y


@compile_loop
def _laplace_between(u, v, series):
    if u + v <= SMALL_ANGLE:
        after, before, whole = _sinh(v, series), _sinh(u, series), _sinh(u + v, series)
        return after / whole, before / whole, (after + after) * before / whole
    e_u, e_v = -np.expm1(-u - u), -np.expm1(-v - v)
    whole = e_u + e_v - e_u * e_v
    return np.exp(-u) * e_v / whole, np.exp(-v) * e_u / whole, e_u * e_v / whole


@compile_loop
def _laplace_beyond(t):
    return np.exp(-t), -np.expm1(-t - t)


POINT_WEIGHTS = {"laplace": PointWeights(1, _laplace_between, _laplace_beyond)}


# Values as tuples stay in registers; a view of an array would be counted for each input.
@compile_loop
def _load_1(array, t, n):
    return (array[t, n, 0],)


@compile_loop
def _load_2(array, t, n):
    return array[t, n, 0], array[t, n, 1]


@compile_loop
def _load_3(array, t, n):
    return array[t, n, 0], array[t, n, 1], array[t, n, 2]


_LOADERS = {1: _load_1, 2: _load_2, 3: _load_3}


@cache
def prediction_loop(kernel: str) -> Loop:
    """Return the loop over rows for one kind of kernel.

    A packed table has shape (features, nodes, s + 2 s^2, outputs): each node's state, covariance
    and covariance with the next node, so that all an input needs lies in one stretch of memory.
    ``features`` holds low end, width, rate and prior variance of every feature; ``shares`` how much
    of the residual to add between nodes and beyond the grid, then the series. ``bad`` is set to 1
    if an entry of x is not finite.
    """
    s, between, beyond = POINT_WEIGHTS[kernel]
    covariance, cross, load = s, s + s * s, _LOADERS[s]

    @compile_loop
    def weigh(x, first, end, d, features, shares, series, cells, t, left, right, cell, opened):
        """Weights and cells of one feature for a block of rows; returns how many are not finite."""
        low, width = features[0, d], features[1, d]
        rate, open_variance = features[2, d], features[3, d]
        zero, one = x.dtype.type(0), x.dtype.type(1)  # plain numbers would make it all float64
        outside = bad = 0
        for b in range(first, end):
            unit, n = (x[b, d] - low) / width, b - first
            bad += not np.isfinite(unit)
            outside += unit < zero or unit > one
            position = cells * (zero if unit < zero else (one if unit > one else unit))
            c = min(max(np.int64(position), 0), np.int64(cells) - 1)
            share = position - x.dtype.type(c)
            weights = between(rate * (share / cells), rate * ((one - share) / cells), series)
            cell[t, n] = c
            for i in range(s):
                left[t, n, i] = weights[i]
                right[t, n, i] = weights[s + i]
            opened[n] += shares[0] * open_variance * weights[2 * s]
        if outside > 0:
            for b in range(first, end):
                unit, n = (x[b, d] - low) / width, b - first
                if unit < zero or unit > one:
                    gains = beyond(rate * (-unit if unit < zero else unit - one))
                    for i in range(s):
                        left[t, n, i] = gains[i] if unit < zero else zero
                        right[t, n, i] = gains[i] if unit > one else zero
                    opened[n] += shares[1] * open_variance * gains[s]
        return bad

    @compile_loop
    def request(table, d, t, cell, count):
        """Prefetch the two neighbouring rows of every cell."""
        size = table.shape[2] * table.shape[3]
        for n in range(count):
            start = (d * table.shape[1] + cell[t, n]) * size
            for offset in range(0, 2 * size, CACHE_LINE // table.itemsize):
                prefetch(table, start + offset)

    @compile_loop
    def add(table, d, first, end, t, left, right, cell, mean, variance):
        outputs = mean.shape[1]
        for b in range(first, end):
            n = b - first
            c, p, q = cell[t, n], load(left, t, n), load(right, t, n)
            for o in range(outputs):
                to_mean = to_variance = table.dtype.type(0)
                for i in range(s):
                    to_mean += p[i] * table[d, c, i, o] + q[i] * table[d, c + 1, i, o]
                    for j in range(s):
                        k, both = i * s + j, p[i] * q[j]
                        to_variance += p[i] * p[j] * table[d, c, covariance + k, o]
                        to_variance += (both + both) * table[d, c, cross + k, o]
                        to_variance += q[i] * q[j] * table[d, c + 1, covariance + k, o]
                mean[b, o] += to_mean
                variance[b, o] += to_variance

    @compile_loop
    def predict(start, stop, x, features, shares, table, bias, bad, mean, variance):
        outputs, dtype = mean.shape[1], table.dtype
        cells, terms = dtype.type(table.shape[1] - 1), to_fixed_tuple(shares[2:], NUM_TERMS)
        left, right = np.empty((2, BLOCK, s), dtype), np.empty((2, BLOCK, s), dtype)
        cell, opened = np.empty((2, BLOCK), np.int64), np.empty(BLOCK, dtype)
        for first in range(start, stop, BLOCK):
            end = min(first + BLOCK, stop)
            for b in range(first, end):
                opened[b - first] = 0
                for o in range(outputs):
                    mean[b, o], variance[b, o] = bias[0, o], bias[1, o]
            for d in range(x.shape[1] + 1):
                if d < x.shape[1]:
                    t = d & 1
                    not_finite = weigh(
                        x, first, end, d, features, shares, terms, cells,
                        t, left, right, cell, opened,
                    )  # fmt: skip
                    if not_finite > 0:
                        bad[0] = 1
                    request(table, d, t, cell, end - first)
                if d > 0:
                    t = (d - 1) & 1
                    add(table, d - 1, first, end, t, left, right, cell, mean, variance)
            for b in range(first, end):
                for o in range(outputs):
                    variance[b, o] += opened[b - first]

    return predict
