r"""Compiled two-point weights of the Laplace and Matérn kernels, of state size s = 1, 2, 3.

In the coordinate t = lambda d of ``sikagp.kernels.matern``, what the bridge between two nodes
expects solves :math:`(D^2 - 1)^s f = 0`. Let R be the solution that starts like
:math:`t^{2s-1} / (2s-1)!`, and :math:`\varphi(t) = e^{-t} R(t)` with its derivatives

.. math:: a_k(t) = \varphi^{(k)}(t) = e^{-t} (D - 1)^k R(t), \quad k < s, \qquad
          W_{jk}(w) = \varphi^{(j + k)}(w).

A point at distances u and v from the ends of a cell of width w = u + v has, with
:math:`T_{kj} = (-1)^{k-j} \binom{k}{j}` and q the kernel's diffusion,

.. math:: right = e^{-v} a(u) W^{-1} T, \qquad left_i = (-1)^i right_i(v, u), \qquad
          residual = (-1)^{s-1} q \, a(u) W^{-1} a(v).

For s = 1 this is sinh(u) / sinh(w). No term is large and none is the small difference of large
ones: up to t = 1, R and its derivatives are power series with positive terms; beyond, a(t) is a
polynomial plus another times :math:`e^{-2t}`. :math:`W^{-1}` is computed once per cell width. All
is float64. Beyond the grid, at distance t from its end,

.. math:: gain_i = e^{-t} \sum_k \binom{k}{i} t^k / k!, \qquad
          residual = 1 - e^{-2t} \sum_{j < 2s-1} (2t)^j / j!.
"""

from math import comb, factorial

import numpy as np

from sikagp.ops.loops.tools import compile_loop, load

BLOCK = 32  # points whose weights are computed together, with vector instructions
# Rows of BLOCK numbers in the scratch: distances, their decays, a(u), a(v), left, right, residual.
# One array with constant offsets tells the compiler that rows do not overlap.
U, V, DECAY_U, DECAY_V, AT_U, AT_V, LEFT, RIGHT, RESIDUAL, NUM_ROWS = (
    0,
    1,
    2,
    3,
    4,
    7,
    10,
    13,
    16,
    17,
)
NUM_TERMS = 10  # of the even series of R, exact to rounding up to t = 1
NUM_DECAY = 19  # of the series of exp(-t), likewise
SHORT = 1.0  # the largest t for which series are used
FEW_TERMS, FEW_DECAY, TINY = 5, 11, 1 / 8  # as many do up to this t
FAR = 1000.0  # beyond this t, exp(-t) is zero
SIZES = 1, 2, 3
DIFFUSION = np.array([2.0, 4.0, 16 / 3])
DECAY = np.array([(-1.0) ** k / factorial(k) for k in range(NUM_DECAY)])
FACTORIALS = np.array([float(factorial(k)) for k in range(6)])


def _by_size(entry, *shape):
    """An array indexed by s - 1 and then by ``shape``."""
    table = np.zeros((len(SIZES), *shape))
    for s in SIZES:
        for index in np.ndindex(*shape):
            table[(s - 1, *index)] = entry(s, *index)
    return table


# Coefficient of t^(2s-1-k+2n) in the k-th derivative of R.
SERIES = _by_size(
    lambda s, k, n: comb(n + s - 1, s - 1) / factorial(2 * s - 1 - k + 2 * n) if k < s else 0,
    3, NUM_TERMS,
)  # fmt: skip
CHOOSE = np.array([[float(comb(k, j)) for j in range(3)] for k in range(3)])
SIGNED = CHOOSE * np.array([[(-1.0) ** (k + j) for j in range(3)] for k in range(3)])
GAIN = _by_size(lambda s, i, k: comb(k, i) / factorial(k) if k < s else 0, 3, 3)
# a_k(t) = STEADY_k(t) + exp(-2 t) FADING_k(t), by powers of t.
STEADY = np.array(
    [
        [[1, 0, 0], [0, 0, 0], [0, 0, 0]],
        [[-1, 1, 0], [1, 0, 0], [0, 0, 0]],
        [[3, -3, 1], [-3, 2, 0], [2, 0, 0]],
    ]
) / np.array([2.0, 4.0, 16.0]).reshape(3, 1, 1)
FADING = np.array(
    [
        [[-1, 0, 0], [0, 0, 0], [0, 0, 0]],
        [[1, 1, 0], [-1, -2, 0], [0, 0, 0]],
        [[-3, -3, -1], [3, 4, 2], [-2, -4, -4]],
    ]
) / np.array([2.0, 4.0, 16.0]).reshape(3, 1, 1)


@compile_loop
def _sum_decay(work, t, count, terms, out):
    """exp(-t) by the first terms of its series."""
    for n in range(count):
        y, total = work[t * BLOCK + n], DECAY[terms - 1]
        for k in range(terms - 2, -1, -1):
            total = total * y + DECAY[k]
        work[out * BLOCK + n] = total


@compile_loop
def _fill_decay(work, t, count, longest, out):
    """exp(-t), by its series if all t are short."""
    if longest <= TINY:
        _sum_decay(work, t, count, FEW_DECAY, out)
    elif longest <= SHORT:
        _sum_decay(work, t, count, NUM_DECAY, out)
    else:
        for n in range(count):
            work[out * BLOCK + n] = np.exp(-work[t * BLOCK + n])


@compile_loop
def _sum_basis(work, t, decay, count, terms, state, out):
    """a_k(t) by the first terms of the series of R, for t of at most SHORT."""
    s = len(state)
    for n in range(count):
        y = work[t * BLOCK + n]
        y = y if y < SHORT else SHORT
        square, power = y * y, y
        for _ in range(s - 1):
            power = power * y
        for i in range(s):  # from the last derivative, which starts like t^s, to R itself
            k = s - 1 - i
            total = SERIES[s - 1, k, terms - 1]
            for m in range(terms - 2, -1, -1):
                total = total * square + SERIES[s - 1, k, m]
            work[(out + k) * BLOCK + n] = total * power
            power = power * y
        for i in range(s):
            k, total = s - 1 - i, 0.0
            for j in range(k + 1):
                total += SIGNED[k, j] * work[(out + j) * BLOCK + n]
            work[(out + k) * BLOCK + n] = total * work[decay * BLOCK + n]


@compile_loop
def _fill_basis(work, t, decay, count, longest, state, out):
    """a_k(t) for all k < s, in rows from ``out`` on."""
    s = len(state)
    if longest <= TINY:
        _sum_basis(work, t, decay, count, FEW_TERMS, state, out)
    else:
        _sum_basis(work, t, decay, count, NUM_TERMS, state, out)
    if not longest <= SHORT:
        for n in range(count):
            y, fading = work[t * BLOCK + n], work[decay * BLOCK + n] ** 2
            for k in range(s):
                steady, fade = STEADY[s - 1, k, s - 1], FADING[s - 1, k, s - 1]
                for m in range(s - 2, -1, -1):
                    steady = steady * y + STEADY[s - 1, k, m]
                    fade = fade * y + FADING[s - 1, k, m]
                value = work[(out + k) * BLOCK + n]
                work[(out + k) * BLOCK + n] = steady + fading * fade if y > SHORT else value


@compile_loop
def _combine(work, n, c, state):
    """Weights and residual of one point, given the inverse of its cell."""
    s, total, sign = len(state), 0.0, 1.0
    for i in range(s):
        from_u = from_v = 0.0
        for j in range(s):
            from_u += work[(AT_U + j) * BLOCK + n] * c[j * s + i]
            from_v += work[(AT_V + j) * BLOCK + n] * c[j * s + i]
        total += from_u * work[(AT_V + i) * BLOCK + n]
        work[(RIGHT + i) * BLOCK + n] = from_u
        work[(LEFT + i) * BLOCK + n] = from_v
    for i in range(s):
        to_right = to_left = 0.0
        for j in range(i, s):
            to_right += work[(RIGHT + j) * BLOCK + n] * SIGNED[j, i]
            to_left += work[(LEFT + j) * BLOCK + n] * SIGNED[j, i]
        work[(RIGHT + i) * BLOCK + n] = work[DECAY_V * BLOCK + n] * to_right
        work[(LEFT + i) * BLOCK + n] = work[DECAY_U * BLOCK + n] * to_left * sign
        sign = -sign
    total = -sign * DIFFUSION[s - 1] * total
    work[RESIDUAL * BLOCK + n] = 0.0 if total < 0.0 else total


@compile_loop
def weigh_block(work, count, d, longest, state, matrix, coefficients, cell, t):
    """Fill left, right and residual of a block of points of feature d, whose u and v are there.

    No distance exceeds ``longest``; ``cell[t]`` tells each point's row of coefficients where cells
    have their own.
    """
    cells, size = coefficients.shape[1], coefficients.shape[2]
    _fill_decay(work, U, count, longest, DECAY_U)
    _fill_decay(work, V, count, longest, DECAY_V)
    _fill_basis(work, U, DECAY_U, count, longest, state, AT_U)
    _fill_basis(work, V, DECAY_V, count, longest, state, AT_V)
    if cells == 1:
        shared = load(coefficients, d * size, matrix)
        for n in range(count):
            _combine(work, n, shared, state)
    else:
        for n in range(count):
            _combine(work, n, load(coefficients, (d * cells + cell[t, n]) * size, matrix), state)


@compile_loop
def scaled_rate(rate, state):
    """Return lambda = sqrt(2 nu) rate, with 2 nu = 2 s - 1."""
    return np.sqrt(2.0 * len(state) - 1.0) * np.float64(rate)


@compile_loop
def cell_coefficients(start, stop, state, nodes, rate, out):
    """Fill ``out``, (features, cells, s^2 + s), for a range of features.

    A row holds ``W^-1`` and ``(phi^(s), .., phi^(2s-1))(w) W^-1``. Where ``out`` has one row per
    feature, all cells are as wide as the first.
    """
    s, hankel = len(state), np.empty((1, 2 * len(state)))
    for d in range(start, stop):
        line = min(d, len(nodes) - 1)
        for c in range(out.shape[1]):
            w = scaled_rate(rate[d], state) * (nodes[line, c + 1] - nodes[line, c])
            fill_hankel(w, state, hankel, 0)
            invert_hankel(s, hankel[0], d, c, out)
            for k in range(s):
                total = 0.0
                for j in range(s):
                    total += hankel[0, s + j] * out[d, c, j * s + k]
                out[d, c, s * s + k] = total


@compile_loop
def fill_hankel(t, state, out, place):
    """phi and its derivatives up to the (2 s - 1)-th: entries of W(t) and of its slope."""
    s = len(state)
    if s == 1:
        out[place, 0], out[place, 1] = -0.5 * np.expm1(-2 * t), np.exp(-2 * t)
        return
    work = np.empty(NUM_ROWS * BLOCK)
    work[U * BLOCK] = t
    _fill_decay(work, U, 1, t, DECAY_U)
    _fill_basis(work, U, DECAY_U, 1, t, state, AT_U)
    for k in range(s):
        out[place, k] = work[(AT_U + k) * BLOCK]
        out[place, s + k] = _tail(s, k, t) * work[DECAY_U * BLOCK] ** 2


@compile_loop
def _tail(s, order, w):
    """phi^(s + order) over exp(-2 w): derivatives of ``t^(s-1) exp(-2 t) / (s-1)!``, by Leibniz."""
    total = 0.0
    for m in range(min(order, s - 1) + 1):
        choose = FACTORIALS[order] / (FACTORIALS[m] * FACTORIALS[order - m])
        total += choose * w ** (s - 1 - m) / FACTORIALS[s - 1 - m] * (-2.0) ** (order - m)
    return total


@compile_loop
def invert_hankel(s, h, d, n, out):
    """Inverse of the Hankel matrix with entries ``h[j + k]``, by cofactors."""
    if s == 1:
        out[d, n, 0] = 1 / h[0]
    elif s == 2:
        determinant = h[0] * h[2] - h[1] * h[1]
        out[d, n, 0], out[d, n, 3] = h[2] / determinant, h[0] / determinant
        out[d, n, 1] = out[d, n, 2] = -h[1] / determinant
    else:
        first, second = h[2] * h[4] - h[3] * h[3], h[2] * h[3] - h[1] * h[4]
        third = h[1] * h[3] - h[2] * h[2]
        determinant = h[0] * first + h[1] * second + h[2] * third
        out[d, n, 0], out[d, n, 4] = first / determinant, (h[0] * h[4] - h[2] * h[2]) / determinant
        out[d, n, 1] = out[d, n, 3] = second / determinant
        out[d, n, 2] = out[d, n, 6] = third / determinant
        out[d, n, 5] = out[d, n, 7] = (h[1] * h[2] - h[0] * h[3]) / determinant
        out[d, n, 8] = (h[0] * h[2] - h[1] * h[1]) / determinant


@compile_loop
def gain_beyond(t, s, i):
    """Weight of the i-th component of the end state, at distance t beyond the grid."""
    far = FAR if t > FAR else t
    total = GAIN[s - 1, i, s - 1]
    for k in range(s - 2, -1, -1):
        total = total * far + GAIN[s - 1, i, k]
    return total * np.exp(-far)


@compile_loop
def residual_beyond(t, s):
    """Variance that the end state leaves open at distance t beyond the grid."""
    twice = 2 * (FAR if t > FAR else t)
    total = term = 1.0
    for j in range(1, 2 * s - 1):
        term = term * twice / j
        total += term
    left = 1 - np.exp(-twice) * total
    return 0.0 if left < 0.0 else left
