"""Compiled two-point weights of the Laplace kernel on a uniform grid, and their gradients.

Formulas are those of ``sikagp.kernels.laplace``. Gradients are computed in float64, where the
difference of nearly equal terms at small angles does no harm:

    d/du sinh(u) / sinh(w) = cosh(u) / sinh(w),        e(t) = 1 - exp(-2 t),
    cosh(u) / sinh(w)      = exp(-v) (1 + exp(-2 u)) / e(w)        for u + v = w.
"""

import numpy as np

from sikagp.ops.loops.prediction import between, beyond
from sikagp.ops.loops.tools import compile_loop, load


@compile_loop
def points_forward(start, stop, terms, x, rate, cells, series, left, right, inside, outside):
    """Fill weights and residuals of a range of rows; ``terms`` is as long as ``series``."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    count, numbers = x.dtype.type(cells[0]), load(series, 0, terms)
    for b in range(start, stop):
        for d in range(x.shape[1]):
            unit = x[b, d]
            position = count * (zero if unit < zero else (one if unit > one else unit))
            c = min(max(np.int64(position), 0), cells[0] - 1)
            share = position - x.dtype.type(c)
            if unit < zero or unit > one:
                gain, residual = beyond(rate[d] * (-unit if unit < zero else unit - one))
                left[b, d, 0], right[b, d, 0] = (gain, zero) if unit < zero else (zero, gain)
                inside[b, d], outside[b, d] = zero, residual
            else:
                u, v = rate[d] * (share / count), rate[d] * ((one - share) / count)
                left[b, d, 0], right[b, d, 0], inside[b, d] = between(u, v, numbers)
                outside[b, d] = zero


@compile_loop
def _slopes(a, b, rate):
    """Derivatives of left, right and residual in x and in the rate, at distances a and b."""
    u, v = rate * a, rate * b
    below_u, below_v = -np.expm1(-u), -np.expm1(-v)
    p, q, e_u, e_v = 1 - below_u, 1 - below_v, below_u * (2 - below_u), below_v * (2 - below_v)
    e_w, r = e_u + e_v - e_u * e_v, p * p * q * q
    left, right, residual = p * e_v / e_w, q * e_u / e_w, e_u * e_v / e_w
    cosh_v, cosh_u = p * (1 + q * q) / e_w, q * (1 + p * p) / e_w
    in_x = -rate * cosh_v, rate * cosh_u, 2 * rate * (p * p - q * q) / e_w
    whole = (a + b) * (1 + r) / e_w
    both = 2 * (a * p * p * e_v + b * q * q * e_u) / e_w
    in_rate = (
        b * cosh_v - left * whole,
        a * cosh_u - right * whole,
        both - residual * 2 * (a + b) * r / e_w,
    )
    return in_x, in_rate


@compile_loop
def points_backward(
    start, stop, terms, d_left, d_right, d_inside, d_outside, x, rate, cells, d_x, d_rate
):
    """Fill the gradients of x and of the rate for a range of features."""
    for d in range(start, stop):
        speed, total = np.float64(rate[d]), 0.0
        for b in range(x.shape[0]):
            unit = np.float64(x[b, d])
            if unit < 0 or unit > 1:
                away, sign = (-unit, -1.0) if unit < 0 else (unit - 1, 1.0)
                gain, gone = np.exp(-speed * away), np.exp(-2 * speed * away)
                d_gain = d_left[b, d, 0] if unit < 0 else d_right[b, d, 0]
                slope = 2 * gone * d_outside[b, d] - gain * d_gain
                d_x[b, d] = sign * speed * slope
                total += away * slope
            else:
                position = unit * cells[0]
                c = min(max(np.int64(position), 0), cells[0] - 1)
                share = (position - c) / cells[0]
                in_x, in_rate = _slopes(share, 1 / cells[0] - share, speed)
                to_left, to_right, to_inside = d_left[b, d, 0], d_right[b, d, 0], d_inside[b, d]
                d_x[b, d] = in_x[0] * to_left + in_x[1] * to_right + in_x[2] * to_inside
                total += in_rate[0] * to_left + in_rate[1] * to_right + in_rate[2] * to_inside
        d_rate[d] = total
