"""Compiled prediction: from raw inputs to mean and variance in one pass over a packed table.

Rows are taken in blocks, features in turn. The two-point weights of one feature are computed and
its table rows requested from memory while those of the feature before are summed, so that a table
that has left the cache costs little more than one that fits. A processor waits when it has too many
requests open, so a large table is asked for in two halves, between which it computes weights.

The packed table is flat, of shape (features, nodes, s + s (s + 1) / 2 + s^2, outputs) and a vector
longer: each node's state, the lower triangle of its covariance, and its covariance with the next
node, so that all an input needs lies in one stretch of memory.
"""

import numpy as np

from sikagp.ops.loops.cells import find_cell
from sikagp.ops.loops.tools import LINE, add_rows, compile_loop, load, prefetch
from sikagp.ops.loops.weights import (
    BLOCK,
    LEFT,
    NUM_ROWS,
    RESIDUAL,
    RIGHT,
    U,
    V,
    gain_beyond,
    residual_beyond,
    scaled_rate,
    weigh_block,
)

# Bytes beyond which a table is large, and how many points are then requested at a time.
LARGE, FEW = 4_000_000, 8


@compile_loop
def _place(work, cell, t, units, x, first, count, d, low, width, nodes, speed, even):
    """Cells and distances of a block of rows; returns how many lie outside or are not finite."""
    line, zero, one = min(d, len(nodes) - 1), x.dtype.type(0), x.dtype.type(1)
    outside = bad = 0
    for n in range(count):
        unit = (x[first + n, d] - low) / width
        units[n] = unit
        bad += not np.isfinite(unit)
        outside += unit < zero or unit > one
        inner = np.float64(zero if unit < zero else (one if unit > one else unit))
        cell[t, n], start, end = find_cell(nodes, line, inner, even)
        work[U * BLOCK + n] = speed * (inner - start)
        work[V * BLOCK + n] = speed * (end - inner)
    return outside, bad


@compile_loop
def _set_beyond(work, units, count, state, speed, share, variance, opened):
    """Put the weights of points beyond the grid in place of those of their cells."""
    s, zero, one = len(state), units.dtype.type(0), units.dtype.type(1)
    for n in range(count):
        unit = units[n]
        if unit < zero or unit > one:
            away, sign = speed * np.float64(-unit if unit < zero else unit - one), 1.0
            for i in range(s):
                gain = gain_beyond(away, s, i)
                work[(LEFT + i) * BLOCK + n] = gain * sign if unit < zero else 0.0
                work[(RIGHT + i) * BLOCK + n] = gain if unit > one else 0.0
                sign = -sign
            work[RESIDUAL * BLOCK + n] = 0.0
            opened[n] += share * variance * residual_beyond(away, s)


@compile_loop
def _multiply(work, start, stop, state, size, base, weights):
    """Weight of every row that a point reads: state, covariance, neighbour, next state, its own."""
    s = len(state)
    for n in range(start, stop):
        own, cross = base + s, base + s + s * (s + 1) // 2
        for i in range(s):
            p, q = work[(LEFT + i) * BLOCK + n], work[(RIGHT + i) * BLOCK + n]
            weights[(base + i) * BLOCK + n] = p
            weights[(base + size + i) * BLOCK + n] = q
            for j in range(i + 1):
                factor = 2.0 if j < i else 1.0
                weights[own * BLOCK + n] = factor * p * work[(LEFT + j) * BLOCK + n]
                weights[(own + size) * BLOCK + n] = factor * q * work[(RIGHT + j) * BLOCK + n]
                own += 1
            for j in range(s):
                weights[cross * BLOCK + n] = 2.0 * p * work[(RIGHT + j) * BLOCK + n]
                cross += 1


@compile_loop
def _request(table, start, lines, lanes):
    """Prefetch a stretch of a table, line by line."""
    for _ in range(lines):
        prefetch(table, start)
        start += lanes


@compile_loop
def _add(
    table, row, state, triangle, rest, size, outputs, first, weights, place, vectors, lanes, totals
):  # fmt: skip
    """Add one point of one feature to its mean and variance, a vector of outputs at a time."""
    s, padded = len(state), vectors * lanes
    next_row, next_first = row + size * outputs, first + size * BLOCK
    own, own_first = s * outputs, s * BLOCK
    for _ in range(vectors):
        add_rows(totals, place, table, row, outputs, weights, first, BLOCK, state)
        add_rows(totals, place, table, next_row, outputs, weights, next_first, BLOCK, state)
        add_rows(
            totals, place + padded, table, row + own, outputs,
            weights, first + own_first, BLOCK, rest,
        )  # fmt: skip
        add_rows(
            totals, place + padded, table, next_row + own, outputs,
            weights, next_first + own_first, BLOCK, triangle,
        )  # fmt: skip
        place, row, next_row = place + lanes, row + lanes, next_row + lanes


@compile_loop
def _write(first, count, bias, opened, totals, padded, mean, variance):
    """Write mean and variance of a block of rows."""
    for n in range(count):
        for o in range(mean.shape[1]):
            mean[first + n, o] = bias[0, o] + totals[2 * n * padded + o]
            own = bias[1, o] + opened[n]
            variance[first + n, o] = own + totals[(2 * n + 1) * padded + o]


@compile_loop
def predict(
    start, stop, state, matrix, triangle, rest, x, features, shares, nodes, coefficients, table,
    bias, bad, mean, variance,
):  # fmt: skip
    """Predict a range of rows.

    ``triangle`` and ``rest`` are tuples as long as the triangle of a packed node, and as it and the
    s^2 together. ``features`` holds low end, width, rate and prior variance of every feature;
    ``shares`` how much of the residual to add between nodes and beyond the grid. ``nodes`` and
    ``coefficients`` are those of ``weights``. ``bad`` is set to 1 if an entry of x is not finite.
    """
    s, outputs, dtype, lanes = len(state), mean.shape[1], table.dtype, LINE // table.itemsize
    size, even = s + len(rest), coefficients.shape[1] == 1
    # No division in the loops below: it takes longer than reading a row.
    vectors, reach = (outputs + lanes - 1) // lanes, size + s + len(triangle)
    # A stretch that does not begin with a line ends in one line more.
    padded, lines = vectors * lanes, (reach * outputs + lanes - 2) // lanes + 1
    stride, per_feature = size * outputs, nodes.shape[1] * size * outputs
    early, few = (lines // 2, FEW) if table.nbytes > LARGE else (lines, BLOCK)
    weights, totals = np.empty(2 * reach * BLOCK, dtype), np.zeros(2 * BLOCK * padded, dtype)
    cell, opened = np.empty((2, BLOCK), np.int64), np.empty(BLOCK, dtype)
    work, units = np.empty(NUM_ROWS * BLOCK), np.empty(BLOCK, dtype)
    for first in range(start, stop, BLOCK):
        count = min(first + BLOCK, stop) - first
        opened[:] = 0
        totals[:] = 0
        for d in range(x.shape[1] + 1):
            t, ahead = d & 1, d < x.shape[1]
            if ahead:
                low, width, rate, own = load(features, 4 * d, (0, 0, 0, 0))
                speed = scaled_rate(rate, state)
                outside, not_finite = _place(
                    work, cell, t, units, x, first, count, d, low, width, nodes, speed, even
                )
                if not_finite > 0:
                    bad[0] = 1
            for n in range(count):
                if ahead:
                    _request(table, d * per_feature + cell[t, n] * stride, early, lanes)
                if d > 0:
                    row = (d - 1) * per_feature + cell[1 - t, n] * stride
                    _add(
                        table, row, state, triangle, rest, size, outputs,
                        (1 - t) * reach * BLOCK + n, weights,
                        2 * n * padded, vectors, lanes, totals,
                    )  # fmt: skip
            if ahead:
                longest = speed * nodes[0, 1] if even else np.inf
                weigh_block(work, count, d, longest, state, matrix, coefficients, cell, t)
                if outside > 0:
                    _set_beyond(work, units, count, state, speed, shares[1], own, opened)
                for n in range(count):
                    opened[n] += shares[0] * own * work[RESIDUAL * BLOCK + n]
                late = d * per_feature + early * lanes
                for begin in range(0, count, few):
                    end = min(begin + few, count)
                    for n in range(begin, end):
                        _request(table, late + cell[t, n] * stride, lines - early, lanes)
                    _multiply(work, begin, end, state, size, t * reach, weights)
        _write(first, count, bias, opened, totals, padded, mean, variance)
