"""Compiled loops from weight scales to cell covariances and back, over a range of features.

Conventions are those of ``states``.
"""

import numpy as np

from sikagp.ops.loops.tools import compile_loop, load


@compile_loop
def _end_covariance(s, scale, boundary, d, p, q, o):
    """Covariance of components p and q of the joint state of both ends."""
    total = scale.dtype.type(0)
    for e in range(2):
        for k in range(s):
            b = boundary[d, p, e * s + k] * boundary[d, q, e * s + k]
            total += b * scale[d, e, k, o] * scale[d, e, k, o]
    return total


@compile_loop
def covariances_forward(start, stop, state, matrix, scale, boundary, left, right, factor, table):
    """Fill ``table`` with the covariances of neighbouring states."""
    s, nodes, outputs = len(state), scale.shape[1], scale.shape[3]
    rows, size, zero = left.shape[1], len(matrix), scale.dtype.type(0)
    cross = np.empty((size, outputs), scale.dtype)
    for d in range(start, stop):
        for i in range(s):
            for j in range(s):
                for o in range(outputs):
                    table[d, 0, 0, i, j, o] = _end_covariance(s, scale, boundary, d, i, j, o)
                    table[d, 0, 1, i, j, o] = _end_covariance(s, scale, boundary, d, i, s + j, o)
                    end = _end_covariance(s, scale, boundary, d, s + i, s + j, o)
                    table[d, nodes - 1, 0, i, j, o] = end
                    table[d, nodes - 1, 1, i, j, o] = zero
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
                    for j in range(s):
                        for o in range(outputs):
                            cross[i * s + j, o] = table[d, a, 1, i, j, o]
                for i in range(s):
                    for j in range(s):
                        for o in range(outputs):
                            to_left = to_right = zero
                            for q in range(s):
                                to_left += table[d, a, 0, i, q, o] * g[j * s + q]
                                to_left += cross[i * s + q, o] * h[j * s + q]
                                to_right += g[i * s + q] * cross[q * s + j, o]
                                to_right += h[i * s + q] * table[d, c, 0, q, j, o]
                            table[d, a, 1, i, j, o] = to_left
                            table[d, m, 1, i, j, o] = to_right
                for i in range(s):
                    for j in range(s):
                        for o in range(outputs):
                            total = zero
                            for q in range(s):
                                total += table[d, a, 1, q, i, o] * g[j * s + q]
                                total += table[d, m, 1, i, q, o] * h[j * s + q]
                                own = scale[d, w, q, o]
                                total += f[i * s + q] * f[j * s + q] * own * own
                            table[d, m, 0, i, j, o] = total
            half, count, level = half // 2, 2 * count, level + 1


@compile_loop
def _neighbour_covariances(d, state, matrix, table, scale, boundary, left, right, cross):
    """Fill ``cross`` with the cells of all levels; the halves of cell n are 2n + 1 and 2n + 2."""
    s, nodes, outputs = len(state), scale.shape[1], scale.shape[3]
    rows, size, zero = left.shape[1], len(matrix), scale.dtype.type(0)
    for i in range(s):
        for j in range(s):
            for o in range(outputs):
                cross[0, i, j, o] = _end_covariance(s, scale, boundary, d, i, s + j, o)
    half, count, level = (nodes - 1) // 2, 1, 0
    while half > 0:
        for k in range(count):
            n = count - 1 + k
            row = (d * rows + (level if rows < nodes - 2 else n)) * size
            g, h = load(left, row, matrix), load(right, row, matrix)
            a, c = 2 * k * half, (2 * k + 2) * half
            for i in range(s):
                for j in range(s):
                    for o in range(outputs):
                        to_left = to_right = zero
                        for q in range(s):
                            to_left += table[d, a, 0, i, q, o] * g[j * s + q]
                            to_left += cross[n, i, q, o] * h[j * s + q]
                            to_right += g[i * s + q] * cross[n, q, j, o]
                            to_right += h[i * s + q] * table[d, c, 0, q, j, o]
                        cross[2 * n + 1, i, j, o] = to_left
                        cross[2 * n + 2, i, j, o] = to_right
        half, count, level = half // 2, 2 * count, level + 1


@compile_loop
def _add_end_gradients(d, joint, scale, boundary, d_scale, d_boundary):
    """Gradients of the ends, whose joint covariance is ``boundary diag(scale^2) boundary^T``."""
    size, outputs, zero = joint.shape[0], scale.shape[3], scale.dtype.type(0)
    s = size // 2
    for j in range(size):
        for o in range(outputs):
            total = zero
            for i in range(size):
                for k in range(size):
                    total += joint[i, k, o] * boundary[d, i, j] * boundary[d, k, j]
            d_scale[d, j // s, j % s, o] = scale[d, j // s, j % s, o] * (total + total)
        for i in range(size):
            total = zero
            for k in range(size):
                for o in range(outputs):
                    own = scale[d, j // s, j % s, o]
                    total += (joint[i, k, o] + joint[k, i, o]) * own * own * boundary[d, k, j]
            d_boundary[d, i, j] += total


@compile_loop
def covariances_backward(
    start, stop, state, matrix, d_table, table, scale, boundary, left, right, factor,
    d_scale, d_boundary, d_left, d_right, d_factor,
):  # fmt: skip
    """Fill the gradients of scales, and add to those of the tree."""
    s, nodes, outputs = len(state), scale.shape[1], scale.shape[3]
    rows, size, zero = left.shape[1], len(matrix), scale.dtype.type(0)
    below = np.empty_like(d_table[0])  # gradients of the table, gathered level by level
    cross = np.empty((2 * nodes - 3, s, s, outputs), scale.dtype)
    joint = np.zeros((2 * s, 2 * s, outputs), scale.dtype)
    d_cross = np.empty((s, s, outputs), scale.dtype)
    for d in range(start, stop):
        _neighbour_covariances(d, state, matrix, table, scale, boundary, left, right, cross)
        below[:] = d_table[d]
        half, count, level = 1, (nodes - 1) // 2, 0
        while 2 << level < nodes - 1:
            level += 1
        while count > 0:
            for k in range(count):
                n = count - 1 + k
                bridge, first, second = level if rows < nodes - 2 else n, 2 * n + 1, 2 * n + 2
                row = (d * rows + bridge) * size
                g, h, f = (
                    load(left, row, matrix),
                    load(right, row, matrix),
                    load(factor, row, matrix),
                )
                a, m, c, w = 2 * k * half, (2 * k + 1) * half, (2 * k + 2) * half, count + 1 + k
                for i in range(s):
                    for j in range(s):
                        for o in range(outputs):
                            to_left = to_right = zero
                            for q in range(s):
                                to_left += below[m, 0, j, q, o] * g[q * s + i]
                                to_right += below[m, 0, i, q, o] * h[q * s + j]
                            below[a, 1, i, j, o] += to_left
                            below[m, 1, i, j, o] += to_right
                for i in range(s):
                    for j in range(s):
                        for o in range(outputs):
                            to_a = to_c = to_cross = zero
                            for q in range(s):
                                to_a += below[a, 1, i, q, o] * g[q * s + j]
                                to_c += h[q * s + i] * below[m, 1, q, j, o]
                                to_cross += below[a, 1, i, q, o] * h[q * s + j]
                                to_cross += g[q * s + i] * below[m, 1, q, j, o]
                            below[a, 0, i, j, o] += to_a
                            below[c, 0, i, j, o] += to_c
                            d_cross[i, j, o] = to_cross
                for i in range(s):
                    for j in range(s):
                        to_g = to_h = to_f = zero
                        for o in range(outputs):
                            own = scale[d, w, j, o]
                            for q in range(s):
                                d_m, back = below[m, 0, q, i, o], below[m, 0, i, q, o]
                                d_l, d_r = below[a, 1, q, i, o], below[m, 1, i, q, o]
                                to_g += d_m * cross[first, j, q, o] + d_r * cross[n, j, q, o]
                                to_g += d_l * table[d, a, 0, q, j, o]
                                to_h += d_m * cross[second, q, j, o] + d_l * cross[n, q, j, o]
                                to_h += d_r * table[d, c, 0, j, q, o]
                                to_f += (d_m + back) * own * own * f[q * s + j]
                        d_left[d, bridge, i * s + j] += to_g
                        d_right[d, bridge, i * s + j] += to_h
                        d_factor[d, bridge, i * s + j] += to_f
                for j in range(s):
                    for o in range(outputs):
                        total = zero
                        for i in range(s):
                            for q in range(s):
                                total += below[m, 0, i, q, o] * f[i * s + j] * f[q * s + j]
                        d_scale[d, w, j, o] = scale[d, w, j, o] * (total + total)
                for i in range(s):
                    for j in range(s):
                        for o in range(outputs):
                            below[a, 1, i, j, o] = d_cross[i, j, o]
            half, count, level = 2 * half, count // 2, level - 1
        joint[:s, :s], joint[:s, s:], joint[s:, s:] = below[0, 0], below[0, 1], below[-1, 0]
        _add_end_gradients(d, joint, scale, boundary, d_scale, d_boundary)
