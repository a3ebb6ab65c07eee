"""Softplus and its slope on vectors, to the last bits of float32 and float64.

softplus(y) = max(y, 0) + log(1 + e),        e = exp(-|y|),
log(1 + e)  = 2 atanh(e / (2 + e)),          slope = (1 if y > 0 else e) / (1 + e)
"""

from sikagp.ops.loops.tools import compile_loop
from sikagp.ops.loops.vectors import choose, nearest_integer, num_lanes, power_of_two, zeros

LOG2_E = 1.4426950408889634
# log 2 in two parts; whole multiples of the first are exact
LOG_2, LOG_2_REST = 355 / 512, -2.1219444005469058277e-4
FLOAT32_LANES = 16


@compile_loop
def decay(a):
    """Return exp(-a) for non-negative a: powers of two times a Taylor series."""
    single = num_lanes(a) == FLOAT32_LANES
    vanishing = 150 if single else 1400
    a = choose(a - vanishing, zeros(a) + vanishing, a)
    n = nearest_integer(a * LOG2_E)
    r = (n * LOG_2 - a) + n * LOG_2_REST
    series = zeros(a) + 1
    for k in range(7 if single else 13, 0, -1):
        series = series * (r * (1 / k)) + 1
    half = nearest_integer(n * 0.5)  # a product of two powers may be denormal
    return series * power_of_two(0 - half) * power_of_two(half - n)


@compile_loop
def softplus(y):
    """Return softplus(y) and its derivative."""
    e = decay(choose(y, y, 0 - y))
    inverse = 1 / ((e + 1) * (e + 2))  # one division for both quotients
    z = e * (e + 1) * inverse
    square, last = z * z, 7 if num_lanes(y) == FLOAT32_LANES else 16
    series = zeros(y) + 1 / (2 * last + 1)
    for k in range(last - 1, -1, -1):
        series = series * square + 1 / (2 * k + 1)
    return choose(y, y, 0) + (z + z) * series, choose(y, 1, e) * ((e + 2) * inverse)
