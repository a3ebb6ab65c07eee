r"""Compiled two-point weights for training: forward over rows, gradients over features.

Formulas and names are those of ``weights``. The gradients need no further exponentials. With
:math:`B = W' W^{-1}` (in the coordinates of R itself) and e the last row of :math:`W^{-1}`,

.. math:: \partial_v right = -right B, \qquad \partial_u right = left_{s-1} e, \qquad
          \partial_u residual = q \, left_{s-1}^2,

and the mirror images for left and for v. They are computed in float64, where the difference of
nearly equal terms at small angles does no harm.
"""

import numpy as np

from sikagp.ops.loops.cells import find_cell
from sikagp.ops.loops.tools import compile_loop, load
from sikagp.ops.loops.weights import (
    BLOCK,
    CHOOSE,
    DECAY_U,
    DECAY_V,
    DIFFUSION,
    FAR,
    LEFT,
    NUM_ROWS,
    RESIDUAL,
    RIGHT,
    SIGNED,
    U,
    V,
    gain_beyond,
    residual_beyond,
    scaled_rate,
    weigh_block,
)


@compile_loop
def _place(work, cell, first, count, d, x, nodes, speed, even):
    """Fill cells, and the distances of a block of rows to their ends; returns the largest."""
    line, widest = min(d, len(nodes) - 1), 0.0
    for n in range(count):
        unit = np.float64(x[first + n, d])
        inner = 0.0 if unit < 0.0 else (1.0 if unit > 1.0 else unit)
        c, start, end = find_cell(nodes, line, inner, even)
        u, v = speed * (inner - start), speed * (end - inner)
        work[U * BLOCK + n], work[V * BLOCK + n], cell[0, n] = u, v, c
        widest = max(widest, u, v)
    return widest


@compile_loop
def points_forward(
    start, stop, state, matrix, x, nodes, rate, coefficients, shares, cell, left, right, residual
):  # fmt: skip
    """Fill cells, weights and residuals of a range of rows."""
    s, work, own = len(state), np.empty(NUM_ROWS * BLOCK), np.empty((1, BLOCK), np.int64)
    even = coefficients.shape[1] == 1
    for first in range(start, stop, BLOCK):
        count = min(first + BLOCK, stop) - first
        for d in range(x.shape[1]):
            speed = scaled_rate(rate[d], state)
            longest = _place(work, own, first, count, d, x, nodes, speed, even)
            weigh_block(work, count, d, longest, state, matrix, coefficients, own, 0)
            for n in range(count):
                b, unit = first + n, np.float64(x[first + n, d])
                cell[b, d] = own[0, n]
                if unit < 0 or unit > 1:
                    t, sign = speed * (-unit if unit < 0 else unit - 1), 1.0
                    for i in range(s):
                        gain = gain_beyond(t, s, i)
                        left[b, d, i] = gain * sign if unit < 0 else 0.0
                        right[b, d, i] = gain if unit > 1 else 0.0
                        sign = -sign
                    residual[b, d] = shares[1] * residual_beyond(t, s)
                else:
                    for i in range(s):
                        left[b, d, i] = work[(LEFT + i) * BLOCK + n]
                        right[b, d, i] = work[(RIGHT + i) * BLOCK + n]
                    residual[b, d] = shares[0] * work[RESIDUAL * BLOCK + n]


@compile_loop
def _flow(work, row, n, mirrored, state, numbers, gradient, b, d):
    """Products of a gradient with ``w B`` and with e, for the weights w of one end."""
    s, flow, last_row = len(state), 0.0, 0.0
    before = 0.0
    top = work[(row + s - 1) * BLOCK + n]
    if mirrored and s == 2:
        top = -top
    for k in range(s):
        own = slope = 0.0
        for i in range(k, s):  # from weights to a(u) W^-1, undoing T
            sign = -1.0 if mirrored and i & 1 else 1.0
            own += sign * CHOOSE[i, k] * work[(row + i) * BLOCK + n]
        for i in range(k + 1):
            sign = -1.0 if mirrored and i & 1 else 1.0
            slope += sign * SIGNED[k, i] * gradient[b, d, i]
        flow += slope * (own + before + top * numbers[s * s + k])
        last_row += slope * numbers[(s - 1) * s + k]
        before = own
    return flow, last_row * work[DECAY_U * BLOCK + n] * work[DECAY_V * BLOCK + n]


@compile_loop
def _slopes(work, n, state, numbers, b, d, d_left, d_right, d_inside):
    """Gradients of the scaled distances u and v of one point."""
    s, q = len(state), DIFFUSION[len(state) - 1]
    of_left, of_right = (
        work[(LEFT + s - 1) * BLOCK + n],
        work[(RIGHT + s - 1) * BLOCK + n],
    )
    sign = -1.0 if s == 2 else 1.0
    flow_left, row_left = _flow(work, LEFT, n, True, state, numbers, d_left, b, d)
    flow_right, row_right = _flow(work, RIGHT, n, False, state, numbers, d_right, b, d)
    to_u = of_left * row_right - flow_left + q * of_left * of_left * d_inside
    to_v = sign * of_right * row_left - flow_right + q * of_right * of_right * d_inside
    return to_u, to_v


@compile_loop
def _slope_beyond(t, state, before, b, d, d_gain, d_outside):
    """Gradient of the scaled distance beyond the grid; ``before`` means beyond the left end."""
    s, total, sign = len(state), 0.0, 1.0
    for i in range(s):
        # gain_i = exp(-t) sum_k (k choose i) t^k / k! has the derivative that follows.
        slope = -gain_beyond(t, s, i)
        far = min(t, FAR)
        power = np.exp(-far)
        for k in range(1, s):
            slope += CHOOSE[k, i] * power
            power = power * far / k
        total += (sign if before else 1.0) * slope * d_gain[b, d, i]
        sign = -sign
    last = gain_beyond(t, s, s - 1)
    return total + DIFFUSION[s - 1] * last * last * d_outside


@compile_loop
def points_backward(
    start, stop, state, matrix, numbers, d_left, d_right, d_residual,
    x, nodes, rate, coefficients, shares, d_x, d_rate,
):  # fmt: skip
    """Fill the gradients of x and of the rate for a range of features."""
    work, own = np.empty(NUM_ROWS * BLOCK), np.empty((1, BLOCK), np.int64)
    cells, size = coefficients.shape[1], coefficients.shape[2]
    for d in range(start, stop):
        speed, total = scaled_rate(rate[d], state), 0.0
        for first in range(0, x.shape[0], BLOCK):
            count = min(first + BLOCK, x.shape[0]) - first
            longest = _place(work, own, first, count, d, x, nodes, speed, cells == 1)
            weigh_block(work, count, d, longest, state, matrix, coefficients, own, 0)
            for n in range(count):
                b, unit = first + n, np.float64(x[first + n, d])
                if unit < 0 or unit > 1:
                    t, before = speed * (-unit if unit < 0 else unit - 1), unit < 0
                    d_gain, d_open = d_left if before else d_right, shares[1] * d_residual[b, d]
                    slope = _slope_beyond(t, state, before, b, d, d_gain, d_open)
                    d_x[b, d] = speed * (-slope if before else slope)
                    total += t * slope
                else:
                    row = d * cells + (own[0, n] if cells > 1 else 0)
                    to_u, to_v = _slopes(
                        work, n, state, load(coefficients, row * size, numbers), b, d,
                        d_left, d_right, shares[0] * d_residual[b, d],
                    )  # fmt: skip
                    d_x[b, d] = speed * (to_u - to_v)
                    total += work[U * BLOCK + n] * to_u + work[V * BLOCK + n] * to_v
        d_rate[d] = total / np.float64(rate[d])
