"""Compiled loops of a training step: from weights to moments and back, place by place.

The tables of one feature and one vector of outputs are built in scratch arrays, used by all rows
while they are in the cache, and dropped; the backward pass builds them again. So neither the tables
nor their gradients nor the scales ever travel to memory: only weights and raw scales are read, and
only their gradients are written.

Features come in ``len(mean)`` groups of fixed size, each with its own sums, so that the result does
not depend on the number of threads. Conventions are those of ``states``.
"""

import numpy as np

from sikagp.ops.loops.covariances import build_covariances, covariance_gradients, new_cells
from sikagp.ops.loops.interpolation import add_row_gradients, add_rows, scratch_layout
from sikagp.ops.loops.softplus import softplus
from sikagp.ops.loops.states import build_states, get, new_rows, put, state_gradients
from sikagp.ops.loops.tools import compile_loop
from sikagp.ops.loops.vectors import load_vector, num_lanes, store_vector


@compile_loop
def _read_scales(place, raw, scale, slope):
    """Fill the softplus of the raw scales of a place and, where asked for, its derivatives."""
    (d, v, count), outputs, num_rows = place, raw.shape[3], scale.size // num_lanes(scale)
    for n in range(num_rows):
        value = softplus(load_vector(raw, (d * num_rows + n) * outputs + v, count))
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
    """Scratch for the points of one feature."""
    rows, _, s = points[1].shape
    left, right = np.empty((2, rows, 1, s), points[1].dtype)
    return np.empty((rows, 1), points[0].dtype), left, right


@compile_loop
def _copy_points(points, d, own):
    """Copy the points of one feature, side by side."""
    for b in range(len(own[0])):
        own[0][b, 0] = points[0][b, d]
        for i in range(own[1].shape[2]):
            own[1][b, 0, i], own[2][b, 0, i] = points[1][b, d, i], points[2][b, d, i]


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
def _write_outputs(packed, target):
    """Copy vectors to (rows, outputs)."""
    rows, outputs = target.shape
    for v in range(len(packed)):
        first = v * packed.shape[2]
        for b in range(rows):
            row = get(packed, v * rows + b)
            store_vector(target, b * outputs + first, row, outputs - first)


@compile_loop
def moments_forward(start, stop, state, matrix, points, weight, raw, tree, mean, variance):
    """Fill mean and variance, (groups, rows, outputs), of a range of groups of features."""
    (groups, rows, outputs), features, lanes = mean.shape, len(weight), num_lanes(weight)
    states, table, scale = _new_tables(weight, matrix)
    cells, layout, own = (
        new_cells(table, matrix),
        scratch_layout(states, len(state)),
        _new_points(points),
    )
    sums = _new_outputs(rows, weight), _new_outputs(rows, weight)
    for group in range(start, stop):
        sums[0][:] = 0
        sums[1][:] = 0
        for d in range(group * features // groups, (group + 1) * features // groups):
            _copy_points(points, d, own)
            for v in range(len(sums[0])):
                place = d, v * lanes, outputs - v * lanes
                build_states(place, state, matrix, weight, tree, states)
                _read_scales(place, raw, scale, None)
                build_covariances(d, state, matrix, scale, tree, cells, table)
                here, moments = (0, 0, None), (sums[0][v], sums[1][v])
                add_rows(0, rows, here, layout, state, own, (states, table), moments)
        _write_outputs(sums[0], mean[group])
        _write_outputs(sums[1], variance[group])


@compile_loop
def moments_backward(
    start, stop, state, matrix, d_moments, points, weight, raw, tree, d_points, d_weight, d_raw,
    d_tree,
):  # fmt: skip
    """Fill the gradients of a range of features, and add to those of their trees."""
    (rows, outputs), lanes = d_moments[0].shape, num_lanes(weight)
    states, table, scale = _new_tables(weight, matrix)
    d_states, d_table, d_scale = _new_tables(weight, matrix)
    cells, slope, sums = (
        new_cells(table, matrix),
        np.empty_like(scale),
        new_rows(4 * len(matrix), weight),
    )
    layout, own, d_own = (
        scratch_layout(states, len(state)),
        _new_points(points),
        _new_points(points),
    )
    d_mean, d_variance = _new_outputs(rows, weight), _new_outputs(rows, weight)
    _read_outputs(d_moments[0], d_mean)
    _read_outputs(d_moments[1], d_variance)
    for d in range(start, stop):
        _copy_points(points, d, own)
        d_own[1][:] = 0
        d_own[2][:] = 0
        for v in range(len(d_mean)):
            place = d, v * lanes, outputs - v * lanes
            build_states(place, state, matrix, weight, tree, states)
            _read_scales(place, raw, scale, slope)
            build_covariances(d, state, matrix, scale, tree, cells, table)
            d_states[:] = 0
            d_table[:] = 0
            add_row_gradients(
                (0, 0, None), layout, state, (d_mean[v], d_variance[v]), own, (states, table),
                d_own[1:], (d_states, d_table),
            )  # fmt: skip
            state_gradients(
                place, state, matrix, weight, tree, states, d_states, sums, d_weight, d_tree
            )
            covariance_gradients(
                d, state, matrix, scale, tree, cells, table, d_table, sums, d_scale, d_tree
            )
            _write_scale_gradients(place, d_scale, slope, d_raw)
        for b in range(rows):
            for i in range(len(state)):
                d_points[0][b, d, i], d_points[1][b, d, i] = d_own[1][b, 0, i], d_own[2][b, 0, i]
