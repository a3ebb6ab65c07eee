"""Compiled KL divergence of Gaussians from standard normals, and its gradient, in one pass each.

KL = sum of (m^2 + s^2 - 1) / 2 - log s,        s = softplus(y)
"""

from sikagp.ops.loops.softplus import FLOAT32_LANES, LOG_2, LOG_2_REST, softplus
from sikagp.ops.loops.tools import compile_loop
from sikagp.ops.loops.vectors import (
    choose,
    exponent_of,
    load_vector,
    num_lanes,
    power_of_two,
    store_vector,
    total,
    zeros,
)

CHUNK = 4096  # numbers that are summed into one
FAR = 40  # below -FAR, log softplus(y) = y


@compile_loop
def _log(s):
    """Natural logarithm: an exponent, and the series of atanh for what is left."""
    n = exponent_of(s)
    m = s * power_of_two(0 - n)
    above = m - 1.4142135
    n, m = n + choose(above, 1, 0), m * choose(above, 0.5, 1)
    z = (m - 1) / (m + 1)
    square, last = z * z, 5 if num_lanes(s) == FLOAT32_LANES else 11
    series = zeros(s) + 1 / (2 * last + 1)
    for k in range(last - 1, -1, -1):
        series = series * square + 1 / (2 * k + 1)
    return (n * LOG_2 + n * LOG_2_REST) + (z + z) * series


@compile_loop
def divergence_forward(start, stop, state, mean, raw, sums):
    """Fill the sums of a range of chunks."""
    lanes = num_lanes(mean)
    for chunk in range(start, stop):
        first, end = chunk * CHUNK, min((chunk + 1) * CHUNK, mean.size)
        divergence = zeros(mean)
        for n in range(first, end, lanes):
            m, y = load_vector(mean, n, end - n), load_vector(raw, n, end - n)
            s = softplus(y)[0]
            divergence += (m * m + s * s - 1) * 0.5 - choose(y + FAR, _log(s), y)
        s = softplus(zeros(mean))[0]
        surplus = (s * s - 1) * 0.5 - _log(s)  # of each lane beyond the last number
        missing = (lanes - (end - first) % lanes) % lanes
        sums[chunk] = total(divergence - surplus * missing * (1 / lanes))


@compile_loop
def divergence_backward(start, stop, state, gradient, mean, raw, d_mean, d_raw):
    """Fill the gradients of a range of chunks."""
    scale = gradient[0]
    for chunk in range(start, stop):
        end = min((chunk + 1) * CHUNK, mean.size)
        for n in range(chunk * CHUNK, end, num_lanes(mean)):
            m, y = load_vector(mean, n, end - n), load_vector(raw, n, end - n)
            s, slope = softplus(y)
            to_raw = choose(y + FAR, (s - 1 / s) * slope, -1)
            store_vector(d_mean, n, m * scale, end - n)
            store_vector(d_raw, n, to_raw * scale, end - n)
