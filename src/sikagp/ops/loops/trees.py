r"""Compiled bridge trees of the Laplace and Matérn kernels, and their gradients.

With the functions of ``weights``, and B the matrix of :math:`\binom{i}{k}`, a state at distances u
and v from its neighbours, w = u + v apart, has

.. math:: G_{right} = e^{-v} B W(u) W(w)^{-1} T, \qquad G_{left}(u, v) = J G_{right}(v, u) J, \qquad
          S S^T = (-1)^{s-1} q \, B W(u) W(w)^{-1} W(v) B^T J

(J flips the sign of odd derivatives). Rows of it are the derivatives of the two-point weights and
of the bridge covariance. All distances are proportional to the rate, so the tree has one derivative
per feature: that by the logarithm of the rate, carried along forwards as ``slopes``. Boundary
factors are those of ``sikagp.kernels``, with :math:`dA/dt = (N - 1) A` and
:math:`dQ/dt = q e^{-2t} p p^T`. All is float64.
"""

from math import comb, factorial

import numpy as np

from sikagp.ops.loops.tools import compile_loop
from sikagp.ops.loops.weights import (
    CHOOSE,
    DIFFUSION,
    FACTORIALS,
    FAR,
    SIGNED,
    fill_hankel,
    invert_hankel,
    scaled_rate,
)


def _polynomials(s):
    """Coefficients by power of t: of A(t) exp(t), and of what the integral of Q(t) runs over."""
    nilpotent = np.eye(s) + np.eye(s, k=1)
    nilpotent[-1] -= [comb(s, j) for j in range(s)]
    powers = [np.linalg.matrix_power(nilpotent, k) / factorial(k) for k in range(s)]
    products = np.zeros((2 * s - 1, s, s))
    for k in range(s):
        for m in range(s):
            products[k + m] += DIFFUSION[s - 1] * np.outer(powers[k][:, -1], powers[m][:, -1])
    return powers, products


POWERS, PRODUCTS = np.zeros((3, 3, 3, 3)), np.zeros((3, 5, 3, 3))  # by s - 1 and the power of t
for _s in (2, 3):
    POWERS[_s - 1, :_s, :_s, :_s], PRODUCTS[_s - 1, : 2 * _s - 1, :_s, :_s] = _polynomials(_s)


@compile_loop
def _gamma_share(n, x):
    """Incomplete gamma function P(n, x) of a whole n: the chance of n events or more."""
    if x > n:
        total = term = 1.0
        for j in range(1, n):
            term *= x / j
            total += term
        return 1 - np.exp(-x) * total
    total = term = 1.0
    for j in range(1, 40):
        term *= x / (n + j)
        total += term
    return np.exp(-x) * x**n / FACTORIALS[n] * total


@compile_loop
def _add_noise(t, s, work, place, slope):
    """Q(t) and t Q'(t) in two matrices of the scratch."""
    work[place] = 0
    work[slope] = 0
    power = t * np.exp(-2 * t)
    for k in range(2 * s - 1):
        integral = FACTORIALS[k] / 2.0 ** (k + 1) * _gamma_share(k + 1, 2 * t)
        for i in range(s):
            for j in range(s):
                work[place, i, j] += PRODUCTS[s - 1, k, i, j] * integral
                work[slope, i, j] += PRODUCTS[s - 1, k, i, j] * power
        power *= t


@compile_loop
def _factorise(s, work, place, slope):
    """Replace a matrix by its Cholesky factor, and its slope by the factor's."""
    for j in range(s):
        for i in range(j, s):
            own, change = work[place, i, j], work[slope, i, j]
            for k in range(j):
                own -= work[place, i, k] * work[place, j, k]
                change -= work[slope, i, k] * work[place, j, k]
                change -= work[place, i, k] * work[slope, j, k]
            if i == j:
                own = np.sqrt(own)
                change /= 2 * own
            else:
                own /= work[place, j, j]
                change = (change - own * work[slope, j, j]) / work[place, j, j]
            work[place, i, j], work[slope, i, j] = own, change
        for i in range(j):
            work[place, i, j] = work[slope, i, j] = 0


@compile_loop
def _fill_boundary(t, state, work, ends):
    """Factor of the joint covariance of both ends, at distance t, and its slope."""
    s, decay = len(state), np.exp(-t)
    ends[:] = 0
    if s == 1:  # a symmetric and an antisymmetric pair
        even, odd = np.sqrt((1 + decay) / 2), np.sqrt(-np.expm1(-t) / 2)
        ends[0, 0, 0] = ends[0, 1, 0] = even
        ends[0, 0, 1], ends[0, 1, 1] = odd, -odd
        ends[1, 0, 0] = ends[1, 1, 0] = -t * decay / (4 * even)
        ends[1, 0, 1], ends[1, 1, 1] = t * decay / (4 * odd), -t * decay / (4 * odd)
        return
    first, noise, carried, change = 0, 1, 2, 3
    _add_noise(FAR, s, work, first, change)
    _factorise(s, work, first, change)
    _add_noise(t, s, work, noise, change)
    _factorise(s, work, noise, change)
    far = min(t, FAR)
    for i in range(s):
        for j in range(s):
            total = POWERS[s - 1, s - 1, i, j]
            for k in range(s - 2, -1, -1):
                total = total * far + POWERS[s - 1, k, i, j]
            work[carried, i, j] = total * np.exp(-far)
    for i in range(s):
        for j in range(s):
            ends[0, i, j] = work[first, i, j]
            ends[0, s + i, s + j], ends[1, s + i, s + j] = work[noise, i, j], work[change, i, j]
            for k in range(s):
                flow = -work[carried, i, k]
                for m in range(s):
                    flow += POWERS[s - 1, 1, i, m] * work[carried, m, k]
                ends[0, s + i, j] += work[carried, i, k] * work[first, k, j]
                ends[1, s + i, j] += far * flow * work[first, k, j]


# Matrices of the scratch: a bridge, its slopes, and what they are made of.
LEFT, RIGHT, FACTOR, D_LEFT, D_RIGHT, D_FACTOR = range(6)
TO_LEFT, TO_RIGHT, FULL, D_TO_LEFT, D_TO_RIGHT, D_FULL, NUM_MATRICES = range(6, 13)


@compile_loop
def _share(s, hankels, near, inverse, t, width, work, place, slope):
    """W(near) W(w)^-1, and its slope where the two are t and ``width`` wide."""
    for i in range(s):
        for j in range(s):
            total = 0.0
            for k in range(s):
                total += hankels[near, i + k] * inverse[0, 0, k * s + j]
            work[place, i, j] = total
    for i in range(s):
        for j in range(s):
            total = 0.0
            for k in range(s):
                change = t * hankels[near, i + k + 1]
                for m in range(s):
                    change -= width * work[place, i, m] * hankels[2, m + k + 1]
                total += change * inverse[0, 0, k * s + j]
            work[slope, i, j] = total


@compile_loop
def _gain(s, t, mirrored, work, source, place):
    """exp(-t) B source T, with the signs of a mirror image if asked for."""
    for i in range(s):
        for j in range(s):
            total = 0.0
            for k in range(i + 1):
                for m in range(j, s):
                    total += CHOOSE[i, k] * work[source, k, m] * SIGNED[m, j]
            total *= np.exp(-t)
            work[place, i, j] = -total if mirrored and (i + j) & 1 else total


@compile_loop
def _covariance(s, work, source, place):
    """(-1)^(s-1) q B source B^T J, its lower triangle."""
    sign = -DIFFUSION[s - 1] if s == 2 else DIFFUSION[s - 1]
    for i in range(s):
        for j in range(i + 1):
            total = 0.0
            for k in range(i + 1):
                for m in range(j + 1):
                    total += CHOOSE[i, k] * work[source, k, m] * CHOOSE[j, m]
            work[place, i, j] = -sign * total if j & 1 else sign * total


@compile_loop
def _fill_bridge(u, v, hankels, state, work, inverse):
    """Left and right gains and the factor, with their slopes; ``hankels`` are those of u, v, w."""
    s = len(state)
    invert_hankel(s, hankels[2], 0, 0, inverse)
    _share(s, hankels, 0, inverse, u, u + v, work, TO_RIGHT, D_TO_RIGHT)
    _share(s, hankels, 1, inverse, v, u + v, work, TO_LEFT, D_TO_LEFT)
    for i in range(s):
        for j in range(s):
            total = change = 0.0
            for k in range(s):
                total += work[TO_RIGHT, i, k] * hankels[1, k + j]
                change += work[D_TO_RIGHT, i, k] * hankels[1, k + j]
                change += work[TO_RIGHT, i, k] * v * hankels[1, k + j + 1]
            work[FULL, i, j], work[D_FULL, i, j] = total, change
    _covariance(s, work, FULL, FACTOR)
    _covariance(s, work, D_FULL, D_FACTOR)
    _factorise(s, work, FACTOR, D_FACTOR)
    for i in range(s):
        for j in range(s):
            work[D_TO_RIGHT, i, j] -= v * work[TO_RIGHT, i, j]
            work[D_TO_LEFT, i, j] -= u * work[TO_LEFT, i, j]
    _gain(s, u, True, work, TO_LEFT, LEFT)
    _gain(s, u, True, work, D_TO_LEFT, D_LEFT)
    _gain(s, v, False, work, TO_RIGHT, RIGHT)
    _gain(s, v, False, work, D_TO_RIGHT, D_RIGHT)


@compile_loop
def _distances(d, row, shared, nodes, speed):
    """Distances of a midpoint from its neighbours, of the level or node that a row stands for."""
    if shared:
        return speed * 0.5 ** (row + 1), speed * 0.5 ** (row + 1)
    half, first, line = (nodes.shape[1] - 1) // 2, 0, min(d, len(nodes) - 1)
    while row - first > first:  # level by level, each twice as long as the one before
        first, half = 2 * first + 1, half // 2
    a = 2 * (row - first) * half
    u = nodes[line, a + half] - nodes[line, a]
    return speed * u, speed * (nodes[line, a + 2 * half] - nodes[line, a + half])


@compile_loop
def _fill_row(d, row, shared, state, nodes, speed, hankels, work, inverse):
    """One bridge and its slopes."""
    u, v = _distances(d, row, shared, nodes, speed)
    if shared and row > 0:  # what was half a cell is now a whole one
        hankels[2] = hankels[0]
    else:
        fill_hankel(u + v, state, hankels, 2)
    fill_hankel(u, state, hankels, 0)
    if shared:
        hankels[1] = hankels[0]
    else:
        fill_hankel(v, state, hankels, 1)
    _fill_bridge(u, v, hankels, state, work, inverse)


@compile_loop
def _new_work(state):
    """Scratch for matrices, an inverse, the ends and their slope, and the entries of W."""
    s = len(state)
    matrices, inverse = np.empty((NUM_MATRICES, s, s)), np.empty((1, 1, s * s))
    return matrices, inverse, np.empty((2, 2 * s, 2 * s)), np.empty((3, 2 * s))


@compile_loop
def tree_forward(start, stop, state, nodes, rate, scale, boundary, left, right, factor):
    """Fill a range of features of the tree of a process of deviation ``scale``.

    The tree has one row per level where cells are even.
    """
    (work, inverse, ends, hankels), s = _new_work(state), len(state)
    shared = left.shape[1] < nodes.shape[1] - 2
    for d in range(start, stop):
        speed = scaled_rate(rate[d], state)
        _fill_boundary(speed, state, work, ends)
        for i in range(2 * s):
            for j in range(2 * s):
                boundary[d, i, j] = scale[d] * ends[0, i, j]
        for row in range(left.shape[1]):
            _fill_row(d, row, shared, state, nodes, speed, hankels, work, inverse)
            for i in range(s):
                for j in range(s):
                    left[d, row, i, j] = work[LEFT, i, j]
                    right[d, row, i, j] = work[RIGHT, i, j]
                    factor[d, row, i, j] = scale[d] * work[FACTOR, i, j]


@compile_loop
def tree_backward(
    start, stop, state, nodes, rate, scale, d_boundary, d_left, d_right, d_factor, d_rate, d_scale
):  # fmt: skip
    """Fill the gradients of rate and scale of a range of features."""
    (work, inverse, ends, hankels), s = _new_work(state), len(state)
    shared = d_left.shape[1] < nodes.shape[1] - 2
    for d in range(start, stop):
        speed, to_rate, to_scale = scaled_rate(rate[d], state), 0.0, 0.0
        _fill_boundary(speed, state, work, ends)
        for i in range(2 * s):
            for j in range(2 * s):
                to_scale += d_boundary[d, i, j] * ends[0, i, j]
                to_rate += d_boundary[d, i, j] * scale[d] * ends[1, i, j]
        for row in range(d_left.shape[1]):
            _fill_row(d, row, shared, state, nodes, speed, hankels, work, inverse)
            for i in range(s):
                for j in range(s):
                    to_scale += d_factor[d, row, i, j] * work[FACTOR, i, j]
                    to_rate += d_left[d, row, i, j] * work[D_LEFT, i, j]
                    to_rate += d_right[d, row, i, j] * work[D_RIGHT, i, j]
                    to_rate += d_factor[d, row, i, j] * scale[d] * work[D_FACTOR, i, j]
        d_rate[d], d_scale[d] = to_rate / np.float64(rate[d]), to_scale
