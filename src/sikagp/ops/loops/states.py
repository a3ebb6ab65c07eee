"""Compiled loops from weights to node states and back.

All loops over tables work on one feature and one vector of outputs at a time: ``place`` is the
feature, the first output, and how many outputs are left from there. The tables of such a slice fit
into the innermost cache. They are scratch arrays of vectors, one after the other: ``states`` is
(nodes, s), ``table`` is (nodes, 2, s, s).

``state`` and ``matrix`` are tuples of length s and s^2. Their lengths are constants of the compiled
code, so that loops over states unroll. Bridges come as rows, (features, rows, s^2). Formulas and
names are those of ``sikagp.table`` and ``sikagp.ops.reference``.
"""

import numpy as np

from sikagp.ops.loops.tools import compile_loop, load
from sikagp.ops.loops.vectors import load_vector, num_lanes, store_vector, total, zeros


@compile_loop
def new_rows(count, like):
    """Return scratch for that many vectors, each in a cache line of its own."""
    lanes = num_lanes(like)
    memory = np.empty((count + 1) * lanes, like.dtype)
    skip = -memory.ctypes.data % (lanes * memory.itemsize) // memory.itemsize
    return memory[skip : skip + count * lanes]


@compile_loop
def get(rows, n):
    """Load vector n of a scratch array."""
    return load_vector(rows, n * num_lanes(rows), None)


@compile_loop
def put(rows, n, vector):
    """Store vector n of a scratch array."""
    store_vector(rows, n * num_lanes(rows), vector, None)


@compile_loop
def read_rows(place, source, rows):
    """Copy the rows of a place in (features, ..., outputs) to scratch."""
    (d, v, count), outputs, num_rows = place, source.shape[-1], rows.size // num_lanes(rows)
    for n in range(num_rows):
        row = load_vector(source, (d * num_rows + n) * outputs + v, count)
        put(rows, n, row)


@compile_loop
def write_rows(place, rows, target):
    """Copy the rows of a place from scratch to (features, ..., outputs)."""
    (d, v, count), outputs, num_rows = place, target.shape[-1], rows.size // num_lanes(rows)
    for n in range(num_rows):
        store_vector(target, (d * num_rows + n) * outputs + v, get(rows, n), count)


@compile_loop
def build_states(place, state, matrix, weight, tree, states):
    """Fill ``states`` level by level."""
    (d, v, count), (boundary, left, right, factor) = place, tree
    s, nodes, outputs = len(state), weight.shape[1], weight.shape[3]
    rows, size, first = left.shape[1], len(matrix), d * nodes * s * outputs + v
    for n in range(2):
        for i in range(s):
            end = zeros(states)
            for j in range(2 * s):
                own = load_vector(weight, first + j * outputs, count)
                end += own * boundary[d, n * s + i, j]
            put(states, n * (nodes - 1) * s + i, end)
    half, cells, level = (nodes - 1) // 2, 1, 0
    while half > 0:
        for k in range(cells):
            row = (d * rows + (level if rows < nodes - 2 else cells - 1 + k)) * size
            g, h, f = load(left, row, matrix), load(right, row, matrix), load(factor, row, matrix)
            a, m, c = 2 * k * half, (2 * k + 1) * half, (2 * k + 2) * half
            for i in range(s):
                middle = zeros(states)
                for j in range(s):
                    own = first + ((cells + 1 + k) * s + j) * outputs
                    middle += load_vector(weight, own, count) * f[i * s + j]
                    middle += get(states, a * s + j) * g[i * s + j]
                    middle += get(states, c * s + j) * h[i * s + j]
                put(states, m * s + i, middle)
        half, cells, level = half // 2, 2 * cells, level + 1


@compile_loop
def add_bridge_gradients(d, bridge, matrix, sums, d_tree):
    """Add the lanes of ``sums``, (3, s, s), to the gradients of a bridge, and set them to zero."""
    size = len(matrix)
    _, d_left, d_right, d_factor = d_tree
    for n in range(size):
        d_left[d, bridge, n] += total(get(sums, n))
        d_right[d, bridge, n] += total(get(sums, size + n))
        d_factor[d, bridge, n] += total(get(sums, 2 * size + n))
    sums[:] = 0


@compile_loop
def state_gradients(place, state, matrix, weight, tree, states, d_states, sums, d_weight, d_tree):
    """Fill the gradients of weights and add to the tree's; ``d_states`` is used up."""
    (d, v, count), (boundary, left, right, factor) = place, tree
    s, nodes, outputs = len(state), weight.shape[1], weight.shape[3]
    rows, size, first = left.shape[1], len(matrix), d * nodes * s * outputs + v
    half, cells, level = 1, (nodes - 1) // 2, 0
    while 2 << level < nodes - 1:
        level += 1
    sums[:] = 0
    while cells > 0:
        for k in range(cells):
            bridge = level if rows < nodes - 2 else cells - 1 + k
            row = (d * rows + bridge) * size
            g, h, f = load(left, row, matrix), load(right, row, matrix), load(factor, row, matrix)
            a, m, c = 2 * k * half, (2 * k + 1) * half, (2 * k + 2) * half
            for j in range(s):
                to_a, to_c, to_w = get(d_states, a * s + j), get(d_states, c * s + j), zeros(states)
                own = first + ((cells + 1 + k) * s + j) * outputs
                w = load_vector(weight, own, count)
                for i in range(s):
                    e, middle = i * s + j, get(d_states, m * s + i)
                    to_a += middle * g[e]
                    to_c += middle * h[e]
                    to_w += middle * f[e]
                    put(sums, e, get(sums, e) + middle * get(states, a * s + j))
                    put(sums, size + e, get(sums, size + e) + middle * get(states, c * s + j))
                    put(sums, 2 * size + e, get(sums, 2 * size + e) + middle * w)
                put(d_states, a * s + j, to_a)
                put(d_states, c * s + j, to_c)
                store_vector(d_weight, own, to_w, count)
            if rows == nodes - 2:
                add_bridge_gradients(d, bridge, matrix, sums, d_tree)
        if rows < nodes - 2:
            add_bridge_gradients(d, level, matrix, sums, d_tree)
        half, cells, level = 2 * half, cells // 2, level - 1
    for j in range(2 * s):
        w, to_w = load_vector(weight, first + j * outputs, count), zeros(states)
        for n in range(2):
            for i in range(s):
                end = get(d_states, n * (nodes - 1) * s + i)
                to_w += end * boundary[d, n * s + i, j]
                d_tree[0][d, n * s + i, j] += total(end * w)
        store_vector(d_weight, first + j * outputs, to_w, count)


@compile_loop
def states_forward(start, stop, state, matrix, weight, tree, states):
    """Fill ``states``, (features, nodes, s, outputs), of a range of features."""
    outputs, lanes = weight.shape[3], num_lanes(weight)
    rows = new_rows(weight.shape[1] * len(state), weight)
    for d in range(start, stop):
        for v in range(0, outputs, lanes):
            place = d, v, min(lanes, outputs - v)
            build_states(place, state, matrix, weight, tree, rows)
            write_rows(place, rows, states)


@compile_loop
def states_backward(
    start, stop, state, matrix, d_states, states, weight, tree, d_weight, d_tree
):  # fmt: skip
    """Fill the gradients of weights, and add to those of the tree, of a range of features."""
    outputs, lanes = weight.shape[3], num_lanes(weight)
    num_rows = weight.shape[1] * len(state)
    z, d_z, sums = (
        new_rows(num_rows, weight),
        new_rows(num_rows, weight),
        new_rows(3 * len(matrix), weight),
    )
    for d in range(start, stop):
        for v in range(0, outputs, lanes):
            place = d, v, min(lanes, outputs - v)
            read_rows(place, states, z)
            read_rows(place, d_states, d_z)
            state_gradients(place, state, matrix, weight, tree, z, d_z, sums, d_weight, d_tree)
