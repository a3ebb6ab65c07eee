"""Compiled loops of the two-point interpolation: forward over rows, backward over features.

Conventions are those of ``states``. Tables may be scratch arrays or those of all features: a
``layout`` is where the states and the covariances of a place begin, the distance of their rows, the
last cell, and how many outputs a row has left. Points may be sorted: ``row`` is then the row of
each of them in mean and variance. Cell numbers are clamped as integers before they
address memory, so that no input, whatever its bits, can read or write beyond a table.
"""

from sikagp.ops.loops.tools import compile_loop, load
from sikagp.ops.loops.vectors import load_vector, num_lanes, store_vector, total, zeros

BLOCK = 64  # rows that share a feature's table while it is in the cache


@compile_loop
def whole_layout(place, states):
    """Layout of a place in tables of all features, (features, nodes, ..., outputs)."""
    (d, v, count), (_, nodes, s, outputs) = place, states.shape
    row = d * nodes * s
    return row * outputs + v, 2 * row * s * outputs + v, outputs, nodes - 2, count


@compile_loop
def scratch_layout(states, s):
    """Layout of a scratch table."""
    lanes = num_lanes(states)
    return 0, 0, lanes, states.size // (lanes * s) - 2, None


@compile_loop
def add_rows(first, end, row, place, layout, state, points, tables, moments):
    """Add what one place contributes to mean and variance of a range of rows."""
    (d, v, count), (z, t, stride, last, part), (cell, left, right) = place, layout, points
    (states, table), (mean, variance), s, features = tables, moments, len(state), cell.shape[1]
    size, outputs = s * s, mean.shape[1]
    for b in range(first, end):
        n, point = min(max(cell[b, d], 0), last), (b * features + d) * s
        target = (b if row is None else row[b]) * outputs + v
        p, q = load(left, point, state), load(right, point, state)
        to_mean = load_vector(mean, target, count)
        to_variance = load_vector(variance, target, count)
        for i in range(s):
            near, far = z + (n * s + i) * stride, z + (n * s + s + i) * stride
            to_mean += load_vector(states, near, part) * p[i]
            to_mean += load_vector(states, far, part) * q[i]
            for j in range(s):
                own, both = t + (2 * n * size + i * s + j) * stride, p[i] * q[j]
                across, other = own + size * stride, own + 2 * size * stride
                to_variance += load_vector(table, own, part) * (p[i] * p[j])
                to_variance += load_vector(table, across, part) * (both + both)
                to_variance += load_vector(table, other, part) * (q[i] * q[j])
        store_vector(mean, target, to_mean, count)
        store_vector(variance, target, to_variance, count)


@compile_loop
def _add(array, index, vector, count):
    store_vector(array, index, load_vector(array, index, count) + vector, count)


@compile_loop
def add_row_gradients(row, place, layout, state, d_moments, points, tables, d_points, d_tables):
    """Add to the gradients of the two-point weights of all rows and of the tables of one place."""
    (d, v, count), (z, t, stride, last, part), (cell, left, right) = place, layout, points
    (d_mean, d_variance), (states, table), (d_left, d_right) = d_moments, tables, d_points
    (d_states, d_table), s, features, outputs = d_tables, len(state), cell.shape[1], d_mean.shape[1]
    size = s * s
    for b in range(cell.shape[0]):
        n, point = min(max(cell[b, d], 0), last), (b * features + d) * s
        target = (b if row is None else row[b]) * outputs + v
        p, q = load(left, point, state), load(right, point, state)
        u, w = load_vector(d_mean, target, count), load_vector(d_variance, target, count)
        for i in range(s):
            near, far = z + (n * s + i) * stride, z + (n * s + s + i) * stride
            sum_p, sum_q = zeros(states), zeros(states)
            for j in range(s):
                own = t + (2 * n * size + i * s + j) * stride
                across, other = own + size * stride, own + 2 * size * stride
                back = t + ((2 * n + 1) * size + j * s + i) * stride
                sum_p += load_vector(table, own, part) * p[j]
                sum_p += load_vector(table, across, part) * q[j]
                sum_q += load_vector(table, other, part) * q[j]
                sum_q += load_vector(table, back, part) * p[j]
                both = p[i] * q[j]
                _add(d_table, own, w * (p[i] * p[j]), part)
                _add(d_table, across, w * (both + both), part)
                _add(d_table, other, w * (q[i] * q[j]), part)
            d_left[b, d, i] += total(u * load_vector(states, near, part) + w * (sum_p + sum_p))
            d_right[b, d, i] += total(u * load_vector(states, far, part) + w * (sum_q + sum_q))
            _add(d_states, near, u * p[i], part)
            _add(d_states, far, u * q[i], part)


@compile_loop
def interpolation_forward(start, stop, state, matrix, points, tables, moments):
    """Fill mean and variance of a range of rows."""
    (states, _), (mean, variance) = tables, moments
    features, outputs, lanes = len(states), states.shape[3], num_lanes(states)
    for first in range(start, stop, BLOCK):
        end = min(first + BLOCK, stop)
        mean[first:end] = 0
        variance[first:end] = 0
        for d in range(features):
            for v in range(0, outputs, lanes):
                place = d, v, min(lanes, outputs - v)
                layout = whole_layout(place, states)
                add_rows(first, end, None, place, layout, state, points, tables, moments)


@compile_loop
def interpolation_backward(
    start, stop, state, matrix, d_moments, points, tables, d_points, d_tables
):  # fmt: skip
    """Fill the gradients of weights and tables of a range of features."""
    outputs, lanes = tables[0].shape[3], num_lanes(tables[0])
    for d in range(start, stop):
        d_tables[0][d] = 0
        d_tables[1][d] = 0
        d_points[0][:, d] = 0
        d_points[1][:, d] = 0
        for v in range(0, outputs, lanes):
            place = d, v, min(lanes, outputs - v)
            layout = whole_layout(place, tables[0])
            add_row_gradients(
                None, place, layout, state, d_moments, points, tables, d_points, d_tables
            )
