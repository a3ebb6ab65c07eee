"""Compiled bridge tree of the Laplace kernel on a uniform grid, and its gradient.

Formulas are those of ``sikagp.kernels.laplace``, computed in float64. With t = rate * h at spacing
h and the prior deviation ``scale`` of each feature:

    gain = 1 / (2 cosh t),                  d gain / dt   = -gain tanh t
    factor = scale sqrt(tanh t),            d factor / dt = scale (1 - tanh^2 t) / (2 sqrt(tanh t))
    c1, c2 = sqrt((1 +- exp(-rate)) / 2),   d c / d rate  = -+ exp(-rate) / (4 c)
"""

import numpy as np

from sikagp.ops.loops.tools import compile_loop


@compile_loop
def _ends(rate):
    return np.sqrt((1 + np.exp(-rate)) / 2), np.sqrt(-np.expm1(-rate) / 2)


@compile_loop
def laplace_tree_forward(start, stop, state, rate, scale, boundary, gain, factor):
    """Fill the boundary factors, (features, 2, 2), gains and factors, (features, level)."""
    for d in range(start, stop):
        c1, c2 = _ends(np.float64(rate[d]))
        boundary[d, 0, 0] = boundary[d, 1, 0] = c1 * scale[d]
        boundary[d, 0, 1], boundary[d, 1, 1] = c2 * scale[d], -c2 * scale[d]
        t = np.float64(rate[d])
        for n in range(gain.shape[1]):
            t *= 0.5
            decay = np.exp(-t)
            gain[d, n] = decay / (1 + decay * decay)
            factor[d, n] = scale[d] * np.sqrt(np.tanh(t))


@compile_loop
def laplace_tree_backward(
    start, stop, state, rate, scale, d_boundary, d_gain, d_factor, d_rate, d_scale
):  # fmt: skip
    """Fill the gradients of rate and scale."""
    for d in range(start, stop):
        c1, c2 = _ends(np.float64(rate[d]))
        to_c1, to_c2 = d_boundary[d, 0, 0] + d_boundary[d, 1, 0], d_boundary[d, 0, 1]
        to_c2 -= d_boundary[d, 1, 1]
        to_scale = c1 * to_c1 + c2 * to_c2
        to_rate = scale[d] * np.exp(-np.float64(rate[d])) * (to_c2 / (4 * c2) - to_c1 / (4 * c1))
        t, spacing = np.float64(rate[d]), 1.0
        for n in range(d_gain.shape[1]):
            t, spacing = t * 0.5, spacing * 0.5
            decay, slope = np.exp(-t), np.tanh(t)
            root = np.sqrt(slope)
            to_t = -slope * decay / (1 + decay * decay) * d_gain[d, n]
            to_t += scale[d] * (1 - slope * slope) / (2 * root) * d_factor[d, n]
            to_rate += spacing * to_t
            to_scale += root * d_factor[d, n]
        d_rate[d], d_scale[d] = to_rate, to_scale
