"""Compiled loops of a training step: from weights to moments and back, place by place.

The tables of one feature and one vector of outputs are built in scratch arrays, used by all rows
while they are in the cache, and dropped; the backward pass builds them again. So neither the tables
nor their gradients nor the scales ever travel to memory: only weights and raw scales are read, and
only their gradients are written. What the grid leaves open, ``residual`` times the prior variance
of each feature, and the bias are added on the way: as operations of their own on so few numbers
they would take longer than the sums.

Features come in ``len(mean)`` groups of fixed size, each with its own sums, so that the result does
not depend on the number of threads. Conventions are those of ``states``.
"""

import numpy as np

from sikagp.ops.loops.covariances import build_covariances, covariance_gradients, new_cells
from sikagp.ops.loops.interpolation import add_row_gradients, add_rows, scratch_layout
from sikagp.ops.loops.softplus import softplus
from sikagp.ops.loops.states import build_states, get, new_rows, put, state_gradients
from sikagp.ops.loops.tools import compile_loop, prefetch
from sikagp.ops.loops.vectors import load_vector, num_lanes, store_vector


@compile_loop
def _read_scales(place, raw, scale, slope, others):
    """Fill the softplus of the raw scales of a place and, where asked for, its derivatives.

    Rows of a place lie far apart in memory, so those of the next place are requested meanwhile: its
    raw scales, and its weights and their gradients, which are the ``others``.
    """
    (d, v, count), outputs, num_rows = place, raw.shape[3], scale.size // num_lanes(scale)
    lanes = num_lanes(raw)
    ahead = lanes if v + lanes < outputs else num_rows * outputs - v
    for n in range(num_rows):
        row = (d * num_rows + n) * outputs + v
        prefetch(raw, row + ahead)
        for k in range(len(others)):
            prefetch(others[k], row + ahead)
        value = softplus(load_vector(raw, row, count))
        put(scale, n, value[0])
        if slope is not None:
            put(slope, n, value[1])


@compile_loop
def _write_scale_gradients(place, d_scale, slope, d_raw):
    (d, v, count), outputs, num_rows = place, d_raw.shape[3], slope.size // num_lanes(slope)
    for n in range(num_rows):
        gradient = get(d_scale, n) * get(slope, n)
        store_vector(d_raw, (d * num_rows + n) * outputs + v, gradient, count)


@compile_loop
def _new_tables(weight, matrix):
    """Scratch for states, covariances and scales."""
    nodes, s = weight.shape[1:3]
    table = new_rows(2 * nodes * len(matrix), weight)
    return new_rows(nodes * s, weight), table, new_rows(nodes * s, weight)


@compile_loop
def _new_points(points):
    """Scratch for the points of one feature: row, cell, weights and their gradients."""
    rows, _, s = points[1].shape
    row, cell = np.empty(rows, np.int64), np.empty((rows, 1), np.int64)
    left, right, d_left, d_right = np.empty((4, rows, 1, s), points[1].dtype)
    return row, (cell, left, right), (d_left, d_right)


@compile_loop
def _sort_points(points, d, starts, row, own):
    """Copy the points of one feature in the order of their cells.

    Rows of one cell then use the same few vectors of a table one after the other. ``starts`` has
    room for one number more than there are cells.
    """
    (cell, left, right, _), last = points, len(starts) - 2
    starts[:] = 0
    for b in range(len(cell)):
        starts[min(max(cell[b, d], 0), last) + 1] += 1
    for n in range(last):
        starts[n + 1] += starts[n]
    for b in range(len(cell)):
        n = min(max(cell[b, d], 0), last)
        k = starts[n]
        starts[n] = k + 1
        row[k], own[0][k, 0] = b, n
        for i in range(left.shape[2]):
            own[1][k, 0, i], own[2][k, 0, i] = left[b, d, i], right[b, d, i]


@compile_loop
def _write_points(row, d_own, d, d_points):
    """Copy gradients of the points of one feature to their rows."""
    for k in range(len(row)):
        for i in range(d_own[0].shape[2]):
            d_points[0][row[k], d, i] = d_own[0][k, 0, i]
            d_points[1][row[k], d, i] = d_own[1][k, 0, i]


@compile_loop
def _new_outputs(rows, like):
    """Scratch for rows by vectors of outputs, (vectors, rows, lanes)."""
    lanes = num_lanes(like)
    vectors = (like.shape[3] + lanes - 1) // lanes
    return new_rows(vectors * rows, like).reshape(vectors, rows, lanes)


@compile_loop
def _read_outputs(source, packed):
    """Copy (rows, outputs) to vectors."""
    rows, outputs = source.shape
    for v in range(len(packed)):
        first = v * packed.shape[2]
        for b in range(rows):
            row = load_vector(source, b * outputs + first, outputs - first)
            put(packed, v * rows + b, row)


@compile_loop
def _write_outputs(packed, opened, target):
    """Copy vectors to (rows, outputs), and add a number to each row."""
    rows, outputs = target.shape
    for v in range(len(packed)):
        first = v * packed.shape[2]
        for b in range(rows):
            row = get(packed, v * rows + b) + opened[b]
            store_vector(target, b * outputs + first, row, outputs - first)


@compile_loop
def moments_forward(
    start, stop, state, matrix, points, weight, raw, tree, prior_variance, mean, variance
):  # fmt: skip
    """Fill mean and variance, (groups, rows, outputs), of a range of groups of features."""
    (groups, rows, outputs), features, lanes = mean.shape, len(weight), num_lanes(weight)
    states, table, scale = _new_tables(weight, matrix)
    cells, layout = new_cells(table, matrix), scratch_layout(states, len(state))
    starts, (row, own, _) = np.empty(weight.shape[1], np.int64), _new_points(points)
    sums = _new_outputs(rows, weight), _new_outputs(rows, weight)
    nothing, opened = np.zeros(rows, weight.dtype), np.empty(rows, weight.dtype)
    for group in range(start, stop):
        sums[0][:] = 0
        sums[1][:] = 0
        opened[:] = 0
        for d in range(group * features // groups, (group + 1) * features // groups):
            _sort_points(points, d, starts, row, own)
            for v in range(len(sums[0])):
                place = d, v * lanes, outputs - v * lanes
                build_states(place, state, matrix, weight, tree, states)
                _read_scales(place, raw, scale, None, (weight,))
                build_covariances(d, state, matrix, scale, tree, cells, table)
                here, moments = (0, 0, None), (sums[0][v], sums[1][v])
                add_rows(0, rows, row, here, layout, state, own, (states, table), moments)
            for b in range(rows):
                opened[b] += points[3][b, d] * prior_variance[d]
        _write_outputs(sums[0], nothing, mean[group])
        _write_outputs(sums[1], opened, variance[group])


@compile_loop
def add_groups(start, stop, state, groups, bias, moments):
    """Sum a range of rows of mean and variance over groups, and add those of the bias."""
    for k in range(2):
        total_of, part = moments[k], groups[k]
        for b in range(start, stop):
            for o in range(part.shape[2]):
                total_of[b, o] = bias[k, o]
            for group in range(len(part)):
                for o in range(part.shape[2]):
                    total_of[b, o] += part[group, b, o]


@compile_loop
def _open_gradients(d, d_opened, residual, prior_variance, d_residual):
    """Fill the gradients of a feature's residuals; return that of its prior variance."""
    to_variance = prior_variance.dtype.type(0)
    for b in range(len(d_opened)):
        d_residual[b, d] = d_opened[b] * prior_variance[d]
        to_variance += d_opened[b] * residual[b, d]
    return to_variance


@compile_loop
def _sum_outputs(source):
    sums = np.zeros(len(source), source.dtype)
    for b in range(len(source)):
        for o in range(source.shape[1]):
            sums[b] += source[b, o]
    return sums


@compile_loop
def _sum_rows(source, target):
    target[:] = 0
    for b in range(source.shape[0]):
        for o in range(source.shape[1]):
            target[o] += source[b, o]


@compile_loop
def moments_backward(
    start, stop, state, matrix, d_moments, points, weight, raw, tree, prior_variance,
    d_points, d_weight, d_raw, d_tree, d_prior_variance, d_bias,
):  # fmt: skip
    """Fill the gradients of a range of features, and add to those of their trees."""
    (rows, outputs), lanes = d_moments[0].shape, num_lanes(weight)
    states, table, scale = _new_tables(weight, matrix)
    d_states, d_table, d_scale = _new_tables(weight, matrix)
    cells, slope = new_cells(table, matrix), new_rows(weight.shape[1] * len(state), weight)
    layout, starts = scratch_layout(states, len(state)), np.empty(weight.shape[1], np.int64)
    (row, own, d_own), sums = _new_points(points), new_rows(4 * len(matrix), weight)
    d_mean, d_variance = _new_outputs(rows, weight), _new_outputs(rows, weight)
    _read_outputs(d_moments[0], d_mean)
    _read_outputs(d_moments[1], d_variance)
    d_opened = _sum_outputs(d_moments[1])
    if start == 0 and stop > 0:
        _sum_rows(d_moments[0], d_bias[0])
        _sum_rows(d_moments[1], d_bias[1])
    for d in range(start, stop):
        _sort_points(points, d, starts, row, own)
        d_own[0][:] = 0
        d_own[1][:] = 0
        for v in range(len(d_mean)):
            place = d, v * lanes, outputs - v * lanes
            build_states(place, state, matrix, weight, tree, states)
            _read_scales(place, raw, scale, slope, (weight, d_weight, d_raw))
            build_covariances(d, state, matrix, scale, tree, cells, table)
            d_states[:] = 0
            d_table[:] = 0
            add_row_gradients(
                row, (0, 0, None), layout, state, (d_mean[v], d_variance[v]), own, (states, table),
                d_own, (d_states, d_table),
            )  # fmt: skip
            state_gradients(
                place, state, matrix, weight, tree, states, d_states, sums, d_weight, d_tree
            )
            covariance_gradients(
                d, state, matrix, scale, tree, cells, table, d_table, sums, d_scale, d_tree
            )
            _write_scale_gradients(place, d_scale, slope, d_raw)
        _write_points(row, d_own, d, d_points)
        d_prior_variance[d] = _open_gradients(d, d_opened, points[3], prior_variance, d_points[2])
