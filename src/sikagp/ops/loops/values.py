"""Compiled values of functions that are given by their states at nodes, and the gradients.

Every sample has its own points and its own states. Conventions are those of ``interpolation``, of
which this is the mean alone.
"""

from sikagp.ops.loops.interpolation import BLOCK
from sikagp.ops.loops.tools import compile_loop, load
from sikagp.ops.loops.vectors import load_vector, num_lanes, store_vector, total


@compile_loop
def values_forward(start, stop, state, points, states, values):
    """Fill the values of a range of rows, counted through all samples."""
    (cell, left, right), s, lanes = points, len(state), num_lanes(states)
    _, features, nodes, _, outputs = states.shape
    rows, first = cell.shape[1], start
    while first < stop:
        sample = first // rows
        end = min(first + BLOCK, stop, (sample + 1) * rows)
        for row in range(first, end):
            values[sample, row - sample * rows] = 0
        for d in range(features):
            table = (sample * features + d) * nodes
            for v in range(0, outputs, lanes):
                count = outputs - v
                for row in range(first, end):
                    n = min(max(cell[sample, row - sample * rows, d], 0), nodes - 2)
                    point, target = (row * features + d) * s, row * outputs + v
                    p, q = load(left, point, state), load(right, point, state)
                    value = load_vector(values, target, count)
                    for i in range(s):
                        near = ((table + n) * s + i) * outputs + v
                        value += load_vector(states, near, count) * p[i]
                        value += load_vector(states, near + s * outputs, count) * q[i]
                    store_vector(values, target, value, count)
        first = end


@compile_loop
def values_backward(start, stop, state, d_values, points, states, d_points, d_states):
    """Fill the gradients of weights and states of a range of features of all samples."""
    (cell, left, right), (d_left, d_right) = points, d_points
    s, lanes, (_, features, nodes, _, outputs) = len(state), num_lanes(states), states.shape
    rows = cell.shape[1]
    for place in range(start, stop):
        sample, d = place // features, place % features
        d_states[sample, d] = 0
        d_left[sample, :, d] = 0
        d_right[sample, :, d] = 0
        for v in range(0, outputs, lanes):
            count = outputs - v
            for b in range(rows):
                n = min(max(cell[sample, b, d], 0), nodes - 2)
                row = sample * rows + b
                point = (row * features + d) * s
                p, q = load(left, point, state), load(right, point, state)
                u = load_vector(d_values, row * outputs + v, count)
                for i in range(s):
                    near = ((place * nodes + n) * s + i) * outputs + v
                    far = near + s * outputs
                    d_left[sample, b, d, i] += total(u * load_vector(states, near, count))
                    d_right[sample, b, d, i] += total(u * load_vector(states, far, count))
                    to_near = load_vector(d_states, near, count) + u * p[i]
                    store_vector(d_states, near, to_near, count)
                    to_far = load_vector(d_states, far, count) + u * q[i]
                    store_vector(d_states, far, to_far, count)
