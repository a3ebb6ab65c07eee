"""Compiled loops of the operators, for a fixed state size.

Each loop works on a range of features or rows, so that several threads can share the work, and
holds no lock. The state size is a constant of the compiled code: loops over states unroll, and the
innermost loop over outputs becomes vector instructions. Formulas and names are those of
``sikagp.table`` and ``sikagp.ops.reference``.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.np.unsafe.ndarray import to_fixed_tuple

# NaN and infinity keep their meaning; sums may be reordered and products fused.
compile_loop = numba.njit(
    nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc"}
)

Loop = Callable[..., Any]
BLOCK = 64  # rows that share a feature's table while it is in the cache


class StateLoops(NamedTuple):
    """Weights to node states, and back."""

    forward: Loop
    backward: Loop


@cache
def state_loops(s: int) -> StateLoops:
    """Return the loops of ``node_states`` over a range of features."""
    size = s * s

    @compile_loop
    def forward(start, stop, weight, boundary, left, right, factor, states):
        nodes, outputs = weight.shape[1], weight.shape[3]
        shared = left.shape[1] < nodes - 2
        for d in range(start, stop):
            for i in range(s):
                for o in range(outputs):
                    first = last = weight.dtype.type(0)
                    for e in range(2):
                        for j in range(s):
                            first += boundary[d, i, e * s + j] * weight[d, e, j, o]
                            last += boundary[d, s + i, e * s + j] * weight[d, e, j, o]
                    states[d, 0, i, o] = first
                    states[d, nodes - 1, i, o] = last
            half, count, level = (nodes - 1) // 2, 1, 0
            while half > 0:
                for k in range(count):
                    row = level if shared else count - 1 + k
                    g = to_fixed_tuple(left[d, row], size)
                    h = to_fixed_tuple(right[d, row], size)
                    f = to_fixed_tuple(factor[d, row], size)
                    a, c = states[d, 2 * k * half], states[d, (2 * k + 2) * half]
                    m, w = states[d, (2 * k + 1) * half], weight[d, count + 1 + k]
                    for i in range(s):
                        for o in range(outputs):
                            total = weight.dtype.type(0)
                            for j in range(s):
                                n = i * s + j
                                total += g[n] * a[j, o] + h[n] * c[j, o] + f[n] * w[j, o]
                            m[i, o] = total
                half, count, level = half // 2, 2 * count, level + 1

    @compile_loop
    def backward(
        start, stop, d_states, states, weight, boundary, left, right, factor,
        d_weight, d_boundary, d_left, d_right, d_factor,
    ):  # fmt: skip
        nodes, outputs = weight.shape[1], weight.shape[3]
        shared = left.shape[1] < nodes - 2
        below = np.empty_like(d_states[0])  # gradients of the states, gathered level by level
        for d in range(start, stop):
            below[:] = d_states[d]
            half, count, level = 1, (nodes - 1) // 2, 0
            while 2 << level < nodes - 1:
                level += 1
            while count > 0:
                for k in range(count):
                    row = level if shared else count - 1 + k
                    g = to_fixed_tuple(left[d, row], size)
                    h = to_fixed_tuple(right[d, row], size)
                    f = to_fixed_tuple(factor[d, row], size)
                    a, c = states[d, 2 * k * half], states[d, (2 * k + 2) * half]
                    w, d_w = weight[d, count + 1 + k], d_weight[d, count + 1 + k]
                    d_a, d_c = below[2 * k * half], below[(2 * k + 2) * half]
                    d_m = below[(2 * k + 1) * half]
                    for j in range(s):
                        for o in range(outputs):
                            to_a = to_c = to_w = weight.dtype.type(0)
                            for i in range(s):
                                to_a += g[i * s + j] * d_m[i, o]
                                to_c += h[i * s + j] * d_m[i, o]
                                to_w += f[i * s + j] * d_m[i, o]
                            d_a[j, o] += to_a
                            d_c[j, o] += to_c
                            d_w[j, o] = to_w
                        for i in range(s):
                            to_g = to_h = to_f = weight.dtype.type(0)
                            for o in range(outputs):
                                to_g += d_m[i, o] * a[j, o]
                                to_h += d_m[i, o] * c[j, o]
                                to_f += d_m[i, o] * w[j, o]
                            d_left[d, row, i * s + j] += to_g
                            d_right[d, row, i * s + j] += to_h
                            d_factor[d, row, i * s + j] += to_f
                half, count, level = 2 * half, count // 2, level - 1
            for e in range(2):
                for j in range(s):
                    w, d_w = weight[d, e, j], d_weight[d, e, j]
                    d_w[:] = 0
                    for n in range(2):
                        for i in range(s):
                            d_z, b = below[n * (nodes - 1), i], boundary[d, n * s + i, e * s + j]
                            to_b = weight.dtype.type(0)
                            for o in range(outputs):
                                d_w[o] += b * d_z[o]
                                to_b += d_z[o] * w[o]
                            d_boundary[d, n * s + i, e * s + j] += to_b

    return StateLoops(forward, backward)


@cache
def covariance_loops(s: int) -> StateLoops:
    """Return the loops of ``cell_covariances`` over a range of features."""
    size = s * s

    @compile_loop
    def end_covariance(scale, boundary, d, p, q, o):
        """Covariance of components p and q of the joint state of both ends."""
        total = scale.dtype.type(0)
        for e in range(2):
            for k in range(s):
                b = boundary[d, p, e * s + k] * boundary[d, q, e * s + k]
                total += b * scale[d, e, k, o] * scale[d, e, k, o]
        return total

    @compile_loop
    def forward(start, stop, scale, boundary, left, right, factor, table):
        nodes, outputs = scale.shape[1], scale.shape[3]
        shared = left.shape[1] < nodes - 2
        cross = np.empty((size, outputs), scale.dtype)
        for d in range(start, stop):
            for i in range(s):
                for j in range(s):
                    for o in range(outputs):
                        table[d, 0, 0, i, j, o] = end_covariance(scale, boundary, d, i, j, o)
                        table[d, 0, 1, i, j, o] = end_covariance(scale, boundary, d, i, s + j, o)
                        end = end_covariance(scale, boundary, d, s + i, s + j, o)
                        table[d, nodes - 1, 0, i, j, o] = end
                        table[d, nodes - 1, 1, i, j, o] = 0
            half, count, level = (nodes - 1) // 2, 1, 0
            while half > 0:
                for k in range(count):
                    row = level if shared else count - 1 + k
                    g = to_fixed_tuple(left[d, row], size)
                    h = to_fixed_tuple(right[d, row], size)
                    f = to_fixed_tuple(factor[d, row], size)
                    a, m, c, w = 2 * k * half, (2 * k + 1) * half, (2 * k + 2) * half, count + 1 + k
                    for i in range(s):
                        for j in range(s):
                            for o in range(outputs):
                                cross[i * s + j, o] = table[d, a, 1, i, j, o]
                    for i in range(s):
                        for j in range(s):
                            for o in range(outputs):
                                to_left = to_right = scale.dtype.type(0)
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
                                total = scale.dtype.type(0)
                                for q in range(s):
                                    total += table[d, a, 1, q, i, o] * g[j * s + q]
                                    total += table[d, m, 1, i, q, o] * h[j * s + q]
                                    own = scale[d, w, q, o]
                                    total += f[i * s + q] * f[j * s + q] * own * own
                                table[d, m, 0, i, j, o] = total
                half, count, level = half // 2, 2 * count, level + 1

    @compile_loop
    def add_factor_gradients(d_product, f, scale, d_scale, d_f):
        """Gradients where the product is ``f diag(scale^2) f^T``, of any size."""
        n, outputs = f.shape[0], scale.shape[1]
        for j in range(n):
            for o in range(outputs):
                total = scale.dtype.type(0)
                for i in range(n):
                    for k in range(n):
                        total += d_product[i, k, o] * f[i, j] * f[k, j]
                d_scale[j, o] = scale[j, o] * (total + total)
            for i in range(n):
                total = scale.dtype.type(0)
                for k in range(n):
                    for o in range(outputs):
                        both = d_product[i, k, o] + d_product[k, i, o]
                        total += both * scale[j, o] * scale[j, o] * f[k, j]
                d_f[i, j] += total

    @compile_loop
    def neighbour_covariances(d, table, scale, boundary, left, right, cross):
        """Fill ``cross`` with the cells of all levels; the halves of cell n are 2n+1 and 2n+2."""
        nodes, outputs = scale.shape[1], scale.shape[3]
        shared = left.shape[1] < nodes - 2
        for i in range(s):
            for j in range(s):
                for o in range(outputs):
                    cross[0, i, j, o] = end_covariance(scale, boundary, d, i, s + j, o)
        half, count, level = (nodes - 1) // 2, 1, 0
        while half > 0:
            for k in range(count):
                n = count - 1 + k
                row = level if shared else n
                g = to_fixed_tuple(left[d, row], size)
                h = to_fixed_tuple(right[d, row], size)
                a, c = 2 * k * half, (2 * k + 2) * half
                for i in range(s):
                    for j in range(s):
                        for o in range(outputs):
                            to_left = to_right = scale.dtype.type(0)
                            for q in range(s):
                                to_left += table[d, a, 0, i, q, o] * g[j * s + q]
                                to_left += cross[n, i, q, o] * h[j * s + q]
                                to_right += g[i * s + q] * cross[n, q, j, o]
                                to_right += h[i * s + q] * table[d, c, 0, q, j, o]
                            cross[2 * n + 1, i, j, o] = to_left
                            cross[2 * n + 2, i, j, o] = to_right
            half, count, level = half // 2, 2 * count, level + 1

    @compile_loop
    def backward(
        start, stop, d_table, table, scale, boundary, left, right, factor,
        d_scale, d_boundary, d_left, d_right, d_factor,
    ):  # fmt: skip
        nodes, outputs = scale.shape[1], scale.shape[3]
        shared = left.shape[1] < nodes - 2
        below = np.empty_like(d_table[0])  # gradients of the table, gathered level by level
        cross = np.empty((2 * nodes - 3, s, s, outputs), scale.dtype)
        joint = np.zeros((2 * s, 2 * s, outputs), scale.dtype)
        d_cross = np.empty((s, s, outputs), scale.dtype)
        for d in range(start, stop):
            neighbour_covariances(d, table, scale, boundary, left, right, cross)
            below[:] = d_table[d]
            half, count, level = 1, (nodes - 1) // 2, 0
            while 2 << level < nodes - 1:
                level += 1
            while count > 0:
                for k in range(count):
                    n = count - 1 + k
                    row = level if shared else n
                    g = to_fixed_tuple(left[d, row], size)
                    h = to_fixed_tuple(right[d, row], size)
                    f = to_fixed_tuple(factor[d, row], size)
                    a, m, c, w = 2 * k * half, (2 * k + 1) * half, (2 * k + 2) * half, count + 1 + k
                    first, second = 2 * n + 1, 2 * n + 2
                    for i in range(s):
                        for j in range(s):
                            for o in range(outputs):
                                to_left = to_right = scale.dtype.type(0)
                                for q in range(s):
                                    to_left += below[m, 0, j, q, o] * g[q * s + i]
                                    to_right += below[m, 0, i, q, o] * h[q * s + j]
                                below[a, 1, i, j, o] += to_left
                                below[m, 1, i, j, o] += to_right
                    for i in range(s):
                        for j in range(s):
                            for o in range(outputs):
                                to_a = to_c = to_cross = scale.dtype.type(0)
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
                            to_g = to_h = to_f = scale.dtype.type(0)
                            for o in range(outputs):
                                for q in range(s):
                                    d_m, own = below[m, 0, q, i, o], scale[d, w, j, o]
                                    d_l, d_r = below[a, 1, q, i, o], below[m, 1, i, q, o]
                                    to_g += (
                                        d_m * cross[first, j, q, o] + d_l * table[d, a, 0, q, j, o]
                                    )
                                    to_g += d_r * cross[n, j, q, o]
                                    to_h += d_m * cross[second, q, j, o] + d_l * cross[n, q, j, o]
                                    to_h += d_r * table[d, c, 0, j, q, o]
                                    both = d_m + below[m, 0, i, q, o]
                                    to_f += both * own * own * f[q * s + j]
                            d_left[d, row, i * s + j] += to_g
                            d_right[d, row, i * s + j] += to_h
                            d_factor[d, row, i * s + j] += to_f
                    for j in range(s):
                        for o in range(outputs):
                            total = scale.dtype.type(0)
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
            own, d_own = (
                scale[d, :2].reshape(2 * s, outputs),
                d_scale[d, :2].reshape(2 * s, outputs),
            )
            add_factor_gradients(joint, boundary[d], own, d_own, d_boundary[d])

    return StateLoops(forward, backward)


@cache
def interpolation_loops(s: int) -> StateLoops:
    """Return the loops of ``interpolate``: forward over rows, backward over features.

    Cell numbers are clamped as integers before they address memory.
    """

    @compile_loop
    def forward(start, stop, cell, left, right, states, covariances, mean, variance):
        last, outputs = states.shape[1] - 2, states.shape[3]
        for first in range(start, stop, BLOCK):
            end = min(first + BLOCK, stop)
            mean[first:end] = 0
            variance[first:end] = 0
            # A feature's table is read for a block of rows while it is in the cache.
            for d in range(cell.shape[1]):
                for b in range(first, end):
                    n = min(max(cell[b, d], 0), last)
                    p, q = to_fixed_tuple(left[b, d], s), to_fixed_tuple(right[b, d], s)
                    for o in range(outputs):
                        to_mean = to_variance = mean.dtype.type(0)
                        for i in range(s):
                            to_mean += p[i] * states[d, n, i, o] + q[i] * states[d, n + 1, i, o]
                            for j in range(s):
                                both = p[i] * q[j]
                                to_variance += p[i] * p[j] * covariances[d, n, 0, i, j, o]
                                to_variance += (both + both) * covariances[d, n, 1, i, j, o]
                                to_variance += q[i] * q[j] * covariances[d, n + 1, 0, i, j, o]
                        mean[b, o] += to_mean
                        variance[b, o] += to_variance

    @compile_loop
    def backward(
        start, stop, d_mean, d_variance, cell, left, right, states, covariances,
        d_left, d_right, d_states, d_covariances,
    ):  # fmt: skip
        last, outputs = states.shape[1] - 2, states.shape[3]
        for d in range(start, stop):
            d_states[d] = 0
            d_covariances[d] = 0
            for b in range(cell.shape[0]):
                n = min(max(cell[b, d], 0), last)
                p, q = to_fixed_tuple(left[b, d], s), to_fixed_tuple(right[b, d], s)
                for i in range(s):
                    to_p = to_q = d_mean.dtype.type(0)
                    for o in range(outputs):
                        u, v = d_mean[b, o], d_variance[b, o]
                        sum_p = sum_q = d_mean.dtype.type(0)
                        for j in range(s):
                            near, cross = (
                                covariances[d, n, 0, i, j, o],
                                covariances[d, n, 1, i, j, o],
                            )
                            far, back = (
                                covariances[d, n + 1, 0, i, j, o],
                                covariances[d, n, 1, j, i, o],
                            )
                            sum_p += near * p[j] + cross * q[j]
                            sum_q += far * q[j] + back * p[j]
                        to_p += u * states[d, n, i, o] + v * (sum_p + sum_p)
                        to_q += u * states[d, n + 1, i, o] + v * (sum_q + sum_q)
                    d_left[b, d, i] = to_p
                    d_right[b, d, i] = to_q
                for i in range(s):
                    for o in range(outputs):
                        d_states[d, n, i, o] += p[i] * d_mean[b, o]
                        d_states[d, n + 1, i, o] += q[i] * d_mean[b, o]
                    for j in range(s):
                        near, both, far = p[i] * p[j], p[i] * q[j], q[i] * q[j]
                        for o in range(outputs):
                            v = d_variance[b, o]
                            d_covariances[d, n, 0, i, j, o] += near * v
                            d_covariances[d, n, 1, i, j, o] += (both + both) * v
                            d_covariances[d, n + 1, 0, i, j, o] += far * v

    return StateLoops(forward, backward)
