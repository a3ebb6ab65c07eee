"""Compiled loops from weights to node states and back, over a range of features.

``state`` and ``matrix`` are tuples of length s and s^2. Their lengths are constants of the compiled
code: loops over states unroll, and the innermost loop over outputs becomes vector instructions.
Bridges come as rows, (features, rows, s^2). Formulas and names are those of ``sikagp.table`` and
``sikagp.ops.reference``.
"""

import numpy as np

from sikagp.ops.loops.tools import compile_loop, load


@compile_loop
def states_forward(start, stop, state, matrix, weight, boundary, left, right, factor, states):
    """Fill ``states`` level by level."""
    s, nodes, outputs = len(state), weight.shape[1], weight.shape[3]
    rows, size, zero = left.shape[1], len(matrix), weight.dtype.type(0)
    for d in range(start, stop):
        for i in range(s):
            for o in range(outputs):
                first = last = zero
                for e in range(2):
                    for j in range(s):
                        first += boundary[d, i, e * s + j] * weight[d, e, j, o]
                        last += boundary[d, s + i, e * s + j] * weight[d, e, j, o]
                states[d, 0, i, o] = first
                states[d, nodes - 1, i, o] = last
        half, count, level = (nodes - 1) // 2, 1, 0
        while half > 0:
            for k in range(count):
                row = (d * rows + (level if rows < nodes - 2 else count - 1 + k)) * size
                g, h, f = (
                    load(left, row, matrix),
                    load(right, row, matrix),
                    load(factor, row, matrix),
                )
                a, m, c, w = 2 * k * half, (2 * k + 1) * half, (2 * k + 2) * half, count + 1 + k
                for i in range(s):
                    for o in range(outputs):
                        total = zero
                        for j in range(s):
                            total += g[i * s + j] * states[d, a, j, o]
                            total += h[i * s + j] * states[d, c, j, o]
                            total += f[i * s + j] * weight[d, w, j, o]
                        states[d, m, i, o] = total
            half, count, level = half // 2, 2 * count, level + 1


@compile_loop
def states_backward(
    start, stop, state, matrix, d_states, states, weight, boundary, left, right, factor,
    d_weight, d_boundary, d_left, d_right, d_factor,
):  # fmt: skip
    """Fill the gradients of weights, and add to those of the tree."""
    s, nodes, outputs = len(state), weight.shape[1], weight.shape[3]
    rows, size, zero = left.shape[1], len(matrix), weight.dtype.type(0)
    below = np.empty_like(d_states[0])  # gradients of the states, gathered level by level
    for d in range(start, stop):
        below[:] = d_states[d]
        half, count, level = 1, (nodes - 1) // 2, 0
        while 2 << level < nodes - 1:
            level += 1
        while count > 0:
            for k in range(count):
                bridge = level if rows < nodes - 2 else count - 1 + k
                row = (d * rows + bridge) * size
                g, h, f = (
                    load(left, row, matrix),
                    load(right, row, matrix),
                    load(factor, row, matrix),
                )
                a, m, c, w = 2 * k * half, (2 * k + 1) * half, (2 * k + 2) * half, count + 1 + k
                for j in range(s):
                    for o in range(outputs):
                        to_a = to_c = to_w = zero
                        for i in range(s):
                            to_a += g[i * s + j] * below[m, i, o]
                            to_c += h[i * s + j] * below[m, i, o]
                            to_w += f[i * s + j] * below[m, i, o]
                        below[a, j, o] += to_a
                        below[c, j, o] += to_c
                        d_weight[d, w, j, o] = to_w
                    for i in range(s):
                        to_g = to_h = to_f = zero
                        for o in range(outputs):
                            to_g += below[m, i, o] * states[d, a, j, o]
                            to_h += below[m, i, o] * states[d, c, j, o]
                            to_f += below[m, i, o] * weight[d, w, j, o]
                        d_left[d, bridge, i * s + j] += to_g
                        d_right[d, bridge, i * s + j] += to_h
                        d_factor[d, bridge, i * s + j] += to_f
            half, count, level = 2 * half, count // 2, level - 1
        for e in range(2):
            for j in range(s):
                for o in range(outputs):
                    d_weight[d, e, j, o] = zero
                for n in range(2):
                    for i in range(s):
                        b, to_b = boundary[d, n * s + i, e * s + j], zero
                        for o in range(outputs):
                            d_weight[d, e, j, o] += b * below[n * (nodes - 1), i, o]
                            to_b += below[n * (nodes - 1), i, o] * weight[d, e, j, o]
                        d_boundary[d, n * s + i, e * s + j] += to_b
