"""Compiled prediction: from raw inputs to mean and variance in one pass over a packed table.

Rows are taken in blocks, features in turn. The two-point weights of one feature are computed and
its table rows requested from memory while those of the feature before are summed, so that a table
that has left the cache costs little more than one that fits.
"""

from math import factorial

import numpy as np

from sikagp.ops.loops.interpolation import BLOCK
from sikagp.ops.loops.tools import compile_loop, load, prefetch

CACHE_LINE = 64  # bytes
# Up to this angle eight terms of its series give sinh to the last bit of float64.
SMALL_ANGLE = 0.5
NUM_TERMS = 8
SINH_SERIES = tuple(1 / factorial(2 * k + 1) for k in reversed(range(NUM_TERMS)))


@compile_loop
def _sinh(y, series):
    square, total = y * y, series[0]
    for k in range(1, NUM_TERMS):
        total = total * square + series[k]
    return total * y


@compile_loop
def between(u, v, series):
    """Laplace: weights of the two ends and residual, at scaled distances u and v from them."""
    if u + v <= SMALL_ANGLE:
        after, before, whole = _sinh(v, series), _sinh(u, series), _sinh(u + v, series)
        return after / whole, before / whole, (after + after) * before / whole
    e_u, e_v = -np.expm1(-u - u), -np.expm1(-v - v)
    whole = e_u + e_v - e_u * e_v
    return np.exp(-u) * e_v / whole, np.exp(-v) * e_u / whole, e_u * e_v / whole


@compile_loop
def beyond(t):
    """Laplace: gain of the nearer end and residual, at scaled distance t beyond the grid."""
    return np.exp(-t), -np.expm1(-t - t)


@compile_loop
def _weigh(x, first, end, d, state, features, shares, series, cells, t, left, right, cell, opened):
    """Weights and cells of one feature for a block of rows; returns how many are not finite."""
    s, (low, width, rate, variance) = len(state), load(features, 4 * d, (0, 0, 0, 0))
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
        opened[n] += shares[0] * variance * weights[2 * s]
    if outside > 0:
        for b in range(first, end):
            unit, n = (x[b, d] - low) / width, b - first
            if unit < zero or unit > one:
                gains = beyond(rate * (-unit if unit < zero else unit - one))
                for i in range(s):
                    left[t, n, i] = gains[i] if unit < zero else zero
                    right[t, n, i] = gains[i] if unit > one else zero
                opened[n] += shares[1] * variance * gains[s]
    return bad


@compile_loop
def _request(table, d, t, cell, count):
    """Prefetch the two neighbouring rows of every cell."""
    size = table.shape[2] * table.shape[3]
    for n in range(count):
        start = (d * table.shape[1] + cell[t, n]) * size
        for offset in range(0, 2 * size, CACHE_LINE // table.itemsize):
            prefetch(table, start + offset)


@compile_loop
def _add(table, d, first, end, state, t, left, right, cell, mean, variance):
    s, outputs, zero = len(state), mean.shape[1], mean.dtype.type(0)
    covariance, cross = s, s + s * s
    for b in range(first, end):
        n = b - first
        point = (t * BLOCK + n) * s
        c, p, q = cell[t, n], load(left, point, state), load(right, point, state)
        for o in range(outputs):
            to_mean = to_variance = zero
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
def predict(start, stop, state, x, features, shares, series, table, bias, bad, mean, variance):
    """Predict a range of rows.

    A packed table has shape (features, nodes, s + 2 s^2, outputs): each node's state, covariance
    and covariance with the next node, so that all an input needs lies in one stretch of memory.
    ``features`` holds low end, width, rate and prior variance of every feature; ``shares`` how much
    of the residual to add between nodes and beyond the grid. ``bad`` is set to 1 if an entry of x
    is not finite.
    """
    s, outputs, dtype = len(state), mean.shape[1], table.dtype
    cells = dtype.type(table.shape[1] - 1)
    terms = load(series, 0, SINH_SERIES)
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
                not_finite = _weigh(
                    x, first, end, d, state, features, shares, terms, cells,
                    t, left, right, cell, opened,
                )  # fmt: skip
                if not_finite > 0:
                    bad[0] = 1
                _request(table, d, t, cell, end - first)
            if d > 0:
                t = (d - 1) & 1
                _add(table, d - 1, first, end, state, t, left, right, cell, mean, variance)
        for b in range(first, end):
            for o in range(outputs):
                variance[b, o] += opened[b - first]
